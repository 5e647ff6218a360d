//! Tests of which reports can be planned from, and of the reasons for rejecting others.

use serde_json::json;

use super::*;

const NOW: &str = "2026-11-21T20:00:00Z";

fn view(status: &serde_json::Value) -> Result<NodeView, String> {
    let object = json!({"metadata": {"name": "n"}, "status": status});
    NodeView::of(
        &serde_json::from_value(object).unwrap(),
        NOW.parse().unwrap(),
    )
}

fn status() -> serde_json::Value {
    json!({"lastVerificationTime": "2026-11-21T19:59:30Z",
        "cpuTopology": "cpus=0-7 core=0-3x2 l3=0*8", "pods": [
            {"pod": "a/one", "workers": 1, "workersVerified": 1, "planned": 2, "verified": 2,
             "cpuset": "0-7", "isolation": "None", "plan": "0",
             "mapping": {"cpus": "1x2:0-1", "mode": "Compact", "order": 1, "distances": "l3=60"}},
            {"pod": "a/two", "workers": 1, "workersVerified": 1, "planned": 1, "verified": 1,
             "cpuset": "0-7", "isolation": "None", "plan": "0",
             "mapping": {"cpus": "1x1:2", "mode": "Scatter", "order": 0}},
            {"pod": "a/gone", "workers": 0, "workersVerified": 0, "planned": 0, "verified": 0,
             "reason": "container server is not running"}]})
}

#[test]
fn members_come_in_the_order_of_the_placer_and_pods_that_are_not_placed_do_not_count() {
    let view = view(&status()).unwrap();
    assert_eq!((view.pods.len(), view.servers()), (2, vec![1, 0]));
    let server = view.server(0).unwrap();
    assert_eq!(server.policy.distances.l3, Some(60));
    assert_eq!((server.policy.workers, server.policy.threads), (1, 2));
    assert_eq!(view.shared_pool(), ("0-7".parse().unwrap(), None));
}

#[test]
fn a_plan_is_confirmed_by_its_hash_with_pinned_and_with_free_main_threads() {
    let machine = parse_topology_text("cpus=0-3 core=0-1x2 l3=0*4")
        .unwrap()
        .hash64();
    let mapping = parse_mapping_text("1x2:0-1").unwrap();
    let hash = |masks: [&str; 2]| {
        let masks = masks.map(|mask| mask.parse::<CpuSet>().unwrap());
        let slots = Slot::all(1, 2).zip(&masks);
        format!("{:08x}", masks_hash(machine, slots).unwrap())
    };
    for (masks, is_it) in [
        (["0", "1"], true),
        (["0-1", "1"], true),
        (["1", "0"], false),
    ] {
        assert_eq!(
            is_hash_of(Some(&hash(masks)), &mapping, machine),
            is_it,
            "{masks:?}"
        );
    }
    assert!(!is_hash_of(None, &mapping, machine));
}

#[test]
fn the_reason_why_a_node_cannot_be_planned_is_reported() {
    let with = |path: &str, value: serde_json::Value| {
        let mut status = status();
        *status.pointer_mut(path).unwrap() = value;
        view(&status).unwrap_err()
    };
    let omitted = json!([{"type": "TopologyOmitted", "status": "True", "reason": "TooLong",
        "message": "2000 bytes", "lastTransitionTime": NOW}]);
    let mut without = status();
    without["cpuTopology"].take();
    without["conditions"] = omitted;
    assert_eq!(view(&without).unwrap_err(), "2000 bytes");
    for (path, value, words) in [
        (
            "/lastVerificationTime",
            json!("2026-11-21T19:58:59Z"),
            "61 s ago",
        ),
        ("/lastVerificationTime", json!(null), "has not read masks"),
        ("/cpuTopology", json!(null), "older version"),
        ("/cpuTopology", json!("cpus=0-1 l9=0*2"), "\"l9\""),
        ("/pods/0/cpuset", json!("0-…"), "cpuset of pod a/one"),
        (
            "/pods/0/mapping",
            json!(null),
            "leaves out the mapping of pod a/one",
        ),
        (
            "/pods/0/mapping/cpus",
            json!("1x2:0"),
            "mapping of pod a/one",
        ),
        (
            "/pods/0/mapping/distances",
            json!("l9=1"),
            "distances of pod a/one",
        ),
    ] {
        let why = with(path, value);
        assert!(why.contains(words), "{words:?} is not in {why}");
    }
    let mut other = status();
    other["topology"] = json!("0123");
    assert!(view(&other).unwrap_err().contains("topology is 0123"));
}
