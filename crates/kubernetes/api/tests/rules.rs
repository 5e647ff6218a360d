//! Tests each rule of the schema with an example that satisfies it and one that violates it. The
//! examples are whole specs, so that an API server can validate them, too.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use std::path::Path;

use albacore_api::{inference_deployment_crd, read_deployment};
use albacore_testbed::{ControlPlane, Options};
use serde_json::{Value, json};

/// The API server's message, an example that satisfies the rule, one that violates it, and the
/// field that the reader then reports.
type Example = (&'static str, Value, Value, &'static str);

/// The transition rule.
const STAYS: &str = "a deployment cannot change from the built-in server (models) to its own \
                     server or back: create another deployment and move the traffic";

fn examples() -> Vec<Example> {
    server_examples()
        .into_iter()
        .chain(batching_examples())
        .chain(examples_of_models())
        .collect()
}

fn model() -> Value {
    json!({"name": "m", "uri": "file:///m", "slo": {"latency": "25ms"}})
}

/// A spec with one model and the fields of `more`.
fn models(more: Value) -> Value {
    let mut spec = json!({ "models": [model()] });
    for (name, value) in more.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    spec
}

#[allow(clippy::too_many_lines)] // a table
fn server_examples() -> Vec<Example> {
    let template = |server: Value| json!({"spec": {"containers": [server]}});
    let own = || json!({"template": template(json!({"name": "server", "command": ["x"]}))});
    let mut own_with_batching = own();
    own_with_batching["batching"] = json!({"maxRows": 7});
    let mut own_with_scaling = own();
    own_with_scaling["autoscaling"] = json!({"maxReplicas": 2});
    let mut own_with_front = own();
    own_with_front["front"] = json!({"threads": 2});
    let mut own_with_trial = own();
    own_with_trial["placement"] = json!({"trial": {}});
    let with_arms = |arms: Value| json!({"placement": {"trial": {"arms": arms}}});
    vec![
        (
            "workers x threads must be at most 2048",
            models(json!({"workers": 32, "threads": 64})),
            models(json!({"workers": 33, "threads": 64})),
            "spec.threads",
        ),
        (
            "needs models, or a template with a container named \"server\"",
            own(),
            json!({"template": template(json!({"name": "sever", "command": ["x"]}))}),
            "spec.models",
        ),
        (
            "models are served by the built-in server: remove models, or command and args of the \
             container \"server\"",
            models(json!({"template": template(json!({"name": "server", "env": []}))})),
            models(json!({"template": template(json!({"name": "server", "args": ["x"]}))})),
            "spec.template.spec.containers[0].args",
        ),
        (
            "batching and queue apply to the built-in server only: remove them, or serve models",
            own(),
            own_with_batching,
            "spec.batching",
        ),
        (
            "front applies to the built-in server only: remove it, or serve models",
            models(json!({"front": {"threads": 2}})),
            own_with_front,
            "spec.front",
        ),
        (
            "should be greater than or equal to 1",
            models(json!({"front": {"threads": 1}})),
            models(json!({"front": {"threads": 0}})),
            "spec.front.threads",
        ),
        (
            "should be less than or equal to 256",
            models(json!({"front": {"threads": 256}})),
            models(json!({"front": {"threads": 257}})),
            "spec.front.threads",
        ),
        (
            "autoscaling uses measurements of the built-in server: serve models, or remove it and \
             let an HPA write the scale subresource",
            models(json!({"autoscaling": {"maxReplicas": 2}})),
            own_with_scaling,
            "spec.autoscaling",
        ),
        (
            "should have at least 2 items",
            models(with_arms(json!(["Compact", "RoundRobin"]))),
            models(with_arms(json!(["Compact"]))),
            "spec.placement.trial.arms",
        ),
        (
            "Duplicate value",
            own_with_trial,
            models(with_arms(json!(["None", "Compact", "None"]))),
            "spec.placement.trial.arms[2]",
        ),
        (
            "distances must not decrease in the order l1, l2, l3, numa, package, machine",
            models(json!({"placement": {"distances": {"l1": 9, "numa": 9, "machine": 10}}})),
            models(json!({"placement": {"distances": {"l1": 9, "numa": 30, "machine": 29}}})),
            "spec.placement.distances",
        ),
        (
            "should be less than or equal to 1000000",
            models(json!({"placement": {"distances": {"machine": 1_000_000}}})),
            models(json!({"placement": {"distances": {"machine": 1_000_001}}})),
            "spec.placement.distances.machine",
        ),
        (
            "should be greater than or equal to 1",
            models(json!({"placement": {"distances": {"l1": 1}}})),
            models(json!({"placement": {"distances": {"l1": -4}}})),
            "spec.placement.distances.l1",
        ),
        (
            "window must be at least 1s",
            models(json!({"placement": {"trial": {"window": "1s"}}})),
            models(json!({"placement": {"trial": {"window": "999ms"}}})),
            "spec.placement.trial.window",
        ),
    ]
}

