//! Tables of the fields of a custom resource, generated from its schema.

use serde_json::Value;

use super::row;

/// Fields whose type is defined and documented by Kubernetes.
const KUBERNETES_TYPES: [(&str, &str); 3] = [
    ("spec.template", "PodTemplateSpec"),
    ("spec.resources", "ResourceRequirements"),
    ("status.conditions", "[]Condition"),
];

/// One table each for `spec` and `status`, if the definition `crd` has them.
pub(super) fn tables(crd: &Value) -> String {
    let mut crd = crd.clone();
    crd.sort_all_objects();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut text = String::new();
    for part in ["spec", "status"] {
        let fields = &schema["properties"][part];
        if !fields.is_object() {
            continue;
        }
        text.push_str(&format!("### {part}\n\n{}\n\n", about(fields)));
        text.push_str("| Field | Type | Default | Meaning |\n|---|---|---|---|\n");
        walk(part, fields, &mut text);
        text.push('\n');
    }
    text
}

/// Adds a row for each field below `path`.
fn walk(path: &str, schema: &Value, text: &mut String) {
    let required = schema["required"].as_array();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let is_required =
            required.is_some_and(|names| names.iter().any(|known| known == name.as_str()));
        let known = KUBERNETES_TYPES.iter().find(|(known, _)| *known == path);
        let default = match &field["default"] {
            _ if is_required => "required".to_owned(),
            Value::Null => String::new(),
            default => format!("`{default}`"),
        };
        let kind = known.map_or_else(|| kind(field), |(_, kind)| (*kind).to_owned());
        text.push_str(&row(&[
            &format!("`{path}`"),
            &kind,
            &default,
            &meaning(field),
        ]));
        if known.is_none() {
            walk(&path, field, text);
            walk(&format!("{path}[]"), &field["items"], text);
            walk(&format!("{path}.*"), &field["additionalProperties"], text);
        }
    }
}

fn about(schema: &Value) -> String {
    schema["description"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// The description, and all constraints beyond the type.
fn meaning(field: &Value) -> String {
    let mut text = about(field);
    let range = match (field["minimum"].as_f64(), field["maximum"].as_f64()) {
        (Some(least), Some(most)) => format!("{least} to {most}."),
        (Some(least), None) => format!("At least {least}."),
        (None, Some(most)) => format!("At most {most}."),
        (None, None) => String::new(),
    };
    let rules = field["x-kubernetes-validations"].as_array();
    let rules = rules.into_iter().flatten();
    let rules = rules.filter_map(|rule| Some(format!("Rule: {}.", rule["message"].as_str()?)));
    for sentence in [range].into_iter().chain(rules).filter(|s| !s.is_empty()) {
        text.push_str("\n\n");
        text.push_str(&sentence);
    }
    text
}

fn kind(field: &Value) -> String {
    let own = field["type"].as_str().unwrap_or("any");
    match own {
        "array" => format!("[]{}", kind(&field["items"])),
        "object" if field["additionalProperties"].is_object() => {
            format!("map of {}", kind(&field["additionalProperties"]))
        }
        own if field["enum"].is_array() => {
            let values = field["enum"].as_array().into_iter().flatten();
            let values: Vec<&str> = values.filter_map(Value::as_str).collect();
            if values.is_empty() {
                own.to_owned()
            } else {
                values.join(", ")
            }
        }
        own => own.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_have_a_path_a_type_a_default_and_their_rules() {
        let item = json!({"type": "object", "properties": {"n": {
            "type": "integer", "minimum": 1, "maximum": 9, "default": 2, "description": "A number."}}});
        let spec = json!({"description": "All.", "required": ["list"], "properties": {
            "list": {"type": "array", "items": item,
                     "x-kubernetes-validations": [{"rule": "x", "message": "no gaps"}]},
            "template": {"type": "object", "properties": {"x": {"type": "string"}}}}});
        let schema = json!({"openAPIV3Schema": {"properties": {"spec": spec}}});
        let crd = json!({"spec": {"versions": [{"schema": schema}]}});
        let text = tables(&crd);
        for line in [
            "| `spec.list` | []object | required | <br>Rule: no gaps. |",
            "| `spec.list[].n` | integer | `2` | A number.<br>1 to 9. |",
            "| `spec.template` | PodTemplateSpec |  |  |",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("spec.template.x"), "{text}");
    }
}
