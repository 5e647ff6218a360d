//! Tests of accepted and rejected files.
use super::*;

const GOOD: &str = "\
apiVersion: albacore.dev/v1beta1
kind: InferenceDeployment
metadata:
  name: fraud
  labels: {app.kubernetes.io/part-of: shop}
spec:
  workers: 4
  threads: 2
  mode: Compact
  placement:
    policy: RoundRobin
    enforcement: Observe
    mainThread: WorkerSet
  models:
  - name: fraud
    uri: file:///models/fraud.ubj
    slo: {latency: 25ms, percentile: 99.9}
  batching:
    policy: Timeout
    maxRows: 512
    maxDelay: 2ms
  queue: {maxRows: 1000}
";

fn refusal(text: &str) -> String {
    read_deployment(text, "fraud.yaml")
        .expect_err("must be refused")
        .to_string()
}

/// The valid file with one line replaced.
fn with(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old}");
    GOOD.replacen(old, new, 1)
}

#[test]
fn a_good_file_is_read_whole() {
    use crate::*;
    let read = read_deployment(GOOD, "fraud.yaml").unwrap();
    assert_eq!(read.metadata.name.as_deref(), Some("fraud"));
    let spec = read.spec;
    assert_eq!(
        (spec.workers, spec.threads, spec.mode),
        (4, 2, PlacementMode::Compact)
    );
    assert_eq!(spec.placement.policy, PlacementPolicy::RoundRobin);
    assert_eq!(spec.placement.enforcement, EnforcementPolicy::Observe);
    assert_eq!(spec.placement.main_thread, MainThreadPolicy::WorkerSet);
    assert_eq!(spec.models[0].uri.to_string(), "file:///models/fraud.ubj");
    assert_eq!(spec.models[0].slo.unwrap().latency.as_micros(), 25_000);
    assert_eq!(spec.models[0].slo.unwrap().percentile, 99.9);
    assert_eq!(spec.batching.policy, BatchingPolicy::Timeout);
    assert_eq!(spec.batching.max_delay.unwrap().as_micros(), 2_000);
    assert_eq!((spec.batching.max_rows, spec.queue.max_rows), (512, 1000));
}

#[test]
fn the_shortest_file_takes_every_default() {
    let text = "{apiVersion: albacore.dev/v1beta1, kind: InferenceDeployment, \
                metadata: {name: m}, spec: {models: [{name: m, uri: 'file://./m.txt'}]}}";
    let spec = read_deployment(text, "m.yaml").unwrap().spec;
    assert_eq!((spec.workers, spec.threads, spec.replicas), (1, 1, Some(1)));
    assert_eq!(
        (spec.batching.max_rows, spec.queue.max_rows),
        (1024, 65_536)
    );
}

#[test]
fn threads_of_a_model_are_auto_or_a_number() {
    use crate::{ModelThreads, NamedThreads};
    for (text, wanted) in [
        ("auto", ModelThreads::Named(NamedThreads::Auto)),
        ("1", ModelThreads::Most(1)),
        ("2", ModelThreads::Most(2)),
    ] {
        let line = "    uri: file:///models/fraud.ubj";
        let text = with(line, &format!("{line}\n    threads: {text}"));
        let read = read_deployment(&text, "fraud.yaml").unwrap();
        assert_eq!(read.spec.models[0].threads, Some(wanted));
        // The value written to the API server is read back unchanged.
        let json = serde_json::to_value(&read).unwrap();
        let again: InferenceDeployment = serde_json::from_value(json).unwrap();
        assert_eq!(again.spec.models[0].threads, Some(wanted));
    }
}