#[allow(clippy::too_many_lines)] // a table
fn batching_examples() -> Vec<Example> {
    let threads = |of: Value| {
        let mut model = model();
        model["threads"] = of;
        json!({"threads": 4, "models": [model]})
    };
    vec![
        (
            "models[].threads must be auto or at most spec.threads: the threads of one worker \
             compute a batch",
            threads(json!(4)),
            threads(json!(5)),
            "spec.models[0].threads",
        ),
        (
            "should be greater than or equal to 1",
            threads(json!("auto")),
            threads(json!(0)),
            "spec.models[0].threads",
        ),
        (
            "should match '^auto$'",
            threads(json!(1)),
            threads(json!("all")),
            "spec.models[0].threads",
        ),
        (
            "maxDelay is required with policy Timeout and invalid with any other",
            models(json!({"batching": {"policy": "Timeout", "maxDelay": "2ms"}})),
            models(json!({"batching": {"maxDelay": "2ms"}})),
            "spec.batching.maxDelay",
        ),
        (
            "prefer is valid with policy Auto only",
            models(json!({"batching": {"prefer": "IdleWorkers"}})),
            models(json!({"batching": {"policy": "Eager", "prefer": "IdleWorkers"}})),
            "spec.batching.prefer",
        ),
        (
            "batching.maxDelay must be shorter than the slo.latency of every model",
            models(json!({"batching": {"policy": "Timeout", "maxDelay": "24999us"}})),
            models(json!({"batching": {"policy": "Timeout", "maxDelay": "25000us"}})),
            "spec.batching.maxDelay",
        ),
        (
            "window is valid with policy Auto or Deferred only",
            models(json!({"batching": {"policy": "Deferred", "window": "5ms"}})),
            models(json!({"batching": {"policy": "Eager", "window": "5ms"}})),
            "spec.batching.window",
        ),
        (
            "window is valid with policy Auto or Deferred only",
            models(json!({"batching": {"window": "5ms"}})),
            models(json!({"batching": {"policy": "Timeout", "maxDelay": "1ms", "window": "5ms"}})),
            "spec.batching.window",
        ),
        (
            "batching.policy Deferred needs slo.latency for every model that uses it",
            models(json!({"batching": {"policy": "Deferred"}})),
            json!({"models": [model(), {"name": "n", "uri": "file:///n"}],
                "batching": {"policy": "Deferred"}}),
            "spec.models[1].slo",
        ),
        (
            "queue.maxRows must hold one batch: at least batching.maxRows",
            models(json!({"queue": {"maxRows": 1024}})),
            models(json!({"queue": {"maxRows": 1023}})),
            "spec.queue.maxRows",
        ),
        (
            "minReplicas must not be above maxReplicas",
            models(json!({"autoscaling": {"minReplicas": 2, "maxReplicas": 2}})),
            models(json!({"autoscaling": {"minReplicas": 3, "maxReplicas": 2}})),
            "spec.autoscaling.minReplicas",
        ),
        (
            "must be at most 600s",
            json!({"models": [{"name": "m", "uri": "file:///m", "slo": {"latency": "600s"}}]}),
            json!({"models": [{"name": "m", "uri": "file:///m", "slo": {"latency": "601s"}}]}),
            "spec.models[0].slo.latency",
        ),
    ]
}

