//! `albacore upgrade --dry-run` against a real API server, with objects as written by the
//! controller and the chart.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail loudly")]

mod command;

use std::path::Path;

use albacore_testbed::{ControlPlane, Options};
use command::{CommandOutput, albacore};
use serde_json::{Value, json};

fn put(plane: &ControlPlane, object: &Value) {
    let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    std::fs::write(file.path(), object.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    let output = plane.kubectl(&["apply", "-f", path]).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}

fn workload(namespace: &str, name: &str, labels: &Value, container: &Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}})
}

/// An InferenceDeployment whose pods run `image`.
fn deploy(plane: &ControlPlane, namespace: &str, name: &str, image: &str, pin: Option<&str>) {
    let mut object = json!({
        "apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"models": [{"name": "m", "uri": "pvc://models/m.ubj"}]},
    });
    if name == "own" {
        object["spec"] = json!({"template": {"spec": {"containers": [
            {"name": "server", "image": image, "command": ["gunicorn"]}]}}});
    }
    if let Some(pin) = pin {
        object["metadata"]["annotations"] = json!({"albacore.dev/server-image": pin});
    }
    put(plane, &object);
    let labels = json!({"albacore.dev/deployment": name});
    let server = json!({"name": "server", "image": image});
    put(plane, &workload(namespace, name, &labels, &server));
}

fn as_user(kubeconfig: &Path, words: &[&str]) -> CommandOutput {
    let cluster = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    albacore(&[&["upgrade"], words, &cluster].concat())
}

/// Deployments of every kind, and no controller.
fn filled() -> ControlPlane {
    let mut plane = ControlPlane::start(&Options::default()).unwrap();
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../crds");
    plane.serve_crds(&crds).unwrap();
    for (name, pin) in [("bank", None), ("kept", Some("r.io/server:0"))] {
        let annotations = pin.map(|pin| json!({"albacore.dev/server-image": pin}));
        put(
            &plane,
            &json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "annotations": annotations}}),
        );
    }
    deploy(&plane, "bank", "old", "r.io/server:0", None);
    deploy(&plane, "bank", "new", "r.io/server:9", None);
    deploy(&plane, "bank", "own", "mine:1", None);
    deploy(
        &plane,
        "bank",
        "pinned",
        "r.io/server:0",
        Some("r.io/server:0"),
    );
    deploy(&plane, "bank", "broken", "r.io/server:0", Some("no image"));
    deploy(&plane, "kept", "a", "r.io/server:0", None);
    plane
}

#[test]
fn an_upgrade_is_shown_before_it_restarts_anything() {
    let plane = filled();
    let admin = plane.kubeconfig().to_owned();
    // Neither the option nor a controller determines the image of the upgrade.
    let refused = as_user(&admin, &["--dry-run"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.err.contains("--server-image"), "{refused:?}");
    let refused = as_user(&admin, &[]);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.err.contains("give --dry-run"), "{refused:?}");

    let shown = as_user(
        &admin,
        &[
            "--dry-run",
            "--server-image",
            "r.io/server:9",
            "--output",
            "json",
        ],
    );
    assert_eq!((shown.code, shown.out.lines().count()), (0, 1), "{shown:?}");
    let report: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(
        (&report["rolls"], &report["unread"]),
        (&json!(1), &json!([]))
    );
    let rows = report["deployments"].as_array().unwrap();
    let lines: Vec<String> = rows
        .iter()
        .map(|row| {
            let text = |field: &str| row[field].as_str().unwrap_or("-");
            let name = format!("{}/{}", text("namespace"), text("name"));
            format!(
                "{name} {} {} {}",
                text("action"),
                text("image"),
                text("target")
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            "bank/broken invalid r.io/server:0 r.io/server:0",
            "bank/new current r.io/server:9 r.io/server:9",
            "bank/old roll r.io/server:0 r.io/server:9",
            "bank/own own_server mine:1 -",
            "bank/pinned pinned r.io/server:0 r.io/server:0",
            "kept/a pinned r.io/server:0 r.io/server:0",
        ]
    );
    the_version_of_this_program_is_the_default(&plane);
}

/// The controller determines the registry of server images, and this program the version.
fn the_version_of_this_program_is_the_default(plane: &ControlPlane) {
    let admin = plane.kubeconfig();
    let labels = json!({"app.kubernetes.io/part-of": "albacore",
        "app.kubernetes.io/component": "controller"});
    let controller = json!({"name": "controller", "image": "r.io/controller:0",
        "args": ["--server-image=r.io/server:0", "--max-concurrent-rollouts=2"]});
    put(
        plane,
        &workload("default", "albacore-controller", &labels, &controller),
    );
    let shown = as_user(admin, &["--dry-run", "-n", "bank"]);
    assert_eq!(shown.code, 0, "{shown:?}");
    let target = format!("r.io/server:{}", env!("CARGO_PKG_VERSION"));
    for part in [
        format!("server image {target}: 2 deployments restarted, 0 pods"),
        "at most 2 deployments at once".to_owned(),
        format!("bank/old       0 pods  r.io/server:0 -> {target}"),
    ] {
        assert!(
            shown.out.contains(&part),
            "{part:?} is not in\n{}",
            shown.out
        );
    }
    assert!(!shown.out.contains("kept/a"), "{}", shown.out);
}
