//! Values are applied to a deployment on a real API server, whose pod is a real server under load.
//! The test emulates the controller and the kubelet: it applies the spec to the server and writes
//! status.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use albacore_api::InferenceDeployment;
use albacore_cluster::{Cluster, ObjectKey, UserConnectOptions};
use albacore_command::Failure;
use albacore_live_bench::service::Service;
use albacore_load::{Load, Request, Shape, drive};
use albacore_testbed::{ControlPlane, Options, product, product_of};
use serde_json::{Value, json};

use super::Apply;
use crate::JobSubject;
use crate::job::JobClient;

const LONG: Duration = Duration::from_secs(60);

/// Requests per second: four times the number that a window needs.
const RATE: u32 = 400;

const TIME: &str = "2026-11-21T20:00:00Z";

/// A delay that is applied, and one that the controller reports as rejected by the pods. No latency
/// verdict is required here, because it is inconclusive on a busy machine.
const DELAY: &str = "2ms";
const REFUSED: &str = "3ms";

struct Rig {
    plane: ControlPlane,
    folder: tempfile::TempDir,
    address: SocketAddr,
    /// Held only to be dropped at the end; shared by threads.
    _service: Mutex<Service>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// A local address that the API server's proxy may reach, which excludes loopback addresses. No
/// packet is sent.
fn own_address() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").unwrap();
    socket.local_addr().unwrap().ip().to_string()
}

fn deployment() -> Value {
    let model = root().canonicalize().unwrap().join("examples/fraud.ubj");
    json!({
        "apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud", "namespace": "default"},
        "spec": {
            "workers": 1, "threads": 1,
            "models": [{"name": "fraud", "uri": format!("file://{}", model.display()),
                "slo": {"latency": "900ms"}}],
        },
    })
}

fn pod(address: SocketAddr) -> Value {
    let ip = address.ip().to_string();
    let port = json!({"name": "http", "containerPort": address.port()});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "fraud-a", "namespace": "default",
            "labels": {"albacore.dev/deployment": "fraud"}},
        "spec": {"automountServiceAccountToken": false,
            "containers": [{"name": "server", "image": "x", "ports": [port]}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": TIME}]},
    })
}

