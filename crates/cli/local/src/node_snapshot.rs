//! The settings of the built-in server as a line for `albacore-params`.

use albacore_api::BuiltInServer;
use albacore_settings::agent_stream::{NodeSnapshot, Parameters, ServingPod};

/// This machine as a node, the server as its one pod. `generation` counts the edits of the file.
pub(crate) fn node_snapshot(server: &BuiltInServer, generation: u64) -> NodeSnapshot {
    let parameters = Parameters::of_settings(&server.settings, generation);
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
