//! Configurations of `manifests/examples/routing`, with the addresses and policies of a run.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::arms::{Policy, Weights};
use crate::error::RoutingError;

const ENVOY: &str = include_str!("../../../../manifests/examples/routing/envoy/configmap.yaml");
const GRPC: &str = include_str!("../../../../manifests/examples/routing/grpc/configmap.yaml");

/// Addresses on which Envoy listens in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EnvoyPorts {
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
}

/// Value of a key of a ConfigMap.
fn config_map(text: &str, key: &str) -> Result<String, RoutingError> {
    let invalid = |what: &str| RoutingError::Failed(format!("the ConfigMap with {key}: {what}"));
    let object: Value = serde_saphyr::from_str(text).map_err(|e| invalid(&e.to_string()))?;
    let data = object["data"][key].as_str();
    data.map(str::to_owned)
        .ok_or_else(|| invalid("has no such key"))
}

fn socket(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}

/// Envoy's configuration in front of `servers`; `None` keeps the policy of the manifest.
pub(crate) fn envoy(
    ports: EnvoyPorts,
    servers: &[SocketAddr],
    policy: Option<Policy>,
) -> Result<Value, RoutingError> {
    let text = config_map(ENVOY, "envoy.yaml")?;
    let invalid = |e: serde_saphyr::Error| RoutingError::Failed(format!("envoy.yaml: {e}"));
    let mut configuration: Value = serde_saphyr::from_str(&text).map_err(invalid)?;
    configuration["admin"]["address"] = socket(ports.admin);
    let resources = &mut configuration["static_resources"];
    let listener = &mut resources["listeners"][0];
    listener["address"] = socket(ports.http);
    if policy.is_some_and(|policy| !policy.has_retries()) {
        let manager = &mut listener["filter_chains"][0]["filters"][0]["typed_config"];
        let host = &mut manager["route_config"]["virtual_hosts"][0];
        remove(&mut host["routes"][0]["route"], "retry_policy")?;
    }
    let cluster = &mut resources["clusters"][0];
    let endpoints = servers
        .iter()
        .map(|&server| json!({ "endpoint": { "address": socket(server) } }));
    cluster["load_assignment"]["endpoints"][0]["lb_endpoints"] = endpoints.collect();
    if let Some(policy) = policy {
        cluster["load_balancing_policy"] = envoy_policy(policy);
    }
    Ok(configuration)
}

fn remove(object: &mut Value, key: &str) -> Result<(), RoutingError> {
    let removed = object.as_object_mut().and_then(|fields| fields.remove(key));
    let missing = || RoutingError::Failed(format!("the manifest has no {key}"));
    removed.map(drop).ok_or_else(missing)
}

fn envoy_policy(policy: Policy) -> Value {
    let (name, message) = match policy {
        Policy::Unlimited | Policy::Unretried | Policy::RoundRobin => ("round_robin", "RoundRobin"),
        Policy::LeastRequest => ("least_request", "LeastRequest"),
        Policy::Weighted(_) => (
            "client_side_weighted_round_robin",
            "ClientSideWeightedRoundRobin",
        ),
    };
    let of = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let mut options = json!({ "@type": format!("{of}.{name}.v3.{message}") });
    if let Policy::Weighted(weights) = policy {
        options["blackout_period"] = seconds(weights.blackout);
        options["weight_update_period"] = seconds(weights.update);
    }
    let name = format!("envoy.load_balancing_policies.{name}");
    json!({ "policies": [{ "typed_extension_config": { "name": name, "typed_config": options } }] })
}

fn seconds(time: Duration) -> Value {
    format!("{}s", time.as_secs_f64()).into()
}

/// Service config of clients; `None` keeps the policy of the manifest.
pub(crate) fn service_config(policy: Option<Policy>) -> Result<Value, RoutingError> {
    let text = config_map(GRPC, "service-config.json")?;
    let invalid = |e: serde_json::Error| RoutingError::Failed(format!("service-config.json: {e}"));
    let mut config: Value = serde_json::from_str(&text).map_err(invalid)?;
    if policy.is_some_and(|policy| !policy.has_retries()) {
        remove(&mut config["methodConfig"][0], "retryPolicy")?;
    }
    if let Some(policy) = policy {
        config["loadBalancingConfig"] = json!([grpc_policy(policy)]);
    }
    Ok(config)
}

fn grpc_policy(policy: Policy) -> Value {
    match policy {
        Policy::Unlimited | Policy::Unretried | Policy::RoundRobin => {
            json!({ "round_robin": {} })
        }
        Policy::LeastRequest => json!({ "least_request_experimental": {} }),
        Policy::Weighted(Weights {
            blackout,
            update,
            is_out_of_band,
        }) => json!({ "weighted_round_robin": {
            "blackoutPeriod": seconds(blackout),
            "weightUpdatePeriod": seconds(update),
            "enableOobLoadReport": is_out_of_band,
            "oobReportingPeriod": seconds(update),
        }}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_equal_the_arm_with_fast_weights() {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let ports = EnvoyPorts {
            http: address,
            admin: address,
        };
        let fast = Some(Policy::Weighted(Weights::FAST));
        assert_eq!(
            envoy(ports, &[], None).unwrap(),
            envoy(ports, &[], fast).unwrap()
        );
        let unretried = Some(Policy::Unretried);
        let text = envoy(ports, &[], unretried).unwrap().to_string();
        assert!(!text.contains("retry_on"), "{text}");
        let text = service_config(unretried).unwrap().to_string();
        assert!(!text.contains("retryPolicy"), "{text}");
        let manifest = service_config(None).unwrap();
        let policy = &manifest["loadBalancingConfig"][0]["weighted_round_robin"];
        let fast = service_config(fast).unwrap();
        let fast = &fast["loadBalancingConfig"][0]["weighted_round_robin"];
        for key in ["blackoutPeriod", "weightUpdatePeriod"] {
            assert_eq!(policy[key], fast[key]);
        }
    }
}
