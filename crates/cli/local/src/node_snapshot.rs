//! The settings of the built-in server as a line for `albacore-params`.

use std::time::Duration;

use albacore_api::BuiltInServer;
use albacore_settings::agent_stream::{NodeSnapshot, Parameters, ServingPod};

/// This machine as a node, the server as its one pod. `generation` counts the changes; `report` is
/// how often the server reports its latency.
pub(crate) fn node_snapshot(
    server: &BuiltInServer,
    generation: u64,
    report: Option<Duration>,
) -> NodeSnapshot {
    let parameters = Parameters {
        report,
        ..Parameters::of_settings(&server.settings, generation)
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
