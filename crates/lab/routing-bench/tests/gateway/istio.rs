//! istiod, and Envoy as the sidecar of a client: both run on this machine.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use albacore_load::{Request, WireFormat};
use albacore_testbed::{Options, TestNetwork, program_folder};
use serde_json::{Value, json};

use crate::rig::{self, Rig};
use crate::{RATE, WIRES, send};

const NAMESPACE: &str = "istio-system";

/// The version that the sidecar announces; istiod omits what older versions do not support.
const VERSION: &str = "1.31.0";

const XDS: SocketAddr = local(15010);
const ADMIN: SocketAddr = local(15000);

/// Length of a load with one request.
const ONE_REQUEST: Duration = Duration::from_millis(1000 / RATE as u64);

/// Parts of Envoy's dump of its configuration.
const CLUSTERS: &str = "dynamic_active_clusters";
const ROUTES: &str = "dynamic_route_configs";

/// Port of istiod's validating webhook.
const WEBHOOK: u16 = 15017;

const WEBHOOK_NAME: &str = "istiod-default-validator";

/// Envoy is not Istio's build of it, so istiod must not configure the extensions of that build: the
/// exchange of metadata, and the filter that announces the protocol in TLS. Statistics are off
/// unless a mesh enables them.
const VARIABLES: [(&str, &str); 4] = [
    ("PILOT_ENABLE_METADATA_EXCHANGE", "false"),
    ("PILOT_ENABLE_ALPN_FILTER", "false"),
    ("POD_NAME", "istiod"),
    ("REVISION", "default"),
];

/// The sidecar has no agent, which would get certificates for it.
const MESH: &str = "enableAutoMtls: false\n";

const fn local(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// A request to the Service through the sidecar, which routes by the host.
pub(crate) fn request(wire: WireFormat) -> Request {
    let port = if wire == WireFormat::Grpc { 8081 } else { 8080 };
    let mut request = rig::request(wire, local(port));
    request
        .headers
        .push(("host".to_owned(), "fraud".to_owned()));
    request
}

/// Options of an API server that calls webhooks without kube-proxy.
pub(crate) fn api_server_options() -> Options {
    Options {
        api_server: vec!["--enable-aggregator-routing=true".to_owned()],
        ..Options::default()
    }
}

fn programs(script: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/routing");
    program_folder(&folder.join(script)).unwrap()
}

/// istiod and the sidecar, killed on drop.
pub(crate) struct Mesh {
    processes: Vec<Child>,
}

impl Mesh {
    /// Starts istiod, applies the example and starts the sidecar; waits until it routes requests.
    pub(crate) fn install(rig: &mut Rig) -> Self {
        let programs = programs("istio/programs.sh");
        rig.plane.serve_crds(&programs.join("crds.yaml")).unwrap();
        rig.kubectl(&["create", "namespace", NAMESPACE]);
        for object in [service(), endpoints(), webhook()] {
            rig.apply(&object);
        }
        let mut mesh = Self {
            processes: Vec::new(),
        };
        mesh.start_istiod(rig, &programs.join("pilot-discovery"));
        rig.wait_until("validation by istiod", || {
            // istiod sets this once the API server has rejected an invalid object for it.
            let webhook = rig.get("validatingwebhookconfiguration", WEBHOOK_NAME);
            webhook["webhooks"][0]["failurePolicy"] == "Fail"
        });
        rig.apply_example("istio", "");
        mesh.start_sidecar(rig);
        rig.wait_until("a route", || {
            let is_routed = |wire| send(request(wire), ONE_REQUEST)[0].status == 200;
            WIRES.into_iter().all(is_routed)
        });
        // A sidecar that connects early first gets the configuration without the example.
        rig.wait_until("the example", || {
            let (clusters, routes) = (dump(CLUSTERS), dump(ROUTES));
            clusters.contains("/destination-rule/fraud")
                && routes.contains("/virtual-service/fraud")
        });
        mesh
    }

    fn start_istiod(&mut self, rig: &mut Rig, program: &Path) {
        let mesh = rig.folder().join("mesh.yaml");
        std::fs::write(&mesh, MESH).unwrap();
        let mut command = Command::new(program);
        command
            // Its default port of HTTP is that of the Service.
            .args(["discovery", "--httpAddr", "127.0.0.1:15080", "--grpcAddr"])
            .arg(XDS.to_string())
            .arg("--kubeconfig")
            .arg(rig.plane.kubeconfig())
            .arg("--meshConfig")
            .arg(mesh)
            .envs(VARIABLES)
            .current_dir(rig.folder());
        self.start(rig, command, "istiod.log");
    }

    fn start_sidecar(&mut self, rig: &mut Rig) {
        let file = rig.folder().join("sidecar.json");
        std::fs::write(&file, bootstrap().to_string()).unwrap();
        let mut command = Command::new(programs("programs.sh").join("envoy"));
        command
            .args(["--concurrency", "1", "--use-dynamic-base-id"])
            .args(["--log-level", "warning", "--config-path"])
            .arg(file);
        self.start(rig, command, "sidecar.log");
    }

    fn start(&mut self, rig: &mut Rig, mut command: Command, log: &str) {
        let log = rig.folder().join(log);
        let output = std::fs::File::create(&log).unwrap();
        rig.logs.push(log);
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        self.processes.push(command.spawn().unwrap());
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// The Service of istiod, which runs outside of a pod.
fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "istiod", "namespace": NAMESPACE},
        "spec": {"ports": [{"name": "https-webhook", "port": 443, "targetPort": WEBHOOK}]},
    })
}

