//! Tests of the children built from given specs, and of invariants over random specs.

use std::time::Duration;

use albacore_api::{InferenceDeployment, read_deployment};
use albacore_settings::{ModelBatching, Policy, Prefer, Settings};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::names::SETTINGS_KEY;
use crate::validate::validate;

fn deployment(spec: &Value) -> InferenceDeployment {
    let object = json!({"apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud", "namespace": "bank", "uid": "u"}, "spec": spec});
    read_deployment(&object.to_string(), "f.yaml").unwrap()
}

fn built(spec: &Value) -> Vec<ChildObject> {
    let build_context = BuildContext {
        built_in: BuiltInOptions {
            image: "server:1".to_owned(),
            params_url: Some("http://params:8082".to_owned()),
        },
        has_service_monitors: true,
        replicas: Some(2),
        selects_traffic: false,
    };
    build(&validate(&deployment(spec)).unwrap(), &build_context)
}

fn child(spec: &Value, kind: ChildKind) -> Option<Value> {
    let children = built(spec).into_iter();
    children.filter(|c| c.kind == kind).map(|c| c.body).next()
}

fn pod(spec: &Value) -> Value {
    child(spec, ChildKind::Deployment).unwrap()["spec"]["template"].take()
}

fn model() -> Value {
    json!({"models": [{"name": "m", "uri": "pvc://models/v1/m.ubj", "slo": {"latency": "25ms"}}]})
}

fn with(mut spec: Value, field: &str, value: Value) -> Value {
    spec[field] = value;
    spec
}

fn with_server(spec: Value, server: Value) -> Value {
    let mut named = json!({"name": "server"});
    overlay::merge(&mut named, &server);
    with(spec, "template", json!({"spec": {"containers": [named]}}))
}

/// Asserts that every built field exists in the kind: deserializing and serializing returns the
/// same body.
#[track_caller]
fn assert_typed<T: DeserializeOwned + Serialize>(spec: &Value, kind: ChildKind) {
    let Some(body) = child(spec, kind) else {
        return;
    };
    let typed: T = serde_json::from_value(body.clone()).unwrap();
    let back = serde_json::to_value(typed).unwrap();
    assert_contains(&back, &body, kind.kind());
}

#[track_caller]
fn assert_contains(found: &Value, wanted: &Value, at: &str) {
    match wanted {
        Value::Object(fields) => fields.iter().for_each(|(name, wanted)| {
            assert_contains(&found[name], wanted, &format!("{at}.{name}"));
        }),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, wanted)| {
            assert_contains(&found[index], wanted, &format!("{at}[{index}]"));
        }),
        wanted => assert_eq!(found, wanted, "{at}"),
    }
}

fn user_server() -> Value {
    let server = json!({"image": "me:1", "command": ["gunicorn"],
        "ports": [{"containerPort": 8000}], "envFrom": [{"secretRef": {"name": "s"}}]});
    with_server(json!({"workers": 3, "threads": 2}), server)
}

#[test]
fn every_child_is_made_of_fields_of_its_kind() {
    for spec in [
        model(),
        user_server(),
        with_server(user_server(), json!({"image": "x"})),
    ] {
        assert_typed::<ServiceAccount>(&spec, ChildKind::ServiceAccount);
        assert_typed::<ConfigMap>(&spec, ChildKind::ConfigMap);
        assert_typed::<Service>(&spec, ChildKind::Service);
        assert_typed::<Service>(&spec, ChildKind::PodsService);
        assert_typed::<NetworkPolicy>(&spec, ChildKind::NetworkPolicy);
        assert_typed::<PodDisruptionBudget>(&spec, ChildKind::PodDisruptionBudget);
        assert_typed::<Deployment>(&spec, ChildKind::Deployment);
    }
}

