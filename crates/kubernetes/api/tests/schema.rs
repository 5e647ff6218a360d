//! Tests that the CustomResourceDefinition is accepted by the API server, consistent with the
//! types, and documented.
use albacore_api::{DriftCause, inference_deployment_crd, node_placement_crd, read_deployment};
use serde_json::{Value, json};

fn openapi(crd: &Value) -> &Value {
    &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

/// Every schema below `schema` with its path.
fn each<'a>(schema: &'a Value, path: String, visit: &mut impl FnMut(&str, &'a Value)) {
    visit(&path, schema);
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        each(below, format!("{path}.{name}"), visit);
    }
    for (part, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[part].is_object() {
            each(&schema[part], format!("{path}{mark}"), visit);
        }
    }
}

#[test]
fn names_and_subresources_are_those_of_the_contract() {
    let crd = inference_deployment_crd();
    let spec = &crd["spec"];
    assert_eq!(crd["metadata"]["name"], "inferencedeployments.albacore.dev");
    assert_eq!(spec["group"], "albacore.dev");
    assert_eq!(spec["scope"], "Namespaced");
    assert_eq!(spec["names"]["shortNames"], json!(["infd"]));
    assert_eq!(spec["names"]["categories"], json!(["all", "albacore"]));
    let version = &spec["versions"][0];
    assert_eq!(version["name"], "v1beta1");
    assert!(version["subresources"]["status"].is_object());
    assert_eq!(
        version["subresources"]["scale"],
        json!({
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        })
    );
}

#[test]
fn every_field_of_albacore_has_a_description() {
    let crd = inference_deployment_crd();
    each(openapi(&crd), String::new(), &mut |path, schema| {
        let is_ours = !path.starts_with(".spec.template.") && !path.starts_with(".spec.resources.");
        let is_foreign = path.contains("conditions[]") || path.is_empty() || path.ends_with("[]");
        if is_ours && !is_foreign {
            let text = schema["description"].as_str().unwrap_or_default();
            assert!(text.len() > 10 && text.ends_with('.'), "{path}: {text:?}");
        }
        for value in schema["enum"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|_| is_ours)
        {
            let text = schema["description"].as_str().unwrap_or_default();
            assert!(
                text.contains(&format!("\n\n{}: ", value.as_str().unwrap())),
                "{path}: {text}"
            );
        }
    });
}

#[test]
fn the_schema_is_structural_and_has_no_format_that_the_api_server_warns_of() {
    let crd = inference_deployment_crd();
    let mut schemas = 0;
    each(openapi(&crd), String::new(), &mut |path, schema| {
        schemas += 1;
        if path == ".spec.models[].iterations" {
            // A name or an object, which no type can express but these two alternatives do.
            assert!(schema["type"].is_null());
            assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true);
            let object = json!({"required": ["begin", "end"], "maxProperties": 2,
                "not": {"maxProperties": 1}});
            assert_eq!(schema["oneOf"], json!([{"enum": ["All", "Best"]}, object]));
            return;
        }
        let is_typed = schema["type"].is_string() || schema["x-kubernetes-int-or-string"] == true;
        assert!(is_typed, "{path} has no type");
        for absent in [
            "nullable",
            "$ref",
            "oneOf",
            "anyOf",
            "allOf",
            "const",
            "exclusiveMaximum",
        ] {
            assert!(schema[absent].is_null(), "{path} has {absent}");
        }
        let known = [
            None,
            Some("int32"),
            Some("int64"),
            Some("double"),
            Some("date-time"),
            Some("byte"),
        ];
        assert!(
            known.contains(&schema["format"].as_str()),
            "{path} has format {}",
            schema["format"]
        );
    });
    assert!(schemas > 500, "{schemas}");
    let bytes = crd.to_string().len();
    assert!(
        bytes < 200_000,
        "{bytes} bytes do not fit into the annotation of `kubectl apply`"
    );
}

#[test]
fn every_printer_column_shows_a_field_of_the_schema() {
    let crd = inference_deployment_crd();
    let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"]
        .as_array()
        .unwrap();
    let names: Vec<&str> = columns
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "Ready", "Model", "Mode", "WxT", "SLO", "Pinned", "Age", "Goodput", "P99", "BadRate",
            "URL"
        ]
    );
    for column in columns {
        let path = column["jsonPath"].as_str().unwrap();
        if path == ".metadata.creationTimestamp" {
            continue;
        }
        let found = path[1..].split('.').fold(openapi(&crd), |schema, part| {
            match part.strip_suffix("[0]") {
                Some(list) => &schema["properties"][list]["items"],
                None => &schema["properties"][part],
            }
        });
        assert_eq!(found["type"], "string", "{path}");
    }
}

/// `value` with the defaults of `schema` applied, like the API server.
fn with_defaults(schema: &Value, value: &mut Value) {
    let Some(fields) = value.as_object_mut() else {
        for item in value.as_array_mut().into_iter().flatten() {
            with_defaults(&schema["items"], item);
        }
        return;
    };
    for (name, below) in schema["properties"].as_object().into_iter().flatten() {
        if !below["default"].is_null() && !fields.contains_key(name) {
            fields.insert(name.clone(), below["default"].clone());
        }
        if let Some(field) = fields.get_mut(name) {
            with_defaults(below, field);
        }
    }
}

#[test]
fn the_types_fill_in_what_the_api_server_fills_in() {
    let crd = inference_deployment_crd();
    for spec in [
        json!({"models": [{"name": "m", "uri": "file:///m", "slo": {"latency": "1s"}}]}),
        json!({"models": [{"name": "m", "uri": "file:///m"}], "batching": {"maxRows": 2},
            "placement": {"policy": "None"}, "queue": {}, "autoscaling": {"maxReplicas": 2}}),
    ] {
        let mut object = json!({"apiVersion": "albacore.dev/v1alpha1",
            "kind": "InferenceDeployment", "metadata": {"name": "m"}, "spec": spec});
        let read = read_deployment(&object.to_string(), "m.yaml").unwrap();
        with_defaults(openapi(&crd), &mut object);
        assert_eq!(serde_json::to_value(&read).unwrap(), object);
    }
}

#[test]
fn every_cause_of_a_drift_is_documented_and_no_other() {
    let crd = node_placement_crd();
    let pod = &openapi(&crd)["properties"]["status"]["properties"]["pods"]["items"];
    let cause = &pod["properties"]["drift"]["properties"]["cause"];
    let names = DriftCause::ALL.map(DriftCause::name);
    assert_eq!(cause["enum"], json!(names));
    let text = cause["description"].as_str().unwrap_or_default();
    let described: Vec<&str> = text
        .split("\n\n")
        .skip(1)
        .filter_map(|part| Some(part.split_once(": ")?.0))
        .collect();
    assert_eq!(described, names);
    for (cause, name) in DriftCause::ALL.into_iter().zip(names) {
        assert_eq!(serde_json::to_value(cause).ok(), Some(json!(name)));
    }
}