fn endpoints() -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "istiod", "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": "istiod"},
        },
        "addressType": "IPv4",
        "ports": [{"name": "https-webhook", "protocol": "TCP", "port": WEBHOOK}],
        "endpoints": [{
            "addresses": [TestNetwork::ADDRESS.to_string()], "conditions": {"ready": true},
        }],
    })
}

/// What validates the objects of Istio, as in an installation.
fn webhook() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": WEBHOOK_NAME, "labels": {"istio.io/rev": "default"}},
        "webhooks": [{
            "name": "validation.istio.io",
            "clientConfig": {
                "service": {"name": "istiod", "namespace": NAMESPACE, "path": "/validate"},
            },
            "rules": [{
                "operations": ["CREATE", "UPDATE"],
                "apiGroups": ["networking.istio.io"], "apiVersions": ["*"], "resources": ["*"],
            }],
            // Until istiod changes it.
            "failurePolicy": "Ignore", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    })
}

/// The configuration of the sidecar of a client in the namespace `default`. Without interception it
/// listens on loopback at the ports of the Services.
fn bootstrap() -> Value {
    let address = |address: SocketAddr| {
        let (ip, port) = (address.ip().to_string(), address.port());
        json!({"socket_address": {"address": ip, "port_value": port}})
    };
    let ads = json!({"ads": {}, "resource_api_version": "V3"});
    let http2 = json!({
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    });
    json!({
        "node": {
            "id": "sidecar~10.123.1.9~client.default~default.svc.cluster.local",
            "cluster": "client.default",
            "metadata": {
                "NAMESPACE": "default", "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": VERSION,
                "INSTANCE_IPS": "10.123.1.9", "INTERCEPTION_MODE": "NONE",
            },
        },
        "admin": {"address": address(ADMIN)},
        "dynamic_resources": {
            "lds_config": ads, "cds_config": ads,
            "ads_config": {
                "api_type": "DELTA_GRPC", "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
            },
        },
        "static_resources": {"clusters": [{
            "name": "xds-grpc", "type": "STATIC",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2,
            },
            "load_assignment": {"cluster_name": "xds-grpc", "endpoints": [{
                "lb_endpoints": [{"endpoint": {"address": address(XDS)}}],
            }]},
        }]},
    })
}

/// A part of the configuration of the sidecar, in JSON.
fn dump(part: &str) -> String {
    let path = format!("/config_dump?resource={part}");
    let (status, body) = albacore_load::get(ADMIN, &path).unwrap();
    assert_eq!(status, 200);
    String::from_utf8(body).unwrap()
}

/// A resource in a part of the configuration.
fn resource(part: &str, field: &str, name: &str) -> Value {
    let dump: Value = serde_json::from_str(&dump(part)).unwrap();
    let mut resources = dump["configs"].as_array().unwrap().iter();
    let resource = resources.find(|resource| resource[field]["name"] == name);
    resource.expect(name)[field].clone()
}

/// Asserts that `value` has the fields and items of `expected`, and possibly others.
fn assert_contains(value: &Value, expected: &Value) {
    match expected {
        Value::Object(fields) => {
            for (name, expected) in fields {
                assert_contains(&value[name], expected);
            }
        }
        Value::Array(items) => {
            for (index, expected) in items.iter().enumerate() {
                assert_contains(&value[index], expected);
            }
        }
        _ => assert_eq!(value, expected, "{expected} is not in the configuration"),
    }
}

/// Asserts that the settings of the example are in the configuration of the sidecar.
pub(crate) fn assert_example_is_in_force() {
    let budget = json!({"budget_percent": {"value": 20}, "min_retry_concurrency": 10});
    let cluster = json!({
        "lb_policy": "LEAST_REQUEST",
        "circuit_breakers": {"thresholds": [{"retry_budget": budget}]},
        "outlier_detection": {
            "split_external_local_origin_errors": true,
            "consecutive_local_origin_failure": 2,
            "enforcing_consecutive_local_origin_failure": 100,
            "enforcing_consecutive_5xx": 0,
            "enforcing_consecutive_gateway_failure": 0,
            "interval": "1s", "base_ejection_time": "5s", "max_ejection_percent": 50,
        },
    });
    let retries = json!({
        "retry_on": "connect-failure,refused-stream,reset,retriable-status-codes,unavailable,\
                     resource-exhausted",
        "retriable_status_codes": [429, 503],
        "num_retries": 1,
        "retry_host_predicate": [{"name": "envoy.retry_host_predicates.previous_hosts"}],
        "retry_back_off": {"base_interval": "0.001s"},
    });
    for port in ["8080", "8081"] {
        let name = format!("outbound|{port}||fraud.default.svc.cluster.local");
        let found = resource(CLUSTERS, "cluster", &name);
        assert_contains(&found, &cluster);
        let routes = resource(ROUTES, "route_config", port);
        let name = format!("fraud.default.svc.cluster.local:{port}");
        let mut hosts = routes["virtual_hosts"].as_array().unwrap().iter();
        let host = hosts.find(|host| host["name"] == name).unwrap();
        assert_contains(&host["routes"][0]["route"]["retry_policy"], &retries);
    }
}