#[test]
fn every_child_has_the_name_the_labels_and_the_owner() {
    let children = built(&model());
    let kinds: Vec<ChildKind> = children.iter().map(|c| c.kind).collect();
    assert_eq!(kinds, ChildKind::ALL);
    for child in children {
        let metadata = &child.body["metadata"];
        let is_headless = child.kind == ChildKind::PodsService;
        let name = if is_headless { "fraud-pods" } else { "fraud" };
        assert_eq!(metadata["name"], name);
        assert_eq!(metadata["namespace"], "bank");
        assert_eq!(metadata["labels"]["albacore.dev/deployment"], "fraud");
        assert_eq!(
            metadata["labels"]["app.kubernetes.io/managed-by"],
            "albacore"
        );
        assert_eq!(metadata["ownerReferences"][0]["uid"], "u");
        assert_eq!(metadata["ownerReferences"][0]["controller"], true);
        assert_eq!(
            metadata["annotations"]["albacore.dev/applied"],
            child.digest
        );
    }
}

#[test]
fn pods_are_restricted_and_drain_before_they_stop() {
    for spec in [model(), user_server()] {
        let pod = &pod(&spec)["spec"];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["runAsUser"], 65532);
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        assert_eq!(pod["automountServiceAccountToken"], false);
        let server = &pod["containers"][0];
        let security = &server["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
        assert_eq!(security["readOnlyRootFilesystem"], true);
    }
}

#[test]
fn pods_serve_for_5_s_after_they_have_left_their_services() {
    let variable = |pod: &Value, name: &str| {
        let env = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        let found = env.iter().find(|variable| variable["name"] == name);
        found.map(|variable| variable["value"].clone())
    };
    let pause = |pod: &Value| {
        pod["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"].clone()
    };
    // The built-in server delays its shutdown itself; for a user's own server the kubelet waits
    // before it sends SIGTERM.
    let delay = "ALBACORE_DRAIN_DELAY";
    let ours = pod(&model());
    assert_eq!(variable(&ours, delay), Some("5s".into()));
    assert_eq!(pause(&ours), Value::Null);
    let theirs = pod(&user_server());
    assert_eq!((variable(&theirs, delay), pause(&theirs)), (None, 5.into()));
    // A pinned image changes only the image; any other change would restart the pods.
    let (_, mut pinned) = template_with(&model(), Some("server:1"));
    let (_, unpinned) = template_with(&model(), None);
    pinned["metadata"] = unpinned["metadata"].clone();
    assert_eq!(pinned, unpinned);

    let header = "ALBACORE_ENVOY_HEALTH_HEADER";
    assert_eq!(variable(&ours, header), None);
    let enabled = with(model(), "front", json!({"envoyHealthHeader": true}));
    assert_eq!(variable(&pod(&enabled), header), Some("true".into()));
}

#[test]
fn the_headless_service_has_the_ports_of_the_pods() {
    let service = child(&model(), ChildKind::PodsService).unwrap();
    let spec = &service["spec"];
    assert_eq!(spec["clusterIP"], "None");
    assert_eq!(
        spec["selector"],
        json!({"albacore.dev/deployment": "fraud"})
    );
    let port = |index: usize| (&spec["ports"][index]["name"], &spec["ports"][index]["port"]);
    assert_eq!(port(0), (&"http".into(), &8080.into()));
    assert_eq!(port(1), (&"grpc".into(), &8081.into()));
    let service = child(&user_server(), ChildKind::PodsService).unwrap();
    let ports = &service["spec"]["ports"];
    assert_eq!(ports[0]["port"], 8000);
    assert_eq!(ports[1], Value::Null);
    // Prometheus scrapes each pod once.
    let monitor = child(&model(), ChildKind::ServiceMonitor).unwrap();
    let (left_out, by) = (&monitor["spec"]["selector"], &service["metadata"]["labels"]);
    let label = &left_out["matchExpressions"][0]["key"];
    assert_eq!(by[label.as_str().unwrap()], "");
}

