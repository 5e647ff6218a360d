//! Lists the fields of a spec that have no effect on one machine, one sentence each, so that no
//! field is silently ignored.

use serde_json::Value;

use crate::deployment::InferenceDeploymentSpec;
use crate::rules::SERVER_CONTAINER;

/// Fields of the server container that have an effect on one machine.
const HONORED: [&str; 5] = ["name", "command", "args", "env", "workingDir"];

/// The notices of a spec that can run on one machine, in the order of its fields.
pub(crate) fn notices(spec: &InferenceDeploymentSpec) -> Vec<String> {
    let mut notices = Vec::new();
    if let Some(replicas) = spec.replicas.filter(|&replicas| replicas != 1) {
        notices.push(format!(
            "spec.replicas is {replicas}; one replica runs on this machine"
        ));
    }
    for (index, model) in spec.models.iter().enumerate() {
        if let Some(slo) = model.slo.filter(|slo| slo.percentile != 99.0) {
            notices.push(format!(
                "spec.models[{index}].slo.percentile is {}; /metrics counts every late answer, \
                 whatever the percentile",
                slo.percentile
            ));
        }
    }
    if spec.autoscaling.is_some() {
        notices.push("spec.autoscaling needs a cluster and is not used".to_owned());
    }
    if spec.resources.is_some() {
        let notice = "spec.resources is not enforced here; start albacore inside a cgroup to limit \
                      it";
        notices.push(notice.to_owned());
    }
    let template = serde_json::to_value(&spec.template).unwrap_or_default();
    for (part, value) in fields(&template["metadata"]) {
        push_unused(
            &mut notices,
            &format!("spec.template.metadata.{part}"),
            value,
        );
    }
    for (part, value) in fields(&template["spec"]).filter(|(part, _)| *part != "containers") {
        push_unused(&mut notices, &format!("spec.template.spec.{part}"), value);
    }
    let containers = template["spec"]["containers"].as_array();
    for (index, container) in containers.into_iter().flatten().enumerate() {
        let field = format!("spec.template.spec.containers[{index}]");
        if container["name"] != SERVER_CONTAINER {
            notices.push(format!(
                "{field} ({}) is not started here",
                container["name"]
            ));
            continue;
        }
        let is_used = |part: &str| match part {
            // The built-in server starts in the working directory of `albacore run`.
            "workingDir" => !spec.is_built_in(),
            part => HONORED.contains(&part),
        };
        for (part, value) in fields(container).filter(|(part, _)| !is_used(part)) {
            push_unused(&mut notices, &format!("{field}.{part}"), value);
        }
    }
    notices
}

fn fields(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value))
}

fn push_unused(notices: &mut Vec<String>, field: &str, value: &Value) {
    let is_empty = match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    if !is_empty {
        notices.push(format!("{field} needs a cluster and is not used"));
    }
}
