//! The health check for Argo CD, run with the Lua version of Argo CD (5.1): its fixtures, and every
//! combination of conditions compared with the rules of kstatus, which Flux and `kubectl wait` use.

use std::path::PathBuf;

use mlua::Lua;
use serde_json::{Value, json};

use crate::root;

const FOLDER: &str =
    "manifests/examples/argocd/resource_customizations/albacore.dev/InferenceDeployment";

fn folder() -> PathBuf {
    root().join(FOLDER)
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(folder().join(path)).unwrap()).unwrap()
}

fn to_lua(lua: &Lua, value: &Value) -> mlua::Value {
    match value {
        Value::Null => mlua::Value::Nil,
        Value::Bool(is_so) => mlua::Value::Boolean(*is_so),
        Value::Number(number) => mlua::Value::Number(number.as_f64().unwrap()),
        Value::String(text) => mlua::Value::String(lua.create_string(text).unwrap()),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_lua(lua, item));
            mlua::Value::Table(lua.create_sequence_from(items).unwrap())
        }
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (key.as_str(), to_lua(lua, value)));
            mlua::Value::Table(lua.create_table_from(fields).unwrap())
        }
    }
}

/// Returns status and message, as for Argo CD.
pub(crate) fn health(object: &Value) -> (String, String) {
    let script = std::fs::read_to_string(folder().join("health.lua")).unwrap();
    let lua = Lua::new();
    lua.globals().set("obj", to_lua(&lua, object)).unwrap();
    let result: mlua::Table = lua.load(script).eval().unwrap();
    (
        result.get("status").unwrap(),
        result.get("message").unwrap(),
    )
}

#[test]
fn the_fixtures_have_the_health_that_they_say() {
    let tests = yaml("health_test.yaml");
    let tests = tests["tests"].as_array().unwrap();
    let mut seen = Vec::new();
    for test in tests {
        let path = test["inputPath"].as_str().unwrap();
        let (status, message) = health(&yaml(path));
        let wanted = &test["healthStatus"];
        assert_eq!(
            (&json!(status), &json!(message)),
            (&wanted["status"], &wanted["message"]),
            "{path}"
        );
        seen.push(status);
    }
    for status in ["Healthy", "Progressing", "Degraded", "Suspended"] {
        assert!(seen.iter().any(|s| s == status), "no fixture is {status}");
    }
    let files = std::fs::read_dir(folder().join("testdata"))
        .unwrap()
        .count();
    assert_eq!(files, tests.len(), "every fixture is tested");
}

#[test]
fn the_fixtures_are_deployments_that_the_api_server_takes() {
    crate::plane::namespace("models");
    let tests = yaml("health_test.yaml");
    for test in tests["tests"].as_array().unwrap() {
        let path = folder().join(test["inputPath"].as_str().unwrap());
        crate::plane::kubectl(&[
            "create",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            path.to_str().unwrap(),
        ]);
    }
}

/// The status by the documented rules of kstatus for a custom resource: in progress if a generation
/// has not been observed or Reconciling is true, failed if Stalled is true, otherwise determined by
/// Ready.
fn kstatus(object: &Value) -> &'static str {
    let status = &object["status"];
    let is = |kind: &str| {
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        conditions
            .find(|c| c["type"] == kind)
            .map(|c| c["status"].as_str().unwrap())
    };
    if status["observedGeneration"] != object["metadata"]["generation"] {
        return "InProgress";
    }
    match (is("Reconciling"), is("Stalled"), is("Ready")) {
        (Some("True"), _, _) => "InProgress",
        (_, Some("True"), _) => "Failed",
        (_, _, Some("True")) => "Current",
        (_, _, Some(_)) => "InProgress",
        (_, _, None) => "Current",
    }
}

#[test]
fn argo_cd_and_kstatus_agree_on_every_combination_of_conditions() {
    let states = [None, Some("True"), Some("False"), Some("Unknown")];
    let mut checked = 0;
    for (ready, stalled) in states.iter().flat_map(|r| states.map(|s| (*r, s))) {
        for (reconciling, observed) in states.iter().flat_map(|r| [1, 2].map(|g| (*r, g))) {
            if (stalled, reconciling) == (Some("True"), Some("True")) {
                continue; // the controller never sets both
            }
            for replicas in [0, 2] {
                if ready.is_none() && replicas > 0 {
                    continue; // the controller always sets Ready if there are pods
                }
                let all = [
                    ("Ready", ready),
                    ("Stalled", stalled),
                    ("Reconciling", reconciling),
                ];
                let conditions: Vec<Value> = all
                    .iter()
                    .filter_map(|(kind, state)| {
                        state.map(
                            |s| json!({"type": kind, "status": s, "reason": "R", "message": "m"}),
                        )
                    })
                    .collect();
                let object = json!({
                    "metadata": {"generation": 2},
                    "spec": {"replicas": replicas},
                    "status": {"observedGeneration": observed, "replicas": replicas, "conditions": conditions},
                });
                let (argo, _) = health(&object);
                let agrees = match kstatus(&object) {
                    "Current" if ready.is_none() => argo == "Suspended",
                    "Current" => argo == "Healthy",
                    "Failed" => argo == "Degraded",
                    _ => argo == "Progressing",
                };
                assert!(agrees, "{argo}, kstatus {}: {object}", kstatus(&object));
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 210);
}