#[test]
fn every_deployment_has_a_headless_service_with_a_name_of_its_own() {
    let name = crate::names::pods_service;
    let (short, long) = ("a".repeat(58), "a".repeat(59));
    assert_eq!(name(&short), format!("{short}-pods"));
    let names = [
        name(&long),
        name(&format!("{long}b")),
        name(&"a".repeat(63)),
    ];
    assert!(names.iter().all(|name| name.len() == 63), "{names:?}");
    assert!(
        names.iter().all(|name| name.ends_with("-pods")),
        "{names:?}"
    );
    assert_ne!(names[0], names[1]);
    assert_ne!(names[0], names[2]);
}

#[test]
fn the_settings_hold_the_batching_and_the_weight_of_each_model() {
    let mut spec = model();
    spec["batching"] = json!({"policy": "Timeout", "maxDelay": "2ms", "maxRows": 64});
    spec["models"][0]["batching"] = json!({"maxRows": 8});
    let other = json!({"name": "n", "uri": "pvc://models/v1/n.ubj", "slo": {"latency": "9ms"},
        "weight": 250, "batching": {"policy": "Auto", "prefer": "IdleWorkers", "window": "3ms"}});
    spec["models"].as_array_mut().unwrap().push(other);
    let map = child(&spec, ChildKind::ConfigMap).unwrap();
    let text = map["data"][SETTINGS_KEY].as_str().unwrap();
    let settings = Settings::read(text).unwrap();
    let of = |policy, batch_rows_max, window| {
        Some(ModelBatching {
            policy,
            batch_rows_max,
            window,
        })
    };
    let millis = Duration::from_millis;
    let timeout = Policy::Timeout { delay: millis(2) };
    let batching: Vec<_> = settings.models.iter().map(|model| model.batching).collect();
    let auto = of(Policy::Auto(Prefer::IdleWorkers), 64, Some(millis(3)));
    assert_eq!(batching, [of(timeout, 8, None), auto]);
    assert_eq!(
        (settings.models[0].weight, settings.models[1].weight),
        (100, 250)
    );
    let plain = child(&model(), ChildKind::ConfigMap).unwrap();
    let text = plain["data"][SETTINGS_KEY].as_str().unwrap();
    assert!(
        !text.contains("weight"),
        "servers of before know no such field: {text}"
    );
    let restart = |spec: &Value| pod(spec)["spec"]["containers"][0].take();
    assert_eq!(
        restart(&spec),
        restart(&model()),
        "no pod is started for it"
    );
}

#[test]
fn the_threads_of_the_front_end_are_an_argument_of_the_server() {
    let arguments = |spec: &Value| pod(spec)["spec"]["containers"][0]["args"].take();
    let plain = arguments(&model());
    assert_eq!(plain.as_array().unwrap().len(), 2, "{plain}");
    let front = with(model(), "front", json!({"threads": 3}));
    let arguments = arguments(&front);
    assert_eq!(arguments[0], plain[0]);
    assert_eq!(
        (&arguments[2], &arguments[3]),
        (&"--front-threads".into(), &"3".into())
    );
}

