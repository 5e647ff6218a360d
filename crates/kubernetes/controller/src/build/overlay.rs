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

/// Merges `over` into `base`. Nulls and absent fields of `over` leave `base` unchanged.
pub(super) fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(over)) => lay_fields(base, over),
        (base, over) => *base = over.clone(),
    }
}

fn lay_fields(base: &mut Map<String, Value>, over: &Map<String, Value>) {
    for choice in CHOICES {
        let is_chosen = |fields: &Map<String, Value>| {
            choice
                .iter()
                .any(|c| fields.get(*c).is_some_and(|v| !v.is_null()))
        };
        if is_chosen(over) {
            let others = choice.iter().filter(|c| !over.contains_key(**c));
            others.for_each(|other| {
                base.remove(*other);
            });
        }
    }
    for (field, value) in over {
        match (base.get_mut(field), value) {
            (_, Value::Null) => {}
            (None, value) => {
                base.insert(field.clone(), value.clone());
            }
            (Some(Value::Array(ours)), Value::Array(theirs)) if field == "envFrom" => {
                // Later sources override earlier ones, so the generated ones stay first.
                ours.extend(theirs.iter().cloned());
            }
            (Some(Value::Array(ours)), Value::Array(theirs)) => match key_of(field) {
                Some(key) => lay_entries(ours, theirs, key),
                None => *ours = theirs.clone(),
            },
            (Some(ours), value) => merge(ours, value),
        }
    }
}

fn lay_entries(base: &mut Vec<Value>, over: &[Value], key: &str) {
    // Entries of the user's list with the same key are not merged with each other; the API server
    // validates them.
    let ours = base.len();
    for entry in over {
        let is_keyed = !entry[key].is_null();
        let same = base[..ours]
            .iter_mut()
            .find(|e| is_keyed && e[key] == entry[key]);
        match same {
            Some(ours) => merge(ours, entry),
            None => base.push(entry.clone()),
        }
    }
}