#[test]
fn iterations_have_a_name_or_two_numbers() {
    use crate::{IterationRangeSpec, IterationsSpec, NamedIterations};
    for (text, wanted) in [
        ("All", IterationsSpec::Named(NamedIterations::All)),
        ("Best", IterationsSpec::Named(NamedIterations::Best)),
        (
            "{begin: 1, end: 20}",
            IterationsSpec::Range(IterationRangeSpec { begin: 1, end: 20 }),
        ),
    ] {
        let line = "    uri: file:///models/fraud.ubj";
        let text = with(line, &format!("{line}\n    iterations: {text}"));
        let read = read_deployment(&text, "fraud.yaml").unwrap();
        assert_eq!(read.spec.models[0].iterations, Some(wanted));
        // The value written to the API server is read back unchanged.
        let json = serde_json::to_value(&read).unwrap();
        let again: InferenceDeployment = serde_json::from_value(json).unwrap();
        assert_eq!(again.spec.models[0].iterations, Some(wanted));
    }
    let wrong = serde_json::from_str::<IterationsSpec>("\"Last\"").unwrap_err();
    assert!(
        wrong
            .to_string()
            .contains("iterations must be All, Best or")
    );
}

#[test]
fn a_file_from_the_cluster_with_status_and_managed_fields_is_read() {
    let text = with(
        "  labels: {app.kubernetes.io/part-of: shop}\n",
        "  annotations: {a: b}\n  generation: 3\n  uid: x\n\
         \x20 creationTimestamp: \"2026-01-01T00:00:00Z\"\n",
    ) + "status:\n  ready: 2/2\n  somethingNewer: {a: 1}\n";
    assert_eq!(read_deployment(&text, "fraud.yaml").unwrap().status, None);
}