impl Rig {
    fn start() -> Self {
        product_of("albacore-cli", "albacore").unwrap();
        for program in ["albacore-server", "albacore-params"] {
            product(program).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("served.yaml");
        std::fs::write(&file, deployment().to_string()).unwrap();
        let http = format!("{}:0", own_address());
        let mut service =
            Service::start(&file, &["--http", &http, "--grpc", "127.0.0.1:0"]).unwrap();
        let address = service.listening().unwrap();
        service.ready(LONG).unwrap();
        let mut plane = ControlPlane::start(&Options::default()).unwrap();
        plane.serve_crds(&root().join("crds")).unwrap();
        let rig = Self {
            plane,
            folder,
            address,
            _service: Mutex::new(service),
        };
        // no controller manager creates the service account
        rig.kubectl(&["create", "serviceaccount", "default"]);
        rig.put(&["create"], &deployment());
        rig.put(&["create"], &pod(address));
        rig.put(
            &[
                "apply",
                "--server-side",
                "--force-conflicts",
                "--subresource=status",
            ],
            &pod(address),
        );
        rig.reconcile(0);
        rig
    }

    fn kubectl(&self, words: &[&str]) -> String {
        let output = self.plane.kubectl(words).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn put(&self, words: &[&str], object: &Value) {
        let file = self.folder.path().join("object.json");
        std::fs::write(&file, object.to_string()).unwrap();
        self.kubectl(&[words, &["-f", file.to_str().unwrap()]].concat());
    }

    fn stored(&self) -> Value {
        serde_json::from_str(&self.kubectl(&["get", "infd", "fraud", "-o", "json"])).unwrap()
    }

    /// Applies the spec to the server if it is newer than generation `seen`, reports it in the
    /// status, and returns its generation.
    fn reconcile(&self, seen: i64) -> i64 {
        let stored = self.stored();
        let generation = stored["metadata"]["generation"].as_i64().unwrap();
        if generation == seen {
            return seen;
        }
        let mut object = deployment();
        object["spec"] = stored["spec"].clone();
        let new = self.folder.path().join("new.yaml");
        std::fs::write(&new, object.to_string()).unwrap();
        std::fs::rename(&new, self.folder.path().join("served.yaml")).unwrap();
        let (kind, reason) = match stored["spec"]["batching"]["maxDelay"] == REFUSED {
            true => ("Reconciling", "SettingsRefused"),
            false => ("Ready", "Serving"),
        };
        let condition = json!({"type": kind, "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": TIME});
        let status =
            json!({"status": {"observedGeneration": generation, "conditions": [condition]}});
        let patch = [
            "patch",
            "infd",
            "fraud",
            "--subresource=status",
            "--type=merge",
            "-p",
        ];
        self.kubectl(&[&patch[..], &[&status.to_string()]].concat());
        generation
    }

    async fn apply(&self, kubeconfig: &Path) -> Result<Apply, Failure> {
        let options = UserConnectOptions {
            kubeconfig: Some(kubeconfig.to_owned()),
            context: None,
            manager: "kubectl-albacore",
        };
        let job = JobClient {
            cluster: Cluster::connect_as_user(&options).await.unwrap(),
            key: ObjectKey::new("default", "albacore-tune-fraud"),
            subject: JobSubject::Tune {
                name: "fraud".to_owned(),
                node: None,
                options: Vec::new(),
                watch_time: None,
            },
        };
        Ok(Apply {
            read: job.deployment("fraud").await?,
            job,
            key: ObjectKey::new("default", "fraud"),
            // Windows of one second: the load restarts every second, late on a busy machine.
            time: Duration::from_secs(10),
        })
    }

    /// Writes the manifest that a search would have written.
    fn chosen(&self, delay: &str) -> PathBuf {
        let mut object = self.stored();
        object["metadata"] = deployment()["metadata"].clone();
        object["spec"]["batching"] = json!({"policy": "Timeout", "maxDelay": delay});
        let object: InferenceDeployment = serde_json::from_value(object).unwrap();
        let mut object = serde_json::to_value(object).unwrap();
        object.as_object_mut().unwrap().remove("status");
        let file = self.folder.path().join("fraud.yaml");
        std::fs::write(&file, object.to_string()).unwrap();
        file
    }

    /// Runs the load and the emulated controller until `is_over`.
    fn serve(&self, is_over: &AtomicBool, work: impl FnOnce()) {
        let body = std::fs::read(root().join("examples/fraud_request.json")).unwrap();
        let request = Request {
            address: self.address,
            path: "/v2/models/fraud/infer".to_owned(),
            headers: Vec::new(),
            body: body.into(),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let times = (0..RATE).map(|i| Duration::from_secs(1) * i / RATE);
                    let load = Load {
                        requests: vec![request.clone()],
                        shape: Shape::Open(times.collect()),
                        connections: 256,
                    };
                    drive(load).unwrap();
                }
            });
            scope.spawn(|| {
                let mut seen = 0;
                while !is_over.load(Ordering::Relaxed) {
                    seen = self.reconcile(seen);
                    std::thread::sleep(Duration::from_millis(100));
                }
            });
            let _over = SetOnDrop(is_over);
            work();
        });
    }
}

/// Ends the threads on drop, even if the test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(work)
}

fn assert_fails<T: std::fmt::Debug>(done: Result<T, Failure>, parts: &[&str]) {
    let failure = done.unwrap_err();
    for part in parts {
        assert!(
            failure.text().contains(part),
            "{part:?}: {}",
            failure.text()
        );
    }
}

