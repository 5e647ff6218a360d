//! Network access to the pods: Services, NetworkPolicy and, with the Prometheus operator,
//! ServiceMonitor.

use serde_json::{Value, json};

use super::selector;
use crate::limits::METRICS_SECONDS;
use crate::names::{GRPC, GRPC_PORT, HEADLESS_LABEL, HTTP, HTTP_PORT, SERVER};
use crate::validate::ValidDeployment;

/// The container ports that the ports of the Service target, by name or number.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Ports {
    /// Target of [`HTTP_PORT`].
    pub(super) http: Option<Value>,
    /// Target of [`GRPC_PORT`].
    pub(super) grpc: Option<Value>,
}

/// The ports of the server in the merged template `pod`: those named `http` and `grpc`. Without a
/// port named `http`, the first port with another name than `grpc`.
pub(super) fn ports(valid: &ValidDeployment, pod: &Value) -> Ports {
    if valid.spec.is_built_in() {
        return Ports {
            http: Some(HTTP.into()),
            grpc: Some(GRPC.into()),
        };
    }
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut servers = containers.filter(|c| c["name"] == SERVER);
    let ports = servers.next().and_then(|c| c["ports"].as_array());
    let tcp = || {
        let ports = ports.into_iter().flatten();
        ports.filter(|p| p["protocol"].is_null() || p["protocol"] == "TCP")
    };
    let named = |name: &str| tcp().find(|p| p["name"] == name);
    let first = || tcp().find(|p| p["name"] != GRPC);
    Ports {
        http: named(HTTP)
            .or_else(first)
            .map(|p| p["containerPort"].clone()),
        grpc: named(GRPC).map(|p| p["containerPort"].clone()),
    }
}

/// Service for the pods that `traffic` selects. `None` for a server without named ports, which
/// could not receive requests.
pub(super) fn service(ports: &Ports, traffic: &Value) -> Option<Value> {
    let served = service_ports(ports, |default, _| Some(default.into()));
    (!served.is_empty())
        .then(|| json!({"spec": {"type": "ClusterIP", "selector": traffic, "ports": served}}))
}

/// Headless Service for the pods that `traffic` selects. Its ports are the container ports, because
/// clients connect to the pods directly and no proxy translates ports.
pub(super) fn pods_service(ports: &Ports, pod: &Value, traffic: &Value) -> Option<Value> {
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let served = containers.filter(|container| container["name"] == SERVER);
    let known: Vec<&Value> = served
        .filter_map(|container| container["ports"].as_array())
        .flatten()
        .collect();
    let number = |_, target: &Value| match target.is_number() {
        true => Some(target.clone()),
        false => {
            let named = known.iter().find(|port| port["name"] == *target)?;
            Some(named["containerPort"].clone())
        }
    };
    let served = service_ports(ports, number);
    (!served.is_empty()).then(|| {
        json!({"spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": false,
            "selector": traffic,
            "ports": served,
        }})
    })
}

/// The ports of a Service. `number` computes a port's number from the built-in server's port and
/// the container port.
fn service_ports(ports: &Ports, number: impl Fn(u16, &Value) -> Option<Value>) -> Vec<Value> {
    let both = [
        (HTTP, HTTP_PORT, "http", &ports.http),
        (GRPC, GRPC_PORT, "kubernetes.io/h2c", &ports.grpc),
    ];
    let served = both
        .into_iter()
        .filter_map(|(name, default, protocol, target)| {
            let target = target.as_ref()?;
            Some(json!({
                "name": name, "port": number(default, target)?, "protocol": "TCP",
                "targetPort": target, "appProtocol": protocol,
            }))
        });
    served.collect()
}

/// Allows traffic from everywhere to the declared container ports, and to no other port. `None` if
/// the server's container declares no ports, because the ports on which it listens are then
/// unknown.
pub(super) fn network_policy(valid: &ValidDeployment, pod: &Value) -> Option<Value> {
    let containers = pod["spec"]["containers"].as_array()?;
    let mut open = Vec::new();
    for container in containers {
        let ports = container["ports"].as_array();
        if container["name"] == SERVER && ports.is_none_or(Vec::is_empty) {
            return None;
        }
        for port in ports.into_iter().flatten() {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            open.push(json!({"port": port["containerPort"], "protocol": protocol}));
        }
    }
    Some(json!({"spec": {
        "podSelector": {"matchLabels": selector(valid)},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": open}],
    }}))
}

/// `None` for a user's own server, which may not have metrics.
pub(super) fn service_monitor(valid: &ValidDeployment) -> Option<Value> {
    valid.spec.is_built_in().then(|| {
        json!({"spec": {
            "selector": {
                "matchLabels": selector(valid),
                // Otherwise Prometheus would scrape each pod once for each of the two Services.
                "matchExpressions": [{"key": HEADLESS_LABEL, "operator": "DoesNotExist"}],
            },
            "endpoints": [{
                "port": HTTP, "path": "/metrics", "interval": format!("{METRICS_SECONDS}s"),
            }],
        }})
    })
}
