//! Envoy Gateway, which runs Envoy on this machine: resources come from the API server.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use albacore_testbed::{TestNetwork, program_folder};
use serde_json::{Value, json};

use crate::rig::Rig;

/// The listener of the Gateway; Envoy Gateway shifts port 80 only in clusters.
pub(crate) const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(TestNetwork::ADDRESS), 80);

/// Namespace of its own objects.
const NAMESPACE: &str = "envoy-gateway-system";

/// Name of its GatewayClass.
const CLASS: &str = "envoy-gateway";

/// Version of Envoy that it asks for; the program is the one of `tests/routing`.
const ENVOY_VERSION: &str = "1.39.0";

const STOP_TIME_MAX: Duration = Duration::from_secs(10);

/// A running Envoy Gateway, stopped on drop.
pub(crate) struct EnvoyGateway {
    child: Child,
    log: PathBuf,
}

fn script(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../tests/routing")
        .join(path)
}

/// A folder with the program `envoy-gateway` and the folder `crds`.
fn programs() -> PathBuf {
    program_folder(&script("gateway/programs.sh")).unwrap()
}

impl EnvoyGateway {
    /// Starts it with a folder of the examples, and waits until it routes requests.
    pub(crate) fn install(rig: &mut Rig, example: &str) -> Self {
        let crds = programs().join("crds");
        let gateway_api = crds.join("gatewayapi-crds.yaml");
        rig.plane.serve_crds(&gateway_api).unwrap();
        rig.plane.serve_crds(&crds.join("generated")).unwrap();
        rig.kubectl(&["create", "namespace", NAMESPACE]);
        let gateway = Self::start(rig.folder(), rig.plane.kubeconfig());
        rig.logs.push(gateway.log.clone());
        rig.apply(&json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": CLASS},
            "spec": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"},
        }));
        rig.apply_example(example, CLASS);
        rig.wait_until("Gateway", || {
            // The Gateway as a whole is not programmed: without a Service it has no address.
            let status = &rig.get("gateway", "fraud")["status"];
            is_true(&status["conditions"], "Accepted")
                && is_true(&status["listeners"][0]["conditions"], "Programmed")
        });
        for kind in ["HTTPRoute", "GRPCRoute"] {
            rig.wait_until(kind, || {
                let conditions = &rig.get(kind, "fraud")["status"]["parents"][0]["conditions"];
                is_true(conditions, "Accepted") && is_true(conditions, "ResolvedRefs")
            });
        }
        rig.wait_until("a route", || {
            let ready = albacore_load::get(ADDRESS, "/v2/models/model");
            ready.is_ok_and(|(status, _)| status == 200)
        });
        gateway
    }

    /// Starts it with certificates for its xDS server in files, and for its other parts in Secrets.
    /// [`NAMESPACE`] must exist.
    fn start(folder: &Path, kubeconfig: &Path) -> Self {
        let data = folder.join("data");
        let envoy = data.join(format!("envoy-versions/{ENVOY_VERSION}/bin"));
        std::fs::create_dir_all(&envoy).unwrap();
        let program = program_folder(&script("programs.sh")).unwrap();
        std::os::unix::fs::symlink(program.join("envoy"), envoy.join("envoy")).unwrap();
        let configuration = folder.join("envoy-gateway.yaml");
        std::fs::write(&configuration, configuration_in(folder)).unwrap();
        let log = folder.join("envoy-gateway.log");
        let output = std::fs::File::create(&log).unwrap();
        let program = programs().join("envoy-gateway");
        let certificates = folder.join("config");
        let local = ["--local", "--config-home", certificates.to_str().unwrap()];
        for words in [&local[..], &["--disable-topology-injector"]] {
            let made = Command::new(&program)
                .arg("certgen")
                .args(words)
                .env("KUBECONFIG", kubeconfig)
                .output()
                .unwrap();
            assert!(made.status.success(), "{made:?}");
        }
        let child = Command::new(script("gateway/run.sh"))
            .arg(certificates.join("certs/envoy-gateway"))
            .arg(&program)
            .args(["server", "--config-path"])
            .arg(&configuration)
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", folder)
            .env("ENVOY_GATEWAY_NAMESPACE", NAMESPACE)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Self { child, log }
    }
}

/// Waits until the BackendTrafficPolicies of the example are accepted.
pub(crate) fn wait_until_policies_are_accepted(rig: &Rig) {
    for name in ["fraud", "fraud-grpc"] {
        rig.wait_until(name, || {
            let policy = rig.get("backendtrafficpolicy", name);
            is_true(&policy["status"]["ancestors"][0]["conditions"], "Accepted")
        });
    }
}

fn is_true(conditions: &Value, kind: &str) -> bool {
    let mut conditions = conditions.as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn configuration_in(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {{controllerName: gateway.envoyproxy.io/gatewayclass-controller}}
provider:
  type: Custom
  custom:
    resource:
      type: Kubernetes
      kubernetes:
        leaderElection: {{disable: true}}
    infrastructure:
      type: Host
      host:
        configHome: {folder}/config
        dataHome: {folder}/data
        stateHome: {folder}/state
        runtimeDir: {folder}/runtime
"
    )
}

impl Drop for EnvoyGateway {
    fn drop(&mut self) {
        // It stops Envoy before it exits.
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let start = Instant::now();
        // bound: STOP_TIME_MAX
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < STOP_TIME_MAX {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
