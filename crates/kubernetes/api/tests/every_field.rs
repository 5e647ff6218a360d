//! Tests that no field is accepted and then ignored: if a field of a file is changed, removed,
//! renamed or mistyped, the reader reports it or the result differs.
// Functions outside of `#[test]` functions are test code, too.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use albacore_api::{
    InferenceDeployment, Timespan, for_one_machine, inference_deployment_crd, read_deployment,
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

mod sample;
use sample::{sample, sample_of_auto};

/// Fields of batching that the policy Timeout does not accept.
const OF_AUTO: [&str; 2] = ["prefer", "window"];

/// Paths of all leaves below `value`, as JSON pointers.
fn leaves(value: &Value, pointer: String, found: &mut Vec<String>) {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(k, v)| (k.clone(), v)).collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(i, v)| (i.to_string(), v))
            .collect(),
        _ => return found.push(pointer),
    };
    for (name, value) in below {
        leaves(value, format!("{pointer}/{name}"), found);
    }
}

/// Paths of leaves, each with the sample that contains it.
fn spec_leaves() -> Vec<(Value, String)> {
    let mut found = Vec::new();
    leaves(&sample()["spec"], "/spec".to_owned(), &mut found);
    let found = found.into_iter().map(|leaf| (sample(), leaf));
    let of_auto = ["/spec/batching", "/spec/models/0/batching"]
        .into_iter()
        .flat_map(|at| OF_AUTO.map(|field| (sample_of_auto(), format!("{at}/{field}"))));
    found.chain(of_auto).collect()
}

fn read(object: &Value) -> Result<InferenceDeployment, String> {
    read_deployment(&object.to_string(), "f.yaml").map_err(|error| error.to_string())
}

fn read_back(object: &Value) -> Value {
    serde_json::to_value(read(object).unwrap()).unwrap()
}

/// Parent of a pointer and its last name.
fn split(pointer: &str) -> (&str, &str) {
    pointer.rsplit_once('/').unwrap()
}

/// The name of the field at a pointer; for an item, that of its list.
fn field_name(pointer: &str) -> &str {
    pointer
        .rsplit('/')
        .find(|part| part.parse::<usize>().is_err())
        .unwrap()
}

/// Whether the values are equal as JSON, as numbers, as durations, or as the number and text of a
/// quantity.
fn means_the_same(given: &Value, read: &Value) -> bool {
    let span = |value: &Value| {
        value
            .as_str()
            .and_then(|text| text.parse::<Timespan>().ok())
    };
    given == read
        || given
            .as_f64()
            .is_some_and(|number| read.as_f64() == Some(number))
        || span(given).is_some_and(|duration| span(read) == Some(duration))
        || read.as_str() == Some(&given.to_string())
}

#[test]
fn the_sample_sets_every_field_of_the_schema() {
    fn visit(schema: &Value, value: &Value, path: &str) {
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            let found = &value[name];
            assert!(!found.is_null(), "the sample lacks {path}.{name}");
            let is_foreign = matches!(name.as_str(), "resources" | "template");
            if !is_foreign {
                visit(below, found, &format!("{path}.{name}"));
                visit(&below["items"], &found[0], &format!("{path}.{name}[0]"));
            }
        }
    }
    let crd = inference_deployment_crd();
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut both = sample();
    for at in ["/spec/batching", "/spec/models/0/batching"] {
        let auto = sample_of_auto().pointer(at).unwrap().clone();
        let batching = both.pointer_mut(at).unwrap();
        for field in OF_AUTO {
            batching[field] = auto[field].clone();
        }
    }
    visit(schema, &both["spec"], "spec");
    assert_eq!(read(&sample()).map(|_| ()), Ok(()));
    assert_eq!(read(&sample_of_auto()).map(|_| ()), Ok(()));
}

#[test]
fn a_field_that_is_removed_is_missed() {
    for (sample, pointer) in spec_leaves() {
        let (parent, name) = split(&pointer);
        let mut object = sample.clone();
        let Some(Value::Object(fields)) = object.pointer_mut(parent) else {
            continue;
        };
        fields.shift_remove(name);
        match read(&object) {
            Ok(_) => assert_ne!(read_back(&object), read_back(&sample), "{pointer}"),
            Err(message) => assert!(message.contains(name), "{pointer}: {message}"),
        }
    }
}

