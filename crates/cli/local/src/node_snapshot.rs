//! The settings of the built-in server as a snapshot line for `albacore-params`.

use std::time::Duration;

use albacore_api::BuiltInServer;
use albacore_settings::agent_stream::{NodeSnapshot, Parameters, ServingPod};

/// Represents this machine as a node with the server as its only pod. `generation` counts the
/// changes; `report` is the period of the server's latency reports.
pub(crate) fn node_snapshot(
    server: &BuiltInServer,
    generation: u64,
    report: Option<Duration>,
) -> NodeSnapshot {
    let parameters = Parameters {
        report,
        ..Parameters::from_settings(&server.settings, generation)
    };
    let name = "albacore-run";
    let pod = ServingPod {
        address: None,
        namespace: name.to_owned(),
        name: name.to_owned(),
        uid: std::process::id().to_string(),
        deployment: name.to_owned(),
        generation,
        parameters,
    };
    NodeSnapshot {
        node: name.to_owned(),
        sequence: generation,
        pods: vec![pod],
        metrics: String::new(),
    }
}
