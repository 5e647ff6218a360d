//! An API server with the Service of a deployment, and the servers behind it.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use albacore_api::read_deployment;
use albacore_bench::{FEATURES, random_model};
use albacore_controller::{BuildContext, BuiltInOptions, build, validate};
use albacore_load::{InferRequest, Request, WireFormat};
use albacore_routing_bench::{Pod, PodOptions};
use albacore_statistics::metric_sum;
use albacore_testbed::{ControlPlane, Options, TestNetwork, product};
use serde_json::{Value, json};
use tempfile::TempDir;

/// So long that no request is refused or late on a slow machine.
const OBJECTIVE: Duration = Duration::from_secs(30);

/// Long enough for a router to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Rows that a full server holds beside its batch.
const QUEUE_ROWS: u32 = 4;

/// Until the health checks of the examples have found a restarted pod.
const HEALTH_CHECKS: Duration = Duration::from_secs(3);

/// Addresses of the pods, of which each has its own: Istio takes endpoints with equal addresses for
/// the same pod.
const ADDRESSES: [Ipv4Addr; 3] = [
    Ipv4Addr::new(10, 123, 1, 1),
    Ipv4Addr::new(10, 123, 1, 2),
    Ipv4Addr::new(10, 123, 1, 3),
];

pub(crate) struct Rig {
    pub(crate) pods: Vec<Pod>,
    pub(crate) plane: ControlPlane,
    /// Files that are shown when a test fails.
    pub(crate) logs: Vec<PathBuf>,
    folder: TempDir,
}

pub(crate) fn request(wire: WireFormat, address: SocketAddr) -> Request {
    let call = InferRequest {
        model: "model",
        input: "input",
        output: None,
        values: &vec![0.5; FEATURES as usize],
        features: FEATURES as usize,
    };
    call.request(wire, address)
}

impl Rig {
    /// To be called within `network`.
    pub(crate) fn start(network: &TestNetwork, test: &str, options: &Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plane = ControlPlane::start_in(network, options).unwrap();
        let rig = Self {
            pods: pods(folder.path(), test),
            plane,
            logs: Vec::new(),
            folder,
        };
        rig.apply(&service());
        for (index, pod) in rig.pods.iter().enumerate() {
            rig.apply(&endpoints(index, pod));
        }
        rig
    }

    /// Folder for files of the routers.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The logs of the routers.
    pub(crate) fn logs(&self) -> String {
        let read = |log: &PathBuf| std::fs::read_to_string(log).unwrap_or_default();
        self.logs.iter().map(read).collect()
    }

    pub(crate) fn kubectl(&self, words: &[&str]) -> String {
        let output = self.plane.kubectl(words).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// An object of the namespace `default`, or one that has no namespace.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        let object = self.kubectl(&["get", kind, name, "-o", "json"]);
        serde_json::from_str(&object).unwrap()
    }

    pub(crate) fn apply(&self, object: &Value) {
        let file = self.folder.path().join("object.json");
        std::fs::write(&file, object.to_string()).unwrap();
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    }

    /// Applies a folder of the examples as its README says, with `class` as GatewayClass.
    pub(crate) fn apply_example(&self, name: &str, class: &str) {
        let example = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../manifests/examples/routing")
            .join(name);
        let files = std::fs::read_dir(example).unwrap();
        for file in files.map(|file| file.unwrap().path()) {
            if file
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                let text = std::fs::read_to_string(&file).unwrap();
                let copy = self.folder.path().join("example.yaml");
                std::fs::write(&copy, text.replace("CLASS", class)).unwrap();
                self.kubectl(&["apply", "-f", copy.to_str().unwrap()]);
            }
        }
    }

    pub(crate) fn wait_until(&self, what: &str, is_done: impl Fn() -> bool) {
        let start = Instant::now();
        // bound: PATIENCE
        while !is_done() {
            if start.elapsed() > PATIENCE {
                panic!("{what}: {}", self.logs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Restarts a pod, stops its worker and fills its queue, so that it refuses every request until
    /// the worker is found to hang; returns the connections of the waiting requests.
    pub(crate) fn fill(&mut self, pod: usize) -> Vec<TcpStream> {
        self.pods[pod].restart().unwrap();
        std::thread::sleep(HEALTH_CHECKS);
        let pod = &self.pods[pod];
        let worker = pod.worker.unwrap().to_string();
        let stopped = Command::new("kill").args(["-STOP", &worker]).status();
        assert!(stopped.unwrap().success());
        let waiting: Vec<TcpStream> = (0..=QUEUE_ROWS).map(|_| send(pod.http)).collect();
        self.wait_until("a full queue", || {
            let metrics = pod.fetch("/metrics").unwrap();
            metric_sum(&metrics, "albacore_queue_rows", &[]) == Some(f64::from(QUEUE_ROWS))
        });
        waiting
    }

    /// Number of requests that a pod refused.
    pub(crate) fn refused(&self, pod: usize) -> f64 {
        let metrics = self.pods[pod].fetch("/metrics").unwrap();
        metric_sum(&metrics, "albacore_shed_total", &[]).unwrap()
    }
}

fn pods(folder: &Path, test: &str) -> Vec<Pod> {
    let file: PathBuf = folder.join("model.json");
    std::fs::write(&file, random_model(5)).unwrap();
    let start = |(index, address): (usize, Ipv4Addr)| {
        let add = ["address", "add", &address.to_string(), "dev", "lo"];
        assert!(Command::new("ip").args(add).status().unwrap().success());
        let options = PodOptions {
            server: product("albacore-server").unwrap(),
            model: ("model".to_owned(), file.clone()),
            objective: Some(OBJECTIVE),
            address: address.into(),
            queue_rows: Some(QUEUE_ROWS),
            share: None,
        };
        let name = format!("albacore-{test}-{}-{index}", std::process::id());
        Pod::start(&name, options).unwrap()
    };
    ADDRESSES.into_iter().enumerate().map(start).collect()
}

/// The Service that the controller creates for the deployment `fraud`.
fn service() -> Value {
    let deployment = json!({
        "apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud", "namespace": "default", "uid": "u"},
        "spec": {"models": [{"name": "model", "uri": "pvc://models/model.json"}]},
    });
    let deployment = read_deployment(&deployment.to_string(), "fraud.yaml").unwrap();
    let context = BuildContext {
        built_in: BuiltInOptions::default(),
        has_service_monitors: false,
        replicas: None,
        selects_traffic: false,
    };
    let children = build(&validate(&deployment).unwrap(), &context);
    let mut services = children.into_iter().map(|child| child.body);
    let is_service =
        |body: &Value| body["kind"] == "Service" && body["metadata"]["name"] == "fraud";
    services.find(is_service).unwrap()
}

/// The EndpointSlice of a pod.
fn endpoints(index: usize, pod: &Pod) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": format!("fraud-{index}"), "labels": {"kubernetes.io/service-name": "fraud"},
        },
        "addressType": "IPv4",
        "ports": [
            {"name": "http", "protocol": "TCP", "port": pod.http.port()},
            {"name": "grpc", "protocol": "TCP", "port": pod.grpc.port()},
        ],
        "endpoints": [{
            "addresses": [pod.http.ip().to_string()], "conditions": {"ready": true},
        }],
    })
}

/// Sends a request and does not read its reply.
fn send(address: SocketAddr) -> TcpStream {
    let request = request(WireFormat::Json, address);
    let mut head = format!("POST {} HTTP/1.1\r\nhost: {address}\r\n", request.path);
    for (name, value) in &request.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let length = request.body.len();
    head += &format!("content-length: {length}\r\n\r\n");
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&request.body).unwrap();
    stream
}
