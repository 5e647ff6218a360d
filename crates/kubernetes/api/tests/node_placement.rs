//! Tests of the `NodePlacement`: small enough to be written for every node, and unchanged after a
//! round trip through a real API server.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use std::path::Path;

use albacore_api::{
    Drift, DriftCause, FrontPlacement, Isolation, NodePlacement, NodePlacementStatus,
    PlacementMode, PodMapping, PodPlacement, SpawnBucket,
};
use albacore_testbed::{ControlPlane, Options};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

fn time<T: serde::de::DeserializeOwned>() -> T {
    serde_json::from_value(json!("2026-11-21T20:00:00Z")).unwrap()
}

fn pod(index: usize) -> PodPlacement {
    PodPlacement {
        pod: format!("default/fraud-6d5f7b9c4-x2x{index:02}"),
        workers: 4,
        workers_verified: 4,
        planned: 16,
        verified: 16,
        cpuset: Some("0-7,16-23".to_owned()),
        isolation: Isolation::Exclusive,
        plan: Some("6b1fe0c2".to_owned()),
        mapping: Some(PodMapping {
            cpus: "4x4:0-12/4,1-13/4,2-14/4".to_owned(),
            order: Some(index as i32),
            ..PodMapping::default()
        }),
        ..PodPlacement::default()
    }
}

/// A report that sets every field.
fn full() -> NodePlacement {
    let mut troubled = pod(99);
    troubled.since = Some(time());
    troubled.drift = Some(Drift {
        count: 3,
        cause: DriftCause::CpusetChange,
    });
    troubled.reason = Some("found 3 of 4 workers".to_owned());
    troubled.trial = Some("trial: Scatter stays".to_owned());
    troubled.quota_threads = Some(2);
    troubled.hot_threads = Some(7);
    troubled.front = Some(FrontPlacement {
        planned: 2,
        verified: 1,
    });
    troubled.observed = true;
    troubled.respawns = 31;
    troubled.mapping = Some(PodMapping {
        cpus: "4x4:0-7x2".to_owned(),
        mode: PlacementMode::Compact,
        order: Some(1),
        distances: Some("l3=60".to_owned()),
    });
    NodePlacement {
        api_version: "albacore.dev/v1alpha1".to_owned(),
        kind: "NodePlacement".to_owned(),
        metadata: serde_json::from_value(json!({"name": "node-1"})).unwrap(),
        status: Some(NodePlacementStatus {
            conditions: vec![Condition {
                type_: "Enforcing".to_owned(),
                status: "True".to_owned(),
                reason: "MasksWritten".to_owned(),
                message: String::new(),
                last_transition_time: time(),
                observed_generation: None,
            }],
            last_verification_time: Some(time()),
            topology: Some("0a1b2c3d".to_owned()),
            cpu_topology: Some("cpus=0-31 core=0-15x2 l3=0-1*8x2 numa=0*32".to_owned()),
            fixed_threads: Some("3*2,7".to_owned()),
            planned: 32,
            verified: 32,
            drifts: 3,
            births: vec![
                SpawnBucket {
                    within_ms: Some(20),
                    threads: 40,
                },
                SpawnBucket {
                    within_ms: None,
                    threads: 1,
                },
            ],
            pods: vec![pod(0), troubled],
        }),
    }
}

#[test]
fn a_status_of_20_pods_takes_at_most_4_kib_beside_what_plans_are_made_from() {
    let mut report = full();
    let status = report.status.as_mut().unwrap();
    status.pods = (0..20).map(pod).collect();
    let bytes = serde_json::to_vec(status).unwrap().len();
    assert!(bytes <= 8192, "{bytes} bytes");
    (status.cpu_topology, status.fixed_threads) = (None, None);
    for pod in &mut status.pods {
        pod.mapping = None;
    }
    let bytes = serde_json::to_vec(status).unwrap().len();
    assert!(bytes <= 4096, "{bytes} bytes");
}

#[test]
fn every_field_survives_the_api_server() {
    let mut plane = ControlPlane::start(&Options::default()).unwrap();
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../crds");
    plane.serve_crds(&crds).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let path = file.to_str().unwrap();
    let tell = |arguments: &[&str], object: &Value| {
        std::fs::write(&file, object.to_string()).unwrap();
        let output = plane.kubectl(&[arguments, &["--validate=strict", "-f", path]].concat());
        let output = output.unwrap();
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8(output.stderr).unwrap()),
        }
    };
    let mut unknown = serde_json::to_value(full()).unwrap();
    unknown["status"]["pods"][0]["verifed"] = json!(1);
    let refused = tell(&["create"], &unknown).unwrap_err();
    assert!(refused.contains("status.pods[0].verifed"), "{refused}");

    let object = serde_json::to_value(full()).unwrap();
    tell(&["create"], &object).unwrap();
    tell(&["apply", "--server-side", "--subresource=status"], &object).unwrap();
    let read = plane
        .kubectl(&["get", "npl", "node-1", "-o", "json"])
        .unwrap();
    let read: NodePlacement = serde_json::from_slice(&read.stdout).unwrap();
    assert_eq!(read.status, full().status);
}

#[test]
fn a_name_that_is_too_long_is_replaced_by_its_uid() {
    let (namespace, name) = ("n".repeat(63), "p".repeat(253));
    let uid = "9f1c2b3a-58d0-4c0e-9d4e-0f3c1a2b4c5d";
    let entry = |bytes| PodPlacement {
        pod: PodPlacement::short_name(&namespace, &name, uid, bytes),
        ..PodPlacement::default()
    };
    assert_eq!(entry(400).pod, format!("{namespace}/{name}"));
    assert_eq!(entry(64).pod.len(), 64);
    assert_eq!(entry(0).pod, format!("~{uid}"));
    for bytes in [0, 64, 400] {
        assert!(entry(bytes).is_of(&namespace, &name, uid));
        assert!(!entry(bytes).is_of(&namespace, "other", "other"));
    }
    // A later pod of the same name is another pod; a complete name contains no uid.
    assert!(!entry(64).is_of(&namespace, &name, "other"));
    assert!(entry(400).is_of(&namespace, &name, "other"));
}
