//! Applies the examples for clusters as described in their comments.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod rig;

use std::path::{Path, PathBuf};

use rig::{Rig, wait};

fn examples() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
    root.canonicalize().unwrap()
}

/// Words of those commands of the cluster tutorial that read or patch objects; single quotes
/// delimit a word.
fn tutorial_commands() -> Vec<Vec<String>> {
    let page = examples().join("../docs/tutorials/cluster.md");
    let text = std::fs::read_to_string(page).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("kubectl "));
    let lines = lines.filter(|line| line.starts_with("get ") || line.starts_with("patch "));
    let words = |line: &str| -> Vec<String> {
        let parts = line.split('\'').enumerate();
        let parts = parts.flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        });
        parts.collect()
    };
    let commands: Vec<Vec<String>> = lines.map(words).collect();
    assert!(commands.len() >= 4, "{commands:?}");
    commands
}

#[test]
fn the_examples_run_in_a_cluster() {
    let rig = Rig::start(true);
    let _controller = rig.controller(&[]);
    let folder = examples();
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();

    // The deployment of the example for a single machine, with its model in a ConfigMap.
    rig.kubectl(&["apply", "--server-side", "-k", &path("")]);
    wait("the pod is there", || {
        rig.list("pods", "albacore.dev/deployment=fraud").len() == 1
    });
    let decoded = "go-template={{index .binaryData \"fraud.ubj\" | base64decode}}";
    let model = rig
        .plane
        .kubectl(&["get", "configmap", "fraud-model", "-o", decoded])
        .unwrap();
    assert_eq!(
        model.stdout,
        std::fs::read(folder.join("fraud.ubj")).unwrap()
    );
    let pod = rig.get("deployment", "fraud").unwrap()["spec"]["template"]["spec"].take();
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(
        volumes
            .iter()
            .any(|v| v["configMap"]["name"] == "fraud-model"),
        "{volumes:?}"
    );
    let settings = rig.get("configmap", "fraud").unwrap()["data"]["settings.yaml"].take();
    let mounted = "/models/configmap/fraud-model/fraud.ubj";
    assert!(settings.as_str().unwrap().contains(mounted), "{settings}");

    // A user's own server.
    let files = ["gunicorn_app.py", "fraud.ubj"].map(|name| format!("--from-file={}", path(name)));
    let create = ["create", "configmap", "gunicorn-app", &files[0], &files[1]];
    rig.kubectl(&create);
    rig.kubectl(&["apply", "-f", &path("gunicorn-cluster.yaml")]);
    wait("the pods of both run", || {
        rig.simulate_kubelet("fraud", &[]) == 1 && rig.simulate_kubelet("gunicorn", &[]) == 1
    });
    rig.wait_for("gunicorn", "Ready", "True/Serving");
    let service = rig.get("service", "gunicorn").unwrap();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 8000);

    // The tutorial's commands for the first deployment.
    for command in tutorial_commands() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        rig.kubectl(&words);
    }
}
