//! Merges the user's template over the generated one, like a strategic merge patch of `kubectl
//! patch`: objects are merged field by field, maps key by key, lists by the merge key of their
//! entries; every other list and value is replaced.
//!
//! The merge keys are those of Kubernetes. Where only one of several fields may be set (a probe's
//! `exec` or `httpGet`, a variable's `value` or `valueFrom`, a volume's source), the user's field
//! replaces the generated one, because the API server rejects both together.

use serde_json::{Map, Value};

/// Lists with a merge key: the field that contains the list, and the key.
const KEYED: [(&str, &str); 14] = [
    ("containers", "name"),
    ("initContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("ports", "containerPort"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("imagePullSecrets", "name"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
    ("resourceClaims", "name"),
    ("schedulingGates", "name"),
    ("ephemeralContainers", "name"),
    ("ownerReferences", "uid"),
];

/// Fields of which at most one may be set.
const CHOICES: [&[&str]; 2] = [
    &["exec", "grpc", "httpGet", "sleep", "tcpSocket"],
    &["value", "valueFrom"],
];

/// The merge key of the list `field`, if it has one.
pub(crate) fn key_of(field: &str) -> Option<&'static str> {
    let found = KEYED.iter().find(|(name, _)| *name == field);
    found.map(|&(_, key)| key)
}

/// Merges `overlay` into `base`. Nulls and absent fields of `overlay` leave `base` unchanged.
pub(super) fn merge(base: &mut Value, overlay: &Value) {
    match (base, overlay) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(overlay)) => merge_fields(base, overlay),
        (base, overlay) => *base = overlay.clone(),
    }
}

fn merge_fields(base: &mut Map<String, Value>, overlay: &Map<String, Value>) {
    for choice in CHOICES {
        let is_chosen = |fields: &Map<String, Value>| {
            choice
                .iter()
                .any(|c| fields.get(*c).is_some_and(|v| !v.is_null()))
        };
        if is_chosen(overlay) {
            let others = choice.iter().filter(|c| !overlay.contains_key(**c));
            others.for_each(|other| {
                base.remove(*other);
            });
        }
    }
    for (field, value) in overlay {
        match (base.get_mut(field), value) {
            (_, Value::Null) => {}
            (None, value) => {
                base.insert(field.clone(), value.clone());
            }
            (Some(Value::Array(generated)), Value::Array(user)) if field == "envFrom" => {
                // Later sources override earlier ones, so the generated ones stay first.
                generated.extend(user.iter().cloned());
            }
            (Some(Value::Array(generated)), Value::Array(user)) => match key_of(field) {
                Some(key) => merge_entries(generated, user, key),
                None => *generated = user.clone(),
            },
            (Some(generated), value) => merge(generated, value),
        }
    }
}

fn merge_entries(base: &mut Vec<Value>, overlay: &[Value], key: &str) {
    // Entries of the user's list with the same key are not merged with each other; the API server
    // validates them.
    let generated_count = base.len();
    for entry in overlay {
        let is_keyed = !entry[key].is_null();
        let same = base[..generated_count]
            .iter_mut()
            .find(|e| is_keyed && e[key] == entry[key]);
        match same {
            Some(generated) => merge(generated, entry),
            None => base.push(entry.clone()),
        }
    }
}
