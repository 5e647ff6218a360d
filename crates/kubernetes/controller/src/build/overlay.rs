//! Merges the user's template over ours, as `kubectl patch` merges one object into another: objects
//! field by field, maps key by key, lists by the key of their entries; every other list and value
//! is replaced.
//!
//! The keys are those of Kubernetes' own strategic merge. Where a field is one of several
//! alternatives (a probe's `exec` or `httpGet`, a variable's `value` or `valueFrom`, a volume's
//! source), the user's choice removes ours: both together would be refused.

use serde_json::{Map, Value};

/// Lists whose entries have a key: the field that holds the list, and the key.
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

/// Fields that exclude each other.
const CHOICES: [&[&str]; 2] = [
    &["exec", "grpc", "httpGet", "sleep", "tcpSocket"],
    &["value", "valueFrom"],
];

/// The key of the entries of the list `field`, if they have one.
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
                // Later sources override earlier ones, so ours stay first.
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
    // Two entries of the user's with one key stay two; the API server judges them.
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