#[allow(clippy::too_many_lines)] // a table
fn examples_of_models() -> Vec<Example> {
    // A model with an overridden field, next to one without, with the common batching `common`.
    let own = |common: Value, own: Value| {
        let mut model = model();
        for (name, value) in own.as_object().into_iter().flatten() {
            model[name] = value.clone();
        }
        let other = json!({"name": "n", "uri": "file:///n", "slo": {"latency": "25ms"}});
        json!({"models": [model, other], "batching": common})
    };
    let batching = |common: Value, batching: Value| own(common, json!({ "batching": batching }));
    let timeout = || json!({"policy": "Timeout", "maxDelay": "2ms"});
    let none = || json!({});
    vec![
        (
            "should be greater than or equal to 1",
            own(none(), json!({"weight": 1})),
            own(none(), json!({"weight": 0})),
            "spec.models[0].weight",
        ),
        (
            "should be less than or equal to 10000",
            own(none(), json!({"weight": 10_000})),
            own(none(), json!({"weight": 10_001})),
            "spec.models[0].weight",
        ),
        (
            "Unsupported value: \"Neither\"",
            batching(none(), json!({"prefer": "IdleWorkers"})),
            batching(none(), json!({"prefer": "Neither"})),
            "spec.models[0].batching.prefer",
        ),
        (
            "models[].batching.maxDelay is required with policy Timeout and invalid with any other",
            batching(none(), json!({"policy": "Timeout", "maxDelay": "2ms"})),
            batching(none(), json!({"policy": "Timeout"})),
            "spec.models[0].batching.maxDelay",
        ),
        (
            "models[].batching.maxDelay is required with policy Timeout and invalid with any other",
            batching(timeout(), json!({"policy": "Eager"})),
            batching(timeout(), json!({"policy": "Eager", "maxDelay": "2ms"})),
            "spec.models[0].batching.maxDelay",
        ),
        (
            "models[].batching.prefer is valid with policy Auto only",
            batching(json!({"prefer": "IdleWorkers"}), json!({"policy": "Eager"})),
            batching(timeout(), json!({"prefer": "IdleWorkers"})),
            "spec.models[0].batching.prefer",
        ),
        (
            "models[].batching.window is valid with policy Auto or Deferred only",
            batching(timeout(), json!({"policy": "Auto", "window": "5ms"})),
            batching(timeout(), json!({"window": "5ms"})),
            "spec.models[0].batching.window",
        ),
        (
            "models[].batching.window is valid with policy Auto or Deferred only",
            batching(json!({"window": "5ms"}), json!({"policy": "Eager"})),
            batching(none(), json!({"policy": "Eager", "window": "5ms"})),
            "spec.models[0].batching.window",
        ),
        (
            "models[].batching.maxDelay must be shorter than the model's slo.latency",
            batching(timeout(), json!({"maxDelay": "24ms"})),
            batching(timeout(), json!({"maxDelay": "25ms"})),
            "spec.models[0].batching.maxDelay",
        ),
        (
            "batching.maxDelay must be shorter than the slo.latency of every model",
            own(
                timeout(),
                json!({"slo": {"latency": "2ms"}, "batching": {"policy": "Eager"}}),
            ),
            own(
                timeout(),
                json!({"slo": {"latency": "2ms"}, "batching": {"maxRows": 5}}),
            ),
            "spec.batching.maxDelay",
        ),
        (
            "batching.policy Deferred needs slo.latency for every model that uses it",
            own(
                json!({"policy": "Deferred"}),
                json!({"slo": null, "batching": {"policy": "Eager"}}),
            ),
            own(
                none(),
                json!({"slo": null, "batching": {"policy": "Deferred"}}),
            ),
            "spec.models[0].slo",
        ),
        (
            "queue.maxRows must hold one batch: at least every models[].batching.maxRows",
            batching(none(), json!({"maxRows": 65_536})),
            {
                let mut spec = batching(none(), json!({"maxRows": 2000}));
                spec["queue"] = json!({"maxRows": 1999});
                spec
            },
            "spec.queue.maxRows",
        ),
    ]
}