#[test]
fn the_settings_match_the_spec_and_name_the_paths_of_the_files() {
    let mut spec = model();
    spec["models"][0]["uri"] = format!("pvc://models/v1/m.ubj#sha256={}", "ab".repeat(32)).into();
    let others = [
        json!({"name": "n", "uri": "configmap://small/n.json"}),
        json!({"name": "o", "uri": "https://host/o.txt"}),
        json!({"name": "p", "uri": "pvc://models/v2/p.ubj"}),
    ];
    spec["models"].as_array_mut().unwrap().extend(others);
    spec["batching"] = json!({"policy": "Timeout", "maxDelay": "2ms", "maxRows": 64});
    let map = child(&spec, ChildKind::ConfigMap).unwrap();
    let text = map["data"]["settings.yaml"].as_str().unwrap();
    for line in [
        "path: \"/models/pvc/models/v1/m.ubj\"",
        "path: \"/models/configmap/small/n.json\"",
        "url: \"https://host/o.txt\"",
        "latency: \"25ms\"",
        "policy: timeout",
        "max_delay: \"2ms\"",
        "max_rows: 64",
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
    assert!(text.contains(&"ab".repeat(32)));
    let pod = &pod(&spec)["spec"];
    let claims: Vec<&Value> = pod["volumes"].as_array().unwrap().iter().collect();
    assert_eq!(
        claims.len(),
        3,
        "one claim, one ConfigMap, the settings: {claims:?}"
    );
    let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
    assert!(
        mounts
            .iter()
            .all(|m| m["readOnly"] == true && m["subPath"].is_null())
    );
}

#[test]
fn a_server_of_the_users_own_gets_its_thread_counts_unless_it_sets_them() {
    let server = json!({"image": "me:1", "ports": [{"containerPort": 8000}],
        "env": [{"name": "OMP_NUM_THREADS", "value": "7"},
            {"name": "MKL_NUM_THREADS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]});
    let spec = with_server(json!({"workers": 3, "threads": 2}), server);
    let container = &pod(&spec)["spec"]["containers"][0];
    let env = container["env"].as_array().unwrap();
    let of = |name: &str| env.iter().find(|v| v["name"] == name).unwrap();
    assert_eq!(of("OMP_NUM_THREADS")["value"], "7");
    assert!(of("MKL_NUM_THREADS")["value"].is_null());
    assert_eq!(of("ALBACORE_WORKERS")["value"], "3");
    assert_eq!(of("OPENBLAS_NUM_THREADS")["value"], "2");
    assert_eq!(child(&spec, ChildKind::ConfigMap), None);
    let service = child(&spec, ChildKind::Service).unwrap();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 8000);

    let from = user_server();
    let container = &pod(&from)["spec"]["containers"][0];
    let sources = container["envFrom"].as_array().unwrap();
    assert_eq!(
        sources[0]["configMapRef"]["name"], "fraud",
        "the first: the user's go before it"
    );
    assert_eq!(sources[1]["secretRef"]["name"], "s");
    let map = child(&from, ChildKind::ConfigMap).unwrap();
    assert_eq!(map["data"]["OMP_NUM_THREADS"], "2");
    let env = container["env"].as_array().unwrap();
    assert!(env.iter().all(|v| v["name"] != "OMP_NUM_THREADS"));
}

#[test]
fn the_template_overrides_generated_fields() {
    let spec = with(
        model(),
        "template",
        json!({
            "metadata": {"labels": {"team": "x"}, "annotations": {"a": "b"}},
            "spec": {
                "terminationGracePeriodSeconds": 90,
                "nodeSelector": {"disk": "ssd"},
                "volumes": [{"name": "extra", "emptyDir": {}}],
                "containers": [
                    {"name": "sidecar", "image": "s"},
                    {"name": "server", "image": "mine", "env": [{"name": "A", "value": "1"}],
                        "readinessProbe": {"exec": {"command": ["x"]}},
                        "securityContext": {"readOnlyRootFilesystem": false}},
                ],
            },
        }),
    );
    let pod = pod(&spec);
    assert_eq!(pod["metadata"]["labels"]["team"], "x");
    assert_eq!(
        pod["metadata"]["labels"]["albacore.dev/deployment"],
        "fraud"
    );
    let spec = &pod["spec"];
    assert_eq!(spec["terminationGracePeriodSeconds"], 90);
    assert_eq!(spec["volumes"].as_array().unwrap().len(), 3);
    let server = &spec["containers"][0];
    assert_eq!(
        (&server["name"], &server["image"]),
        (&json!("server"), &json!("mine"))
    );
    assert_eq!(server["env"].as_array().unwrap().len(), 5);
    assert!(server["readinessProbe"]["httpGet"].is_null());
    assert_eq!(
        server["readinessProbe"]["periodSeconds"], 5,
        "field by field"
    );
    assert_eq!(server["securityContext"]["readOnlyRootFilesystem"], false);
    assert_eq!(server["securityContext"]["allowPrivilegeEscalation"], false);
}

#[test]
#[allow(clippy::too_many_lines)] // a table
fn fields_that_break_the_contract_are_refused_by_name() {
    let refused = |spec: &Value| {
        let violations = validate(&deployment(spec)).unwrap_err();
        violations
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    };
    let server = "spec.template.spec.containers[0]";
    for (spec, says) in [
        (
            json!({"models": [{"name": "m", "uri": "file://./m.ubj"}]}),
            "spec.models[0].uri is \"file://./m.ubj\"".to_owned(),
        ),
        (
            json!({"models": [{"name": "m", "uri": "pvc://models/../m.ubj"}]}),
            "spec.models[0].uri is \"pvc://models/../m.ubj\"".to_owned(),
        ),
        (
            with(model(), "template", json!({"metadata": {"name": "x"}})),
            "spec.template.metadata.name is not copied to pods".to_owned(),
        ),
        (
            with(
                model(),
                "template",
                json!({"metadata": {"labels": {"albacore.dev/deployment": "x"}}}),
            ),
            "spec.template.metadata.labels[albacore.dev/deployment] is set".to_owned(),
        ),
        (
            with(
                model(),
                "template",
                json!({"spec": {"containers": [],
                "volumes": [{"name": "albacore-settings", "emptyDir": {}}]}}),
            ),
            "spec.template.spec.volumes[0].name is \"albacore-settings\"".to_owned(),
        ),
        (
            with_server(
                model(),
                json!({"env": [{"name": "ALBACORE_THREADS", "value": "9"}]}),
            ),
            format!("{server}.env[0].name is ALBACORE_THREADS; set spec.threads"),
        ),
        (
            with_server(
                model(),
                json!({"env": [{"name": "ALBACORE_POLICY", "value": "eager"}]}),
            ),
            format!("{server}.env[0].name is ALBACORE_POLICY; set spec.batching.policy"),
        ),
        (
            with_server(
                model(),
                json!({"env": [{"name": "ALBACORE_PARAMS", "value": "http://x:1"}]}),
            ),
            format!("{server}.env[0].name is ALBACORE_PARAMS; the controller sets it"),
        ),
        (
            with_server(
                model(),
                json!({"ports": [{"name": "http", "containerPort": 80}]}),
            ),
            format!("{server}.ports[0] is 80 with the name \"http\""),
        ),
        (
            with_server(
                model(),
                json!({"volumeMounts": [{"name": "x", "mountPath": "/etc/albacore"}]}),
            ),
            format!("{server}.volumeMounts[0].mountPath is \"/etc/albacore\""),
        ),
        (
            with(
                with_server(model(), json!({"resources": {"limits": {"cpu": "1"}}})),
                "resources",
                json!({"limits": {"cpu": "2"}}),
            ),
            format!("{server}.resources conflicts with spec.resources"),
        ),
    ] {
        let said = refused(&spec);
        assert!(said.contains(&says), "{says}: {said}");
    }
}

#[test]
fn equal_specs_build_equal_bytes_and_a_change_changes_the_digest() {
    let digests = |spec: &Value| {
        built(spec)
            .into_iter()
            .map(|c| c.digest)
            .collect::<Vec<_>>()
    };
    assert_eq!(digests(&model()), digests(&model()));
    let changed = with(model(), "queue", json!({"maxRows": 2048}));
    let differ = digests(&model())
        .into_iter()
        .zip(digests(&changed))
        .filter(|(a, b)| a != b);
    assert_eq!(differ.count(), 1, "the ConfigMap alone");
}

fn any_live_part() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let mode = prop::sample::select(vec!["Scatter", "Compact"]);
    let policy = prop::sample::select(vec!["Tuna", "RoundRobin", "None"]);
    let enforcement = prop::sample::select(vec!["Enforce", "Observe"]);
    let main = prop::sample::select(vec!["Pinned", "WorkerSet"]);
    let rule = prop::sample::select(vec!["Auto", "Eager", "Timeout"]);
    let models = (20..500u32, 50.0..99.9f64, "[a-z]{1,8}");
    (
        mode,
        policy,
        enforcement,
        main,
        rule,
        models,
        1..5000u32,
        5000..90_000u32,
    )
        .prop_map(
            |(mode, policy, enforcement, main, rule, (latency, percentile, file), rows, queue)| {
                let mut batching = json!({"policy": rule, "maxRows": rows});
                if rule == "Timeout" {
                    batching["maxDelay"] = "2ms".into();
                }
                vec![
                    ("mode", json!(mode)),
                    (
                        "placement",
                        json!({"policy": policy, "enforcement": enforcement,
                    "mainThread": main}),
                    ),
                    ("batching", batching),
                    ("queue", json!({"maxRows": queue})),
                    (
                        "models",
                        json!([{"name": "m", "uri": format!("pvc://models/{file}.ubj"),
                    "slo": {"latency": format!("{latency}ms"), "percentile": percentile}}]),
                    ),
                ]
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn batching_objectives_mode_placement_and_files_leave_the_pods_alone(
        parts in any_live_part(), workers in 1..8u16, threads in 1..8u16,
    ) {
        let mut before = model();
        before["workers"] = workers.into();
        before["threads"] = threads.into();
        let mut after = before.clone();
        for (field, value) in parts {
            after[field] = value;
            prop_assert_eq!(pod(&before), pod(&after), "{} restarts pods", field);
        }
        after["threads"] = (threads + 1).into();
        prop_assert_ne!(pod(&before), pod(&after), "another number of threads does");
    }
}

/// The pod template of a deployment with the server image `image` pinned by its annotation.
fn template_with(spec: &Value, image: Option<&str>) -> (InferenceDeployment, Value) {
    let mut of = deployment(spec);
    let image = image.map(|image| ("albacore.dev/server-image".to_owned(), image.to_owned()));
    of.metadata.annotations = Some(image.into_iter().collect());
    let build_context = BuildContext {
        built_in: BuiltInOptions {
            image: "server:1".to_owned(),
            params_url: None,
        },
        has_service_monitors: false,
        replicas: None,
        selects_traffic: false,
    };
    let children = build(&validate(&of).unwrap(), &build_context).into_iter();
    let mut workload = children.filter(|c| c.kind == ChildKind::Deployment);
    let template = workload.next().unwrap().body["spec"]["template"].take();
    (of, template)
}

#[test]
fn pods_are_restarted_by_the_fields_that_the_api_names_and_by_no_other() {
    let place = |uri: &str| json!({"models": [{"name": "m", "uri": uri}]});
    let edited = |field: &str, value: Value| (model(), with(model(), field, value));
    let command = |word: &str| with_server(json!({}), json!({"image": "x", "command": [word]}));
    let limited = |cpu: &str| json!({"limits": {"cpu": cpu}});
    for ((before, after), fields) in [
        ((model(), model()), &[][..]),
        (edited("mode", json!("Compact")), &[]),
        (edited("placement", json!({"policy": "RoundRobin"})), &[]),
        (edited("batching", json!({"maxRows": 9})), &[]),
        ((place("pvc://a/m.ubj"), place("pvc://a/n.ubj")), &[]),
        ((place("https://x/m.ubj"), place("https://x/n.ubj")), &[]),
        (
            (place("pvc://a/m.ubj"), place("pvc://b/m.ubj")),
            &["spec.models[].uri"],
        ),
        (
            (place("pvc://a/m.ubj"), place("https://x/m.ubj")),
            &["spec.models[].uri"],
        ),
        (edited("workers", json!(3)), &["spec.workers"]),
        (edited("threads", json!(3)), &["spec.threads"]),
        (
            edited("front", json!({"threads": 2})),
            &["spec.front.threads"],
        ),
        (edited("resources", limited("8")), &["spec.resources"]),
        ((command("a"), command("b")), &["spec.template"]),
    ] {
        let (before, old) = template_with(&before, None);
        let (after, new) = template_with(&after, None);
        assert_eq!(albacore_api::restarting_fields(&before, &after), fields);
        assert_eq!(old != new, !fields.is_empty(), "{fields:?}");
    }
    let (before, old) = template_with(&model(), None);
    let (after, new) = template_with(&model(), Some("r.io/server:9"));
    assert_ne!(old, new);
    assert_eq!(albacore_api::restarting_fields(&before, &after).len(), 1);
}