#[test]
fn a_field_that_is_renamed_is_refused_by_its_name() {
    for (sample, pointer) in spec_leaves() {
        let (parent, name) = split(&pointer);
        let mut object = sample.clone();
        let Some(Value::Object(fields)) = object.pointer_mut(parent) else {
            continue;
        };
        let is_free = ["limits", "annotations", "nodeSelector"]
            .iter()
            .any(|m| parent.ends_with(m));
        if is_free {
            continue;
        }
        let value = fields.shift_remove(name).unwrap();
        fields.insert(format!("{name}x"), value);
        let message = read(&object).unwrap_err();
        let said = format!("{name}x is not a field; did you mean \"{name}\"?");
        assert!(message.contains(&said), "{pointer}: {message}");
    }
}

/// Values of every type, including some that are valid for a field.
fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        (-3i64..3000).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e6..1e6f64).prop_map(Value::from),
        "[ -~äß€]{0,12}".prop_map(Value::from),
        "[1-9]{1,3}(us|ms|s)".prop_map(Value::from),
        prop::sample::select(vec![
            "Scatter",
            "Tuna",
            "None",
            "Enforce",
            "Pinned",
            "Auto",
            "ShortWaits",
            "Eager",
            "Deferred",
            "server",
            "file:///a",
            "pvc://a/b",
            "2Gi",
            "500m",
        ])
        .prop_map(Value::from),
        Just(json!([])),
        Just(json!([1, "a"])),
        Just(json!({})),
        Just(json!({"name": "x"})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn a_changed_value_is_read_or_refused_by_its_name(
        (sample, pointer) in prop::sample::select(spec_leaves()),
        value in any_value(),
    ) {
        let mut object = sample.clone();
        let before = std::mem::replace(object.pointer_mut(&pointer).unwrap(), value.clone());
        match read(&object) {
            Ok(_) => {
                let after = read_back(&object);
                let found = after.pointer(&pointer).unwrap_or(&Value::Null);
                prop_assert!(means_the_same(&value, found), "{pointer}: {value} became {found}");
                if !means_the_same(&value, &before) {
                    prop_assert_ne!(after, read_back(&sample));
                }
            }
            Err(message) => {
                let name = field_name(&pointer);
                prop_assert!(message.contains(name), "{pointer} = {value}: {message}");
            }
        }
    }
}

#[test]
fn on_one_machine_every_field_is_honored_noticed_or_refused() {
    let change = |pointer: &str, value: &Value| -> Value {
        match (field_name(pointer), value) {
            ("mode", _) => json!("Scatter"),
            ("policy", Value::String(old)) if old == "RoundRobin" => json!("Tuna"),
            ("policy", _) => json!("Deferred"),
            ("enforcement", _) => json!("Enforce"),
            ("mainThread", _) => json!("Pinned"),
            ("outputs", _) => json!("leaf"),
            ("uri", _) => json!("file:///models/other.ubj"),
            ("latency" | "contribs" | "interactions", _) => json!("30ms"),
            ("maxDelay", _) => json!("3ms"),
            ("prefer", _) => json!("ShortWaits"),
            ("window", _) => json!("30s"),
            ("cpu" | "memory", _) => json!("8"),
            (_, Value::Bool(is_set)) => json!(!is_set),
            (_, Value::Number(number)) => json!(number.as_f64().unwrap_or(0.0) as i64 + 1),
            (_, text) => json!(format!("{}-other", text.as_str().unwrap())),
        }
    };
    let machine = |object: &Value| {
        let machine = for_one_machine(&read(object)?, Path::new("/srv"));
        machine.map_err(|violations| violations[0].to_string())
    };
    for (sample, pointer) in spec_leaves() {
        let before = machine(&sample).unwrap();
        let mut object = sample;
        if pointer == "/spec/template/spec/containers/0/name" {
            continue; // Containers other than "server" run in a cluster only.
        }
        let value = object.pointer_mut(&pointer).unwrap();
        *value = change(&pointer, value);
        let Ok(after) = machine(&object) else {
            continue;
        };
        let field: Vec<&str> = pointer[1..].split('/').collect();
        let is_noticed = before.notices.iter().any(|notice| {
            let place = notice.split(' ').next().unwrap().replace(['[', ']'], ".");
            let noticed: Vec<&str> = place.split('.').filter(|p| !p.is_empty()).collect();
            field.starts_with(&noticed)
        });
        assert!(
            after != before || is_noticed,
            "{pointer} is passed over in silence"
        );
    }
}

#[test]
fn the_order_of_fields_does_not_matter() {
    let mut reversed = sample();
    let fields: Vec<(String, Value)> = reversed["spec"]
        .as_object()
        .unwrap()
        .clone()
        .into_iter()
        .rev()
        .collect();
    reversed["spec"] = Value::Object(fields.into_iter().collect::<Map<_, _>>());
    assert_eq!(read(&reversed), read(&sample()));
}