#[test]
fn the_front_end_has_no_more_threads_than_the_container_has_cpus() {
    let spec = |threads: u16, limit: Value| {
        let limits = json!({"limits": {"cpu": limit}});
        read(
            "m",
            &models(json!({"front": {"threads": threads}, "resources": limits})),
        )
    };
    for (threads, limit) in [(4, json!(4)), (2, json!("2500m")), (1, json!("500m"))] {
        assert_eq!(spec(threads, limit.clone()), Ok(()), "{threads} {limit}");
    }
    let message = spec(3, json!("2500m")).unwrap_err();
    let said = "f.yaml:1: spec.front.threads is 3, more than the cpus of the server container, \
                whose limit is 2.5; lower it or raise the limit";
    assert!(message.starts_with(said), "{message}");
    let container = json!({"name": "server", "resources": {"limits": {"cpu": "2"}}});
    let template = json!({"spec": {"containers": [container]}});
    let spec = models(json!({"front": {"threads": 3}, "template": template}));
    let message = read("m", &spec).unwrap_err();
    assert!(message.contains("whose limit is 2;"), "{message}");
}

fn object(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": name}, "spec": spec})
}

fn read(name: &str, spec: &Value) -> Result<(), String> {
    let read = read_deployment(&object(name, spec).to_string(), "f.yaml");
    read.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn every_rule_has_an_example_that_keeps_it_and_one_that_breaks_it() {
    for (rule, keeps, breaks, field) in examples() {
        assert_eq!(read("m", &keeps), Ok(()), "{rule}");
        let message = read("m", &breaks).unwrap_err();
        assert!(
            message.starts_with(&format!("f.yaml:1: {field} ")),
            "{rule}: {message}"
        );
    }
    let spec = &examples()[0].1;
    for name in ["fraud", "a", &"a".repeat(63), "a-1"] {
        assert_eq!(read(name, spec), Ok(()), "{name}");
    }
    for name in ["Fraud", "1a", "a-", "a.b", "a_b", &"a".repeat(64), ""] {
        let message = read(name, spec).unwrap_err();
        assert!(
            message.starts_with("f.yaml:1: metadata.name "),
            "{name}: {message}"
        );
    }
}

#[test]
fn every_rule_of_the_schema_has_its_example() {
    fn messages(schema: &Value, found: &mut Vec<String>) {
        for rule in schema["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            found.push(rule["message"].as_str().unwrap().to_owned());
        }
        for (_, below) in schema["properties"].as_object().into_iter().flatten() {
            messages(below, found);
        }
        if schema["items"].is_object() {
            messages(&schema["items"], found);
        }
    }
    let crd = inference_deployment_crd();
    let mut found = Vec::new();
    messages(
        &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
        &mut found,
    );
    assert!(found.len() >= 12, "{found:?}");
    let has_example = |message: &String| {
        // The rule on the name is tested with names, the transition rule by changes.
        message.starts_with("metadata.name")
            || message == STAYS
            || examples().iter().any(|e| e.0 == message)
    };
    let without: Vec<_> = found
        .iter()
        .filter(|message| !has_example(message))
        .collect();
    assert!(without.is_empty(), "{without:?}");
}

/// Creates `object` in a dry run; returns the API server's error.
fn dry_run(plane: &ControlPlane, object: &Value) -> Result<(), String> {
    run_kubectl(plane, &["create", "--dry-run=server"], object)
}

/// Runs `kubectl` with `arguments` and `object` as its file; returns the API server's error.
fn run_kubectl(plane: &ControlPlane, arguments: &[&str], object: &Value) -> Result<(), String> {
    let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
    std::fs::write(file.path(), object.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    let arguments = [arguments, &["--validate=strict", "-f", path]].concat();
    let output = plane.kubectl(&arguments).unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8(output.stderr).unwrap())
}

#[test]
fn the_api_server_and_the_reader_apply_the_same_rules() {
    let mut plane = ControlPlane::start(&Options::default()).unwrap();
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../crds");
    plane.serve_crds(&crds).unwrap();
    let run = |arguments: &[&str]| {
        let output = plane.kubectl(arguments).unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    for file in ["fraud.yaml", "gunicorn.yaml"] {
        let path = format!("{}/../../../examples/{file}", env!("CARGO_MANIFEST_DIR"));
        run(&[
            "create",
            "--dry-run=server",
            "--validate=strict",
            "-f",
            &path,
        ]);
    }
    for (rule, keeps, breaks, _) in examples() {
        assert_eq!(dry_run(&plane, &object("m", &keeps)), Ok(()), "{rule}");
        let message = dry_run(&plane, &object("m", &breaks)).unwrap_err();
        assert!(message.contains(rule), "{rule}: {message}");
    }
    let spec = &examples()[0].1;
    for name in ["1a", "a.b", &"a".repeat(64)] {
        let message = dry_run(&plane, &object(name, spec)).unwrap_err();
        assert!(
            message.contains("becomes the name of a Service"),
            "{name}: {message}"
        );
    }
    change_the_kind_of_server(&plane);
    iterations_have_two_forms(&plane);
    let mut unknown = object("m", spec);
    unknown["spec"]["batchng"] = json!({});
    let message = dry_run(&plane, &unknown).unwrap_err();
    assert!(message.contains("spec.batchng"), "{message}");
}

/// A name or two numbers, and every change between them, which no type of the schema can express.
fn iterations_have_two_forms(plane: &ControlPlane) {
    let with = |iterations: &Value| {
        let mut model = model();
        model["iterations"] = iterations.clone();
        object("iterations", &json!({ "models": [model] }))
    };
    let range = json!({"begin": 0, "end": 100});
    for good in [
        json!("All"),
        range.clone(),
        json!("Best"),
        range,
        json!("All"),
    ] {
        let applied = run_kubectl(plane, &["apply", "--server-side"], &with(&good));
        assert_eq!(applied, Ok(()), "{good}");
        let path = "jsonpath={.spec.models[0].iterations}";
        let stored = plane.kubectl(&["get", "infd", "iterations", "-o", path]);
        let stored = String::from_utf8(stored.unwrap().stdout).unwrap();
        let stored = serde_json::from_str(&stored).unwrap_or(json!(stored));
        assert_eq!(stored, good);
    }
    for wrong in [
        json!("best"),
        json!(""),
        json!(7),
        json!(true),
        json!([]),
        json!(["All"]),
        json!({}),
        json!({"begin": 0}),
        json!({"end": 3}),
        json!({"begin": 0, "end": 3, "step": 1}),
        json!({"begin": 0, "stop": 3}),
        json!({"begin": "0", "end": 3}),
        json!({"begin": -1, "end": 3}),
        json!({"begin": 0, "end": 0}),
        json!({"begin": 0.5, "end": 3}),
    ] {
        let answer = dry_run(plane, &with(&wrong));
        assert!(answer.is_err(), "{wrong} is taken");
        let message = answer.unwrap_err();
        assert!(
            message.contains("spec.models[0].iterations"),
            "{wrong}: {message}"
        );
        assert!(
            read_deployment(&with(&wrong).to_string(), "f.yaml").is_err(),
            "{wrong}"
        );
    }
}

fn change_the_kind_of_server(plane: &ControlPlane) {
    let own = json!({"template": {"spec": {"containers": [{"name": "server", "image": "x"}]}}});
    let two = json!({"models": [model(), {"name": "n", "uri": "file:///n"}]});
    let put = |name: &str, spec: &Value| run_kubectl(plane, &["replace"], &object(name, spec));
    for (name, first, other) in [("models", &two, &own), ("own", &own, &two)] {
        run_kubectl(plane, &["create"], &object(name, first)).unwrap();
        let message = put(name, other).unwrap_err();
        assert!(message.contains(STAYS), "{name}: {message}");
    }
    assert_eq!(put("models", &models(json!({}))), Ok(()));
}
