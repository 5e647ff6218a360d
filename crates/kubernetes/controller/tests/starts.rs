//! Tests of startup and shutdown: as a pod with its own service account in an IPv6 cluster, in a
//! cluster that does not serve all kinds, and with events that were just recorded.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod rig;

use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use albacore_testbed::{Options, product};
use serde_json::{Value, json};

use rig::{CHILDREN, Rig, deployment, wait, wait_or};

const LOOPBACK: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Mounts $1 like a kubelet, in a separate mount namespace, and executes the remaining arguments.
const AS_A_POD: &str = "set -e; mount -t tmpfs none /run
    mkdir -p /run/secrets/kubernetes.io/serviceaccount
    mount --bind \"$1\" /run/secrets/kubernetes.io/serviceaccount
    shift; exec \"$@\"";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// A server process that is killed on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server as in a pod whose only address is [`LOOPBACK`], with the settings of the
/// deployment.
fn serve(rig: &Rig, folder: &Path) -> Server {
    let map = rig.get("configmap", "fraud").unwrap();
    let settings = folder.join("settings.yaml");
    let text = map["data"]["settings.yaml"].as_str().unwrap();
    std::fs::write(&settings, text).unwrap();
    let child = Command::new(product("albacore-server").unwrap())
        .arg("--settings")
        .arg(settings)
        .args(["--http", "[::1]:8080", "--grpc", "[::1]:8081"])
        .env_clear()
        .env("ALBACORE_WORKERS", "2")
        .env("ALBACORE_THREADS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    Server(child.unwrap())
}

#[test]
fn a_pod_of_an_ipv6_cluster_needs_its_service_account_alone() {
    let rig = Rig::with(Options {
        controller_manager: true,
        api_server: vec!["--bind-address=::".to_owned()],
        ..Options::default()
    });
    // Installs the service account and its permissions from the manifests; the test plays the pod.
    for name in ["crds.yaml", "install.yaml"] {
        let file = root().join("manifests").join(name);
        rig.kubectl(&["apply", "--server-side", "-f", file.to_str().unwrap()]);
    }
    let deployed = ["scale", "deployment", "albacore-controller"];
    rig.kubectl(&[&deployed[..], &["--replicas=0", "-n", "albacore-system"]].concat());
    let mount = rig
        .plane
        .mount_of_account("albacore-system", "albacore-controller")
        .unwrap();
    let port = rig.plane.address().rsplit(':').next().unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", AS_A_POD, "sh"])
        .arg(&mount)
        .arg(env!("CARGO_BIN_EXE_albacore-controller"))
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        // The environment that a kubelet provides; no user configuration is read.
        .env("KUBERNETES_SERVICE_HOST", "::1")
        .env("KUBERNETES_SERVICE_PORT", port)
        .env("KUBECONFIG", "/nowhere")
        .env("HTTPS_PROXY", "http://127.0.0.1:1");
    let controller = rig.launch_command(command, LOOPBACK).wait_until_ready();

    let folder = tempfile::tempdir().unwrap();
    let model = root().join("examples/fraud.ubj").canonicalize().unwrap();
    let models = json!([{"name": "m", "uri": format!("file://{}", model.display())}]);
    let spec = json!({"replicas": 1, "threads": 1, "models": models});
    rig.apply(&[deployment("fraud", &spec)]);
    wait("there is a pod", || {
        rig.list("pods", "albacore.dev/deployment=fraud").len() == 1
    });
    let _server = serve(&rig, folder.path());
    rig.simulate_kubelet("fraud", &["::1"]);
    rig.wait_for("fraud", "ModelLoaded", "True/Loaded");
    rig.wait_for("fraud", "Ready", "True/Serving");
    let lease = ["get", "lease", "albacore-controller", "-o", "name"];
    rig.kubectl(&[&lease[..], &["-n", "albacore-system"]].concat());
    assert_eq!(controller.stop().code(), Some(0));
}

#[test]
fn a_kind_that_is_not_installed_is_named_and_waited_for() {
    let rig = Rig::with(Options::default());
    let crds = root().join("crds");
    let rig = rig.serve(&crds.join("inferencedeployments.albacore.dev.yaml"));
    let controller = rig.launch(&[]);
    let words = "the API server has no nodeplacements.albacore.dev/v1alpha1: install the custom \
                 resource definition";
    let gate = format!("[-] watch placements: waits for the first list ({words})");
    wait_or(
        || controller.http("/readyz").contains(&gate),
        || controller.http("/readyz"),
    );
    assert!(controller.http("/readyz").starts_with("HTTP/1.1 503"));
    assert!(controller.http("/livez").starts_with("HTTP/1.1 200"));
    assert!(controller.log().contains(words), "{}", controller.log());
    // Nothing is written before every kind was listed.
    rig.apply(&[deployment("early", &json!({}))]);
    // Long enough for a controller that does not wait, which needs a second.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(rig.writes(), [""; 0]);
    let rig = rig.serve(&crds);
    let _controller = controller.wait_until_ready();
    wait("it is built", || {
        rig.list(CHILDREN, "albacore.dev/deployment=early").len() == 7
    });
}

#[test]
fn events_of_the_last_moment_are_written() {
    let rig = Rig::start(false);
    let controller = rig.controller(&[]);
    let names: Vec<String> = (0..40).map(|n| format!("last-{n}")).collect();
    let deployments: Vec<Value> = names.iter().map(|n| deployment(n, &json!({}))).collect();
    rig.apply(&deployments);
    let built = || rig.list("deployments", "albacore.dev/deployment").len();
    wait("some are built", || built() > 10);
    assert_eq!(controller.stop().code(), Some(0));
    let events = rig.kubectl(&["get", "events", "-o", "json"]);
    let events: Value = serde_json::from_str(&events).unwrap();
    let events = events["items"].as_array().unwrap();
    let made = events.iter().filter(|e| e["reason"] == "Created");
    let reported: Vec<&str> = made
        .map(|e| e["involvedObject"]["name"].as_str().unwrap())
        .collect();
    let left = rig.list("deployments", "albacore.dev/deployment");
    for deployment in left {
        let name = deployment["metadata"]["name"].as_str().unwrap();
        assert!(
            reported.contains(&name),
            "{name} was made and not reported: {reported:?}"
        );
    }
}
