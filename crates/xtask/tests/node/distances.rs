//! Measured distances in a ConfigMap: the kubelet mounts and updates it, and the agent reads it
//! without a restart and reports why it ignores invalid ones.

use std::fs;

use albacore_os::{HostRoot, read_topology};

use super::rig::{AGENT, Rig};

const CONFIG_MAP: &str = "albacore-distances";

pub(crate) fn are_read_from_a_config_map(rig: &mut Rig) {
    let system = HostRoot::live().sys.join("devices/system");
    let hash = read_topology(&system).unwrap().hash_hex();
    let agent = rig.agent();
    put(rig, "create", &hash, "of-another-machine");
    rig.wait_until("the file of another machine is refused", || {
        (ignored(rig).as_str() == "DistancesIgnored").then_some(())
    });
    put(rig, "replace", &hash, &hash);
    rig.wait_until("the file of this machine is used", || {
        ignored(rig).is_empty().then_some(())
    });
    rig.kubectl(&["delete", "configmap", CONFIG_MAP, "--namespace", AGENT]);
    assert_eq!(rig.agent(), agent, "nothing was started again");
}

/// Writes the ConfigMap with one file named by the hash of this machine, and makes the kubelet sync
/// it.
fn put(rig: &Rig, verb: &str, hash: &str, topology: &str) {
    let levels =
        r#"{"cpu": 1, "l1": 4, "l2": 10, "l3": 60, "numa": 110, "package": 220, "machine": 220}"#;
    let file = format!(r#"{{"topology": "{topology}", "distances": {levels}, "matrix": null}}"#);
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": AGENT},
        "data": {format!("{hash}.json"): file},
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("distances.json");
    fs::write(&path, object.to_string()).unwrap();
    rig.kubectl(&[verb, "-f", path.to_str().unwrap()]);
    // An edit of the pod makes the kubelet update its volumes now instead of within a minute.
    let note = format!("albacore.dev/test={verb}");
    let all = ["--namespace", AGENT, "--all", "--overwrite", &note];
    rig.kubectl(&[&["annotate", "pods"], &all[..]].concat());
}

/// Reason of the condition Degraded of the node's agent; empty if it is not degraded.
fn ignored(rig: &Rig) -> String {
    let path = r#"jsonpath={.items[*].status.conditions[?(@.type=="Degraded")].reason}"#;
    rig.kubectl(&["get", "nodeplacements", "-o", path])
        .trim()
        .to_owned()
}