#[test]
fn values_that_are_rejected_or_not_judged_are_reverted() {
    let rig = Rig::start();
    let admin = rig.plane.kubeconfig();
    let before = rig.stored();
    block_on(async {
        let idle = rig.apply(admin).await.unwrap().check().await;
        assert_fails(
            idle,
            &[
                "default/fraud: its pods answered 0 requests",
                "leave --apply out",
            ],
        );
        lacks_rights(&rig).await;
    });
    rig.serve(&AtomicBool::new(false), || {
        block_on(async {
            let apply = rig.apply(admin).await.unwrap();
            apply.check().await.unwrap();
            let refused = apply.run(&rig.chosen(REFUSED)).await;
            let ends = ["SettingsRefused: ; default/fraud has its previous values again"];
            assert_fails(refused, &ends);
            assert_eq!(rig.stored()["spec"], before["spec"]);
            is_interrupted(&rig).await;
            assert_eq!(rig.stored()["spec"], before["spec"]);
        });
    });
    let generation = rig.stored()["metadata"]["generation"].as_i64();
    assert_eq!(generation, Some(5), "twice there and back");
    block_on(is_edited(&rig));
}

/// A user who may only read deployments gets an error before the search starts.
async fn lacks_rights(rig: &Rig) {
    let reader = rig.plane.kubeconfig_of("reader", None).unwrap();
    let rights = ["--verb=get", "--resource=inferencedeployments"];
    rig.kubectl(&[&["create", "clusterrole", "reads"][..], &rights].concat());
    let bind = ["create", "clusterrolebinding", "reads"];
    rig.kubectl(&[&bind[..], &["--clusterrole=reads", "--user=reader"]].concat());
    // RBAC rules take effect a moment after they are stored
    // bound: the timeout of the test
    let apply = loop {
        match rig.apply(&reader).await {
            Ok(apply) => break apply,
            Err(failure) => assert!(failure.text().contains("HTTP 403"), "{failure:?}"),
        }
    };
    assert_fails(
        apply.check().await,
        &["HTTP 403", "patch inferencedeployments", "pods/proxy"],
    );
}

/// Interrupted by Ctrl-C as soon as the values are applied.
async fn is_interrupted(rig: &Rig) {
    let apply = rig.apply(rig.plane.kubeconfig()).await.unwrap();
    let file = rig.chosen(DELAY);
    let interrupt = async {
        while rig.stored()["spec"]["batching"]["policy"] != "Timeout" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let words = ["-INT", &std::process::id().to_string()];
        assert!(Command::new("kill").args(words).status().unwrap().success());
        std::future::pending::<()>().await;
    };
    tokio::select! {
        done = apply.run(&file) => {
            assert_fails(done, &["interrupted; default/fraud has its previous values again"]);
        }
        () = interrupt => {}
    }
}

/// Neither the new values nor the former values overwrite an edit of another user.
async fn is_edited(rig: &Rig) {
    let apply = rig.apply(rig.plane.kubeconfig()).await.unwrap();
    let patches = apply.patches(&rig.chosen(DELAY)).unwrap().unwrap();
    rig.kubectl(&["scale", "infd", "fraud", "--replicas=3"]);
    let applied = apply
        .patch_if_unedited(&apply.read, &patches.forward)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(applied.data["spec"]["batching"]["maxDelay"], DELAY);
    let edit = r#"{"spec":{"queue":{"maxRows":9999}}}"#;
    rig.kubectl(&["patch", "infd", "fraud", "--type=merge", "-p", edit]);
    let end = apply.revert(&applied, &patches.backward).await;
    assert!(
        end.contains("edited meanwhile and is left unchanged"),
        "{end}"
    );
    let again = apply
        .patch_if_unedited(&apply.read, &patches.forward)
        .await
        .unwrap();
    assert!(again.is_none());
    let spec = &rig.stored()["spec"];
    assert_eq!(spec["queue"]["maxRows"], 9999);
    assert_eq!(
        (&spec["replicas"], &spec["batching"]["maxDelay"]),
        (&json!(3), &json!(DELAY))
    );
}
