//! Tests of the conversion of a file for `albacore run`.
#![allow(clippy::panic, clippy::unwrap_used)] // tests fail by panicking
use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_api::{LocalDeployment, Server, read_for_one_machine};
use albacore_settings::{ModelBatching, Policy, Prefer, Settings, Source};

const HEAD: &str = "\
apiVersion: albacore.dev/v1beta1
kind: InferenceDeployment
metadata: {name: fraud}
spec:
  workers: 2
  threads: 3
";

fn read(spec: &str) -> Result<LocalDeployment, String> {
    read_for_one_machine(&format!("{HEAD}{spec}"), "fraud.yaml", Path::new("/srv"))
        .map_err(|error| error.to_string())
}

/// The settings of a spec with models.
fn settings(spec: &str) -> Settings {
    let Server::BuiltIn(server) = read(spec).unwrap().server else {
        panic!("built in")
    };
    server.settings
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

#[test]
fn the_examples_are_read() {
    for name in ["fraud.yaml", "gunicorn.yaml"] {
        let folder = repository().join("examples");
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let machine = read_for_one_machine(&text, name, &folder).unwrap();
        assert_eq!(machine.notices, Vec::<String>::new(), "{name}");
        if let Server::BuiltIn(server) = machine.server {
            let source = &server.settings.models[0].source;
            let is_there = matches!(source, Source::Path(path) if Path::new(path).is_file());
            assert!(is_there, "{source:?}");
        }
    }
}

#[test]
fn models_batching_and_queue_are_settings() {
    let checksum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let text = format!(
        "  models:
  - {{name: a, uri: 'file:///models/a.ubj#sha256={checksum}', slo: {{latency: 25ms}}}}
  - {{name: b, uri: 'file://./b.txt'}}
  - {{name: c, uri: 'file://../c.json'}}
  - {{name: d, uri: 'https://host/d.ubj?v=2#sha256={checksum}'}}
  batching: {{policy: Timeout, maxDelay: 2000us, maxRows: 64}}
  queue: {{maxRows: 128}}
"
    );
    let settings = settings(&text);
    let delay = Duration::from_millis(2);
    assert_eq!(settings.batching.policy, Policy::Timeout { delay });
    assert_eq!(
        (
            settings.batching.batch_rows_max,
            settings.batching.queue_rows_max
        ),
        (64, 128)
    );
    let file = |path: &str| Source::Path(path.into());
    let models: Vec<_> = settings
        .models
        .into_iter()
        .map(|m| (m.source, m.sha256.map(|digest| digest.to_string())))
        .collect();
    let checksum = Some(checksum.to_owned());
    assert_eq!(
        models,
        [
            (file("/models/a.ubj"), checksum.clone()),
            (file("/srv/b.txt"), None),
            (file("/srv/../c.json"), None),
            (Source::Url("https://host/d.ubj?v=2".to_owned()), checksum),
        ]
    );
}

#[test]
fn every_batching_policy_is_a_rule_of_the_server() {
    for (policy, rule) in [
        ("Auto", Policy::default()),
        ("Deferred", Policy::Deferred),
        ("Eager", Policy::Eager),
    ] {
        let settings = settings(&format!(
            "  models: [{{name: a, uri: 'file:///a.ubj', slo: {{latency: 9ms}}}}]
  batching: {{policy: {policy}}}\n"
        ));
        assert_eq!(settings.batching.policy, rule);
    }
}

#[test]
fn what_auto_prefers_is_a_preference_of_the_server() {
    for (prefer, wanted) in [
        ("ShortWaits", Prefer::ShortWaits),
        ("IdleWorkers", Prefer::IdleWorkers),
    ] {
        let settings = settings(&format!(
            "  models: [{{name: a, uri: 'file:///a.ubj', slo: {{latency: 9ms}}}}]
  batching: {{prefer: {prefer}}}\n"
        ));
        assert_eq!(settings.batching.policy, Policy::Auto(wanted));
    }
}

#[test]
fn a_model_has_its_own_batching_and_the_rest_from_the_deployment() {
    let settings = settings(
        "  models:
  - {name: a, uri: 'file:///a.ubj', slo: {latency: 9ms}, weight: 250}
  - {name: b, uri: 'file:///b.ubj', slo: {latency: 9ms}, batching: {}}
  - {name: c, uri: 'file:///c.ubj', slo: {latency: 9ms}, batching: {policy: Deferred, maxRows: 8}}
  - {name: d, uri: 'file:///d.ubj', slo: {latency: 9ms}, batching: {policy: Eager}}
  - {name: e, uri: 'file:///e.ubj', slo: {latency: 9ms},
     batching: {policy: Timeout, maxDelay: 1ms}}
  - {name: f, uri: 'file:///f.ubj', slo: {latency: 9ms},
     batching: {prefer: ShortWaits, window: 3ms}}
  batching: {maxRows: 64, prefer: IdleWorkers, window: 5ms}\n",
    );
    let millis = Duration::from_millis;
    let of = |policy, batch_rows_max, window: Option<u64>| {
        Some(ModelBatching {
            policy,
            batch_rows_max,
            window: window.map(millis),
        })
    };
    let found: Vec<_> = settings.models.iter().map(|model| model.batching).collect();
    let delay = millis(1);
    let wanted = [
        None,
        of(Policy::Auto(Prefer::IdleWorkers), 64, Some(5)),
        of(Policy::Deferred, 8, Some(5)),
        // Preference and window belong to policies other than this one.
        of(Policy::Eager, 64, None),
        of(Policy::Timeout { delay }, 64, None),
        of(Policy::Auto(Prefer::ShortWaits), 64, Some(3)),
    ];
    assert_eq!(found, wanted);
    assert_eq!(settings.batching.window, Some(millis(5)));
    let weights = settings.models.iter().map(|model| model.weight);
    assert!(weights.eq([250, 100, 100, 100, 100, 100]));
}

#[test]
fn the_threads_of_the_front_end_are_passed_on() {
    for (front, wanted) in [("", None), ("  front: {threads: 3}\n", Some(3))] {
        let machine = read(&format!(
            "  models: [{{name: a, uri: 'file:///a.ubj'}}]\n{front}"
        ));
        let Server::BuiltIn(server) = machine.unwrap().server else {
            panic!("built in")
        };
        assert_eq!(server.front_threads, wanted);
    }
}

#[test]
fn a_users_own_server_gets_its_command_and_thread_counts() {
    let machine = read(
        "  template:
    spec:
      containers:
      - name: server
        image: example.org/server:1
        command: [gunicorn]
        args: [--workers, $(ALBACORE_WORKERS), $$(KEPT), app:app]
        workingDir: app
        env:
        - {name: OMP_NUM_THREADS, value: '7'}
        - {name: BOTH, value: $(ALBACORE_THREADS)-$(OMP_NUM_THREADS)}
      - {name: proxy, image: envoy}
      nodeSelector: {disk: fast}
",
    )
    .unwrap();
    let Server::Own(own) = machine.server else {
        panic!("own")
    };
    assert_eq!(
        own.command,
        ["gunicorn", "--workers", "2", "$(KEPT)", "app:app"]
    );
    assert_eq!(own.working_dir.as_deref(), Some(Path::new("/srv/app")));
    let of = |name: &str| -> Vec<&str> {
        own.environment
            .iter()
            .filter(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
            .collect()
    };
    assert_eq!(of("OMP_NUM_THREADS"), ["7"]);
    assert_eq!(of("BOTH"), ["3-7"]);
    assert_eq!(of("MKL_NUM_THREADS"), ["3"]);
    assert_eq!(
        machine.notices,
        [
            "spec.template.spec.nodeSelector needs a cluster and is not used",
            "spec.template.spec.containers[0].image needs a cluster and is not used",
            "spec.template.spec.containers[1] (\"proxy\") is not started here",
        ]
    );
}

#[test]
fn every_field_of_placement_reaches_the_policy() {
    use albacore_plan::{Enforcement, MainThread, PlacementMethod};
    let model = "  models: [{name: a, uri: 'file:///a'}]\n";
    let policy = |spec: &str| read(&format!("{model}{spec}")).unwrap().policy;
    let default = policy("");
    assert_eq!((default.workers, default.threads), (2, 3));
    assert_eq!(default.mode, albacore_solver::Mode::Scatter);
    assert_eq!(default.placement, PlacementMethod::Tuna);
    assert_eq!(default.enforcement, Enforcement::Enforce);
    assert_eq!(default.main_thread, MainThread::Pinned);
    assert_eq!(
        policy("  mode: Compact\n").mode,
        albacore_solver::Mode::Compact
    );
    let placement = |field: &str| policy(&format!("  placement: {{{field}}}\n"));
    assert_eq!(
        placement("policy: RoundRobin").placement,
        PlacementMethod::RoundRobin
    );
    assert_eq!(placement("policy: None").placement, PlacementMethod::None);
    assert_eq!(
        placement("enforcement: Observe").enforcement,
        Enforcement::Observe
    );
    assert_eq!(
        placement("mainThread: WorkerSet").main_thread,
        MainThread::WorkerSet
    );
}

#[test]
fn fields_without_effect_on_one_machine_get_a_notice() {
    let machine = read(
        "  replicas: 2
  autoscaling: {maxReplicas: 4}
  resources: {limits: {cpu: 4}}
  models: [{name: a, uri: 'file:///a.ubj'}]
",
    )
    .unwrap();
    assert_eq!(machine.notices.len(), 3, "{:?}", machine.notices);
    for (notice, field) in
        machine
            .notices
            .iter()
            .zip(["spec.replicas is 2", "spec.autoscaling", "spec.resources"])
    {
        assert!(notice.starts_with(field), "{notice}");
    }
}

#[test]
fn fields_that_need_a_cluster_are_refused_with_their_line() {
    let model =
        |uri: &str| format!("  models: [{{name: a, uri: '{uri}', slo: {{latency: 9ms}}}}]\n");
    let own = |container: &str| format!("  template: {{spec: {{containers: [{container}]}}}}\n");
    for (spec, said) in [
        (
            model("pvc://claim/a.ubj"),
            "fraud.yaml:7: spec.models[0].uri is \"pvc://claim/a.ubj\"",
        ),
        (
            model("configmap://a/b.ubj"),
            "fraud.yaml:7: spec.models[0].uri is \"configmap://a/b.ubj\"",
        ),
        (
            own("{name: server, image: x}"),
            "fraud.yaml:7: spec.template.spec.containers[0].command is missing",
        ),
        (
            own(
                "{name: server, command: [x], env: [{name: A, valueFrom: {fieldRef: \
                 {fieldPath: x}}}]}",
            ),
            "fraud.yaml:7: spec.template.spec.containers[0].env[0].valueFrom reads from the \
             cluster",
        ),
        (
            own("{name: server, command: [x], envFrom: [{secretRef: {name: s}}]}"),
            "fraud.yaml:7: spec.template.spec.containers[0].envFrom reads a ConfigMap or Secret",
        ),
    ] {
        let message = read(&spec).unwrap_err();
        assert!(
            message.contains(said),
            "{spec}\n  says {message}\n  not  {said}"
        );
    }
}
