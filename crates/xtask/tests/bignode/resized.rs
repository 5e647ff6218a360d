//! In-place resize (KEP-1287) under the static CPU manager. A pod on shared CPUs follows its quota;
//! the kubelet rejects a resize of a pod with exclusive CPUs, whose placement does not change.

use serde_json::Value;

use crate::release::{json, placement, uid, wait_until_placed};
use crate::rig::Rig;
use crate::threads::{Cpus, list, read_masks};

/// Name of the deployment's only pod.
fn pod(rig: &Rig) -> String {
    let label = "albacore.dev/deployment=fraud";
    let pods = json(rig, &["get", "pods", "-l", label, "-o", "json"]);
    pods["items"][0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn resize(rig: &Rig, pod: &str, resources: &str) {
    let patch = format!(
        r#"{{"spec": {{"containers": [{{"name": "server", "resources": {resources}}}]}}}}"#
    );
    let words = ["patch", "pod", pod, "--subresource=resize", "--patch"];
    rig.kubectl(&[&words[..], &[&patch]].concat());
}

/// With a quota of two CPUs one thread per worker is placed, with four CPUs all are.
pub(crate) fn a_quota_in_the_shared_cpus(rig: &Rig, cpus: &Cpus) {
    let (name, before) = (pod(rig), uid(rig));
    for (limit, threads) in [("2", Value::from(1)), ("4", Value::Null)] {
        let limits = format!(r#"{{"limits": {{"cpu": "{limit}"}}}}"#);
        resize(rig, &name, &limits);
        rig.wait_until(&format!("placed within {limit} cpus"), || {
            (placement(rig).1["quotaThreads"] == threads).then_some(())
        });
    }
    wait_until_placed(rig, cpus, "0-7");
    assert_eq!(uid(rig), before, "no pod was started again");
}

/// The deployment is given four exclusive CPUs, in a new pod.
pub(crate) fn exclusive_cpus_keep_their_size(rig: &Rig, cpus: &Cpus) {
    let edit = |resources: &str| {
        let before = uid(rig);
        let patch = format!(r#"{{"spec": {{"resources": {resources}}}}}"#);
        rig.kubectl(&["patch", "infd/fraud", "--type=merge", "--patch", &patch]);
        rig.wait_until("another pod, placed", || {
            let uid = rig.uid("default", "albacore.dev/deployment=fraud")?;
            let seen = (uid != before).then(|| read_masks(&rig.node, &uid))?;
            cpus.is_placed(&seen).then_some(seen)
        })
    };
    let whole = r#"{"requests": {"cpu": "4", "memory": "256Mi"}, "limits": {"cpu": "4", "memory": "256Mi"}}"#;
    let exclusive = edit(whole);
    println!("{exclusive:?}");
    assert_eq!(list(&exclusive.cpuset).len(), 4, "{exclusive:?}");

    let name = pod(rig);
    let less = r#"{"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}"#;
    resize(rig, &name, less);
    let refusal = rig.wait_until("the kubelet's refusal", || {
        let pod = json(rig, &["get", "pod", &name, "-o", "json"]);
        let conditions = pod["status"]["conditions"].as_array()?;
        let found = conditions.iter().find(|c| c["type"] == "PodResizePending");
        found.cloned()
    });
    println!("{} {}", refusal["reason"], refusal["message"]);
    assert_eq!(refusal["reason"], "Infeasible", "{refusal}");
    let after = read_masks(&rig.node, &uid(rig));
    assert_eq!(
        (&after.cpuset, &after.masks),
        (&exclusive.cpuset, &exclusive.masks)
    );
    assert_eq!(placement(rig).1["quotaThreads"], Value::Null);

    edit(
        r#"{"requests": {"cpu": "100m", "memory": null}, "limits": {"cpu": "4", "memory": null}}"#,
    );
    wait_until_placed(rig, cpus, "0-7");
}