/// A line of the valid file, its replacement, and a part of the expected message.
const REFUSALS: &[(&str, &str, &str)] = &[
    (
        "batching:",
        "batchng:",
        "fraud.yaml:18: spec.batchng is not a field; did you mean \"batching\"?",
    ),
    (
        "mode: Compact",
        "maxDelay: 2ms",
        "fraud.yaml:9: spec.maxDelay is not a field here; it belongs to spec.batching",
    ),
    (
        "mode: Compact",
        "gpu: 1",
        "fraud.yaml:9: spec.gpu is not a field; the fields here are autoscaling, batching, ",
    ),
    (
        "mode: Compact",
        "mode: compact",
        "fraud.yaml:9: spec.mode is \"compact\"; it must be Scatter or Compact; did you mean \
         \"Compact\"?",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    iterations: best",
        "fraud.yaml:17: spec.models[0].iterations is \"best\"; it must be All or Best; did you mean \
         \"Best\"?",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    iterations: 10",
        "fraud.yaml:17: spec.models[0].iterations is 10; it must be All or Best, or the fields begin \
         and end",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    iterations: [0, 10]",
        "fraud.yaml:17: spec.models[0].iterations is a list; it must be All or Best, or the fields",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    iterations: {begin: 0}",
        "fraud.yaml:17: spec.models[0].iterations.end is missing",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    iterations: {begin: 0, end: 9, stp: 1}",
        "fraud.yaml:17: spec.models[0].iterations.stp is not a field; the fields here are begin, end",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    iterations: {begin: 0, end: 0}",
        "fraud.yaml:17: spec.models[0].iterations.end is 0; it must be from 1 to 4194304",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    iterations: {begin: x, end: 2}",
        "fraud.yaml:17: spec.models[0].iterations.begin is the string \"x\"; it must be a whole \
         number",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    iterations: {begin: 7, end: 7}",
        "fraud.yaml:17: spec.models[0].iterations is {begin: 7, end: 7}, which contains no \
         iteration; end must be above begin",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    threads: 0",
        "fraud.yaml:17: spec.models[0].threads is 0; it must be from 1 to 256",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    threads: 9999",
        "fraud.yaml:17: spec.models[0].threads is 9999; it must be from 1 to 256",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    threads: all",
        "fraud.yaml:17: spec.models[0].threads is \"all\"; it must be auto or a whole number from 1 to spec.threads",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    threads: 2.5",
        "fraud.yaml:17: spec.models[0].threads is 2.5; it must be a whole number, or auto",
    ),
    (
        "    uri: file:///models/fraud.ubj",
        "    uri: file:///m\n    threads: 9",
        "fraud.yaml:17: spec.models[0].threads is 9; the threads of one worker compute a batch: write auto, or from 1 to spec.threads, 2",
    ),
    (
        "workers: 4",
        "workers: 0",
        "fraud.yaml:7: spec.workers is 0; it must be from 1 to 256",
    ),
    (
        "workers: 4",
        "workers: \"4\"",
        "fraud.yaml:7: spec.workers is the string \"4\"; it must be a whole number; write 4 \
         without quotes",
    ),
    (
        "workers: 4",
        "workers: 4.5",
        "fraud.yaml:7: spec.workers is 4.5; it must be a whole number",
    ),
    (
        "workers: 4",
        "workers: -4",
        "fraud.yaml:7: spec.workers is -4; it must be from 1 to 256",
    ),
    (
        "latency: 25ms",
        "latency: 25",
        "fraud.yaml:17: spec.models[0].slo.latency is 25; it must be a string with a unit; write \
         \"25us\", \"25ms\" or \"25s\"",
    ),
    (
        "latency: 25ms",
        "latency: 25mss",
        "fraud.yaml:17: spec.models[0].slo.latency is \"25mss\"; it has the unit \"mss\"; the \
         units are us, ms and s",
    ),
    (
        "percentile: 99.9",
        "percentile: 100",
        "fraud.yaml:17: spec.models[0].slo.percentile is 100; it must be from 50 to 99.99",
    ),
    (
        "maxDelay: 2ms",
        "maxRws: 2",
        "fraud.yaml:21: spec.batching.maxRws is not a field; did you mean \"maxRows\"?",
    ),
    (
        "policy: Timeout",
        "policy: Eager",
        "fraud.yaml:21: spec.batching.maxDelay is 2ms, which is valid with policy Timeout only; \
         remove it or set policy: Timeout instead of Eager",
    ),
    (
        "    maxDelay: 2ms\n",
        "",
        "fraud.yaml:18: spec.batching.maxDelay is missing; policy Timeout needs it",
    ),
    (
        "maxDelay: 2ms",
        "maxDelay: 25ms",
        "fraud.yaml:21: spec.batching.maxDelay is 25ms, which leaves no time to serve \
         spec.models[0]",
    ),
    (
        "queue: {maxRows: 1000}",
        "queue: {maxRows: 100}",
        "fraud.yaml:22: spec.queue.maxRows is 100, less than one batch",
    ),
    (
        "name: fraud\n  labels",
        "name: Fraud!\n  labels",
        "fraud.yaml:4: metadata.name is \"Fraud!\"; it becomes the name of a Service",
    ),
    (
        "file:///models/fraud.ubj",
        "ftp://models/fraud.ubj",
        "fraud.yaml:16: spec.models[0].uri is \"ftp://models/fraud.ubj\"; it must start with \
         file://",
    ),
    (
        "- name: fraud\n",
        "- nme: fraud\n",
        "fraud.yaml:15: spec.models[0].nme is not a field; did you mean \"name\"?",
    ),
    (
        "kind: InferenceDeployment",
        "kind: Deployment",
        "fraud.yaml:2: kind is \"Deployment\"; expected kind InferenceDeployment of apiVersion \
         albacore.dev/v1beta1",
    ),
    (
        "apiVersion: albacore.dev/v1beta1",
        "apiVersion: apps/v1",
        "fraud.yaml:1: apiVersion is \"apps/v1\"",
    ),
    ("kind: InferenceDeployment\n", "", "kind is missing"),
    ("queue: {maxRows: 1000}", "workers: 3", "duplicate"),
    (
        "metadata:",
        "metdata:",
        "fraud.yaml:3: metdata is not a field; did you mean \"metadata\"?",
    ),
    (
        "  labels",
        "  lables",
        "metadata.lables is not a field; did you mean \"labels\"?",
    ),
];

#[test]
fn every_version_is_read_and_no_other() {
    let written = "apiVersion: albacore.dev/v1beta1";
    let beta = read_deployment(GOOD, "fraud.yaml").unwrap();
    let read = |version: &str| read_deployment(&GOOD.replace(written, version), "fraud.yaml");
    assert_eq!(read("apiVersion: albacore.dev/v1alpha1"), Ok(beta));
    let other = read("apiVersion: albacore.dev/v1").unwrap_err();
    assert_eq!(
        other.to_string(),
        "fraud.yaml:1: apiVersion is \"albacore.dev/v1\"; expected kind InferenceDeployment of \
         apiVersion albacore.dev/v1beta1"
    );
}

