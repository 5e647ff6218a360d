//! Every value of the chart is used, and every invalid value is rejected with its name.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use albacore_xtask::manifests::helm;
use serde_json::{Map, Value, json};

use crate::chart;

/// Path of a value, another valid value, and an invalid one (both as JSON).
type Case = (&'static str, &'static str, &'static str);

const NAME: &str = "\"another\"";
const NO_NAME: &str = "\"An other\"";
const MAP: &str = r#"{"example.com/a": "b"}"#;
const NO_LABELS: &str = r#"{"a": "no label"}"#;
const NO_MAP: &str = r#"{"a": 1}"#;
const RESOURCES: &str = r#"{"requests": {"cpu": 1, "memory": "1Gi"}}"#;
const NO_RESOURCES: &str = r#"{"limits": {"memory": "256 MB"}}"#;
const TOLERATIONS: &str = r#"[{"key": "a", "operator": "Equal", "value": "b"}]"#;
const NO_TOLERATIONS: &str = r#"[{"operator": "Sometimes"}]"#;
const AFFINITY: &str =
    r#"{"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}"#;
const NO_AFFINITY: &str = r#"{"nodeAfinity": {}}"#;
const DIGEST: &str = "\"sha256:0000000000000000000000000000000000000000000000000000000000000000\"";

#[rustfmt::skip]
const CASES: [Case; 71] = [
    ("nameOverride", NAME, NO_NAME),
    ("fullnameOverride", NAME, NO_NAME),
    ("labels", MAP, NO_LABELS),
    ("image.registry", "\"example.com:5000/a\"", "\"https://example.com\""),
    ("image.pullPolicy", "\"Always\"", "\"always\""),
    ("image.pullSecrets", r#"["a"]"#, r#"[{"name": "a"}]"#),
    ("crds.install", "true", "\"true\""),
    ("rbac.aggregate", "false", "0"),
    ("controller.replicas", "3", "17"),
    ("controller.image.repository", NAME, NO_NAME),
    ("controller.image.tag", "\"v2\"", "2"),
    ("controller.image.digest", DIGEST, "\"sha256:0\""),
    ("controller.watchNamespaces", r#"["a", "b"]"#, r#"["A"]"#),
    ("controller.log", "\"text\"", "\"yaml\""),
    ("controller.logFilter", "\"albacore_controller=debug,info\"", "\"\""),
    ("controller.requestsPerSecond", "50", "0"),
    ("controller.maxConcurrentRollouts", "3", "0"),
    ("controller.resources", RESOURCES, NO_RESOURCES),
    ("controller.priorityClassName", NAME, NO_NAME),
    ("controller.nodeSelector", MAP, NO_LABELS),
    ("controller.tolerations", TOLERATIONS, NO_TOLERATIONS),
    ("controller.affinity", AFFINITY, NO_AFFINITY),
    ("controller.podLabels", MAP, NO_LABELS),
    ("controller.podAnnotations", MAP, NO_MAP),
    ("controller.serviceAccount.create", "false", "null"),
    ("controller.serviceAccount.name", NAME, NO_NAME),
    ("controller.serviceAccount.annotations", MAP, NO_MAP),
    ("controller.podDisruptionBudget.enabled", "false", "1"),
    ("server.image.repository", NAME, NO_NAME),
    ("server.image.tag", "\"v2\"", "\"a b\""),
    ("server.image.digest", DIGEST, "\"0\""),
    ("agent.enabled", "false", "\"no\""),
    ("agent.enforcement", "\"Observe\"", "\"observe\""),
    ("agent.optIn", "false", "\"false\""),
    ("agent.seccomp", "\"Localhost\"", "\"Unconfined\""),
    ("agent.logFilter", "\"albacore_agent=debug,info\"", "\"\""),
    ("agent.namespace.create", "false", "\"no\""),
    ("agent.namespace.name", NAME, "\"\""),
    ("agent.image.repository", NAME, NO_NAME),
    ("agent.image.tag", "\"v2\"", "true"),
    ("agent.image.digest", DIGEST, "\"md5:0\""),
    ("agent.log", "\"text\"", "\"\""),
    ("agent.resources", RESOURCES, NO_RESOURCES),
    ("agent.priorityClassName", "\"\"", NO_NAME),
    ("agent.nodeSelector", MAP, NO_LABELS),
    ("agent.tolerations", TOLERATIONS, NO_TOLERATIONS),
    ("agent.affinity", AFFINITY, NO_AFFINITY),
    ("agent.podLabels", MAP, NO_LABELS),
    ("agent.podAnnotations", MAP, NO_MAP),
    ("agent.maxUnavailable", "2", "\"101%\""),
    ("agent.serviceAccount.create", "false", "\"\""),
    ("agent.serviceAccount.name", NAME, NO_NAME),
    ("agent.serviceAccount.annotations", MAP, NO_MAP),
    ("params.service.clusterIP", "\"10.96.0.9\"", "\"None\""),
    ("params.image.repository", NAME, NO_NAME),
    ("params.image.tag", "\"v2\"", "\"/\""),
    ("params.image.digest", DIGEST, "\"sha512:0\""),
    ("params.resources", RESOURCES, NO_RESOURCES),
    ("networkPolicy.enabled", "false", "\"\""),
    ("networkPolicy.apiServer.ports", "[8443]", "[65536]"),
    ("networkPolicy.apiServer.cidrs", r#"["10.0.0.1/32", "fd00::1/128"]"#, r#"["10.0.0.1"]"#),
    ("networkPolicy.metricsFrom", r#"[{"namespaceSelector": {"matchLabels": {"a": "b"}}}]"#, "[{}]"),
    ("monitoring.serviceMonitor.enabled", "false", "\"\""),
    ("monitoring.serviceMonitor.interval", "\"1m\"", "\"1\""),
    ("monitoring.serviceMonitor.labels", MAP, NO_LABELS),
    ("monitoring.prometheusRule.enabled", "false", "\"\""),
    ("monitoring.prometheusRule.labels", MAP, NO_LABELS),
    ("monitoring.dashboard.enabled", "false", "\"\""),
    ("monitoring.dashboard.labels", MAP, NO_LABELS),
    ("monitoring.dashboard.annotations", MAP, NO_MAP),
    ("controller.resources.limits", r#"{"cpu": "2"}"#, r#"{"cpu": "two"}"#),
];

/// Everything except the definitions, which are long and depend on only one value.
const BASE: &str = "agent.enabled=true,crds.install=false,monitoring.serviceMonitor.enabled=true,\
                    monitoring.prometheusRule.enabled=true,monitoring.dashboard.enabled=true";

fn values() -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(chart().join("values.yaml")).unwrap()).unwrap()
}

/// Whether this is a single value instead of a group: not an object, an empty object, or one with
/// keys chosen by the user.
fn is_leaf(path: &str, value: &Value) -> bool {
    let last = path.rsplit('.').next().unwrap();
    let is_free = ["labels", "nodeSelector", "resources", "annotations"].contains(&last);
    is_free || value.as_object().is_none_or(Map::is_empty)
}

fn walk(path: &str, value: &Value, leaves: &mut Vec<String>, groups: &mut Vec<String>) {
    if is_leaf(path, value) {
        leaves.push(path.to_owned());
        return;
    }
    groups.push(path.to_owned());
    for (key, value) in value.as_object().unwrap() {
        let below = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        walk(&below, value, leaves, groups);
    }
}

fn template(more: &[&str]) -> Result<String, String> {
    let chart = chart();
    // Not `--set`, which takes precedence over `--set-json`.
    let arguments = [&["--set-json", BASE], more].concat();
    let arguments =
        helm::template_arguments(chart.to_str().unwrap(), "albacore-system", &arguments);
    helm::run(&arguments).map_err(|error| error.to_string())
}

#[test]
fn every_value_has_its_case() {
    let (mut leaves, mut groups) = (Vec::new(), Vec::new());
    walk("", &values(), &mut leaves, &mut groups);
    let leaves: BTreeSet<&str> = leaves.iter().map(String::as_str).collect();
    let cases: BTreeSet<&str> = CASES.iter().map(|case| case.0).collect();
    let missing: Vec<_> = leaves.difference(&cases).collect();
    assert!(missing.is_empty(), "values without a case: {missing:?}");
    let below_a_leaf = |case: &&str| {
        case.rsplit_once('.')
            .is_some_and(|(up, _)| leaves.contains(up))
    };
    let gone: Vec<_> = cases
        .difference(&leaves)
        .filter(|case| !below_a_leaf(case))
        .collect();
    assert!(gone.is_empty(), "cases without a value: {gone:?}");
}

#[test]
fn every_value_changes_what_is_rendered() {
    let base = template(&[]).unwrap();
    let unused = |(path, other, _): &Case| {
        let set = format!("{path}={other}");
        let rendered =
            template(&["--set-json", &set]).unwrap_or_else(|error| panic!("{set}: {error}"));
        (rendered == base).then_some(*path)
    };
    let unused: Vec<&str> = CASES.iter().filter_map(unused).collect();
    assert!(unused.is_empty(), "accepted and ignored: {unused:?}");
}

/// Renders with these values; returns the errors of helm.
fn refused(values: &Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.json");
    std::fs::write(&file, values.to_string()).unwrap();
    let chart = chart();
    let values = ["--values", file.to_str().unwrap()];
    let chart = chart.to_str().unwrap();
    let arguments = helm::template_arguments(chart, "albacore-system", &values);
    helm::run(&arguments).unwrap_err().to_string()
}

/// Sets the value at a dotted path.
fn set(values: &mut Value, path: &str, to: &str) {
    let pointer = path.split('.').fold(String::new(), |mut text, part| {
        let _ = write!(text, "/{part}");
        text
    });
    *values.pointer_mut(&pointer).unwrap() = serde_json::from_str(to).unwrap();
}

#[test]
fn every_wrong_value_is_refused_by_its_name() {
    // An invalid value within another invalid one would be hidden, and helm drops null values:
    // therefore two values are tested separately.
    let alone = |path: &str| path == "controller.resources.limits" || path.ends_with(".create");
    let mut all = values();
    for (path, _, wrong) in CASES.iter().filter(|case| !alone(case.0)) {
        set(&mut all, path, wrong);
    }
    let said = refused(&all);
    for (path, _, wrong) in CASES {
        let place = format!("/{}", path.replace('.', "/"));
        if !alone(path) {
            assert!(
                said.contains(&format!("'{place}")),
                "{path}: {wrong}: {said}"
            );
            continue;
        }
        let mut one = values();
        set(&mut one, path, wrong);
        let said = refused(&one);
        let (group, name) = path.rsplit_once('.').unwrap();
        let is_missing = said.contains(&format!("/{}'", group.replace('.', "/")))
            && said.contains(&format!("'{name}'"));
        assert!(
            said.contains(&place) || is_missing,
            "{path}: {wrong}: {said}"
        );
    }
}

#[test]
fn every_unknown_name_is_refused() {
    let (mut leaves, mut groups) = (Vec::new(), Vec::new());
    let mut all = values();
    walk("", &all, &mut leaves, &mut groups);
    assert!(groups.len() > 15, "{groups:?}");
    for group in &groups {
        let pointer = if group.is_empty() {
            String::new()
        } else {
            format!("/{}", group.replace('.', "/"))
        };
        all.pointer_mut(&pointer).unwrap()["mistyped"] = json!(1);
    }
    let said = refused(&all);
    for group in groups {
        let place = format!("'/{}'", group.replace('.', "/")).replace("'/'", "''");
        let names_it =
            |line: &str| line.contains(&format!("at {place}:")) && line.contains("mistyped");
        assert!(said.lines().any(names_it), "{group}: {said}");
    }
}