#[test]
fn a_refusal_names_line_field_value_and_way_out() {
    for (old, new, said) in REFUSALS {
        let message = refusal(&with(old, new));
        assert!(
            message.contains(said),
            "{new}\n  says {message}\n  not  {said}"
        );
    }
}

#[test]
fn fields_inside_the_pod_template_are_known_or_refused() {
    let own = "  template: {spec: {containers: [{name: server, command: [x], \
               resources: {limits: {memory: 2GB}}}]}}\n";
    let models = "  models:\n  - name: fraud\n    uri: file:///models/fraud.ubj\n\
                  \x20   slo: {latency: 25ms, percentile: 99.9}\n";
    let message = refusal(&with(models, own));
    assert!(
        message
            .contains("containers[0].resources.limits.memory is \"2GB\"; it has the unit \"GB\""),
        "{message}"
    );
    let message = refusal(&with(models, &own.replace("resources", "resorces")));
    assert!(
        message.contains("containers[0].resorces is not a field; did you mean \"resources\"?"),
        "{message}"
    );
    let text = with(models, &own.replace("2GB", "2Gi"));
    let text = text.replace(
        "  batching:\n    policy: Timeout\n    maxRows: 512\n    maxDelay: 2ms\n",
        "",
    );
    assert!(refusal(&text).contains("spec.queue applies to the built-in server only"));
    let text = text.replace("  queue: {maxRows: 1000}\n", "");
    assert!(
        read_deployment(&text, "f")
            .unwrap()
            .spec
            .server_container()
            .is_some()
    );
    let text = with(models, "  template: {spec: {nodeSelector: {a: b}}}\n");
    assert!(refusal(&text).contains("spec.models is missing; list the models to serve"));
}

#[test]
fn anything_but_a_single_document_is_refused() {
    assert_eq!(
        refusal(""),
        "fraud.yaml: is empty; it must hold an InferenceDeployment (albacore.dev/v1beta1)"
    );
    assert!(refusal("# only a comment\n").contains("is empty"));
    assert!(refusal(&format!("{GOOD}---\n{GOOD}")).contains("holds several YAML documents"));
    assert!(refusal("a: [1, 2\nb: 3").contains("is not valid YAML"));
    assert!(refusal("- a\n- b\n").contains("apiVersion is missing"));
    assert!(refusal(&"x".repeat(FILE_BYTES_MAX + 1)).contains("1048577 bytes"));
    assert!(refusal(&"[".repeat(100_000)).contains("is not valid YAML"));
    assert!(
        refusal(&format!("a: &a [x]\n{}", "b: [*a, *a, *a]\n".repeat(3))).contains("fraud.yaml")
    );
}

#[test]
fn many_violations_are_listed_in_order_and_bounded() {
    let fields: String = (0..30).map(|i| format!("  zzzzzzzzz{i}: 1\n")).collect();
    let message = refusal(&format!("{GOOD}{fields}"));
    assert_eq!(message.lines().count(), VIOLATIONS_MAX + 1);
    assert!(message.ends_with("fraud.yaml: and 10 more"), "{message}");
}

#[test]
fn a_file_that_unfolds_without_end_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let below = format!("*a{}", i - 1);
        text += &format!("a{i}: &a{i} [{}]\n", vec![below; 9].join(", "));
    }
    assert!(refusal(&text).contains("is not valid YAML"));
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_refused_with_its_file_name(
        at in 0..GOOD.len(),
        cut in 0..40usize,
        new in "[ -~\\n]{0,20}",
    ) {
        let text = format!("{}{new}{}", &GOOD[..at], &GOOD[(at + cut).min(GOOD.len())..]);
        if let Err(error) = read_deployment(&text, "fraud.yaml") {
            let message = error.to_string();
            proptest::prop_assert!(message.lines().all(|l| l.starts_with("fraud.yaml")), "{message}");
            proptest::prop_assert!(message.len() < 20_000);
        }
    }
}
