//! The settings file: parsing, printing, rejected input and error messages.

use std::time::Duration;

use albacore_settings::{
    BatchingParams, Digest, IterationsSetting, MissingColumnPolicy, ModelBatching, ModelSettings,
    Output, Policy, Prefer, SchemaNames, Settings, Slo, Source,
};
use proptest::prelude::*;

const WHOLE: &str = r#"models:
- name: "fraud"
  path: "/models/fraud.ubj"
  sha256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
  iterations: {begin: 2, end: 30}
  slo:
    latency: "25ms"
    percentile: 99.9
    contribs: "80ms"
- name: "spam"
  url: "https://models.example/spam.txt?v=2"
  iterations: best
  missing: nan
  classes: ["legit", "fraud"]
  categories:
    "size": ["10", "20"]
    "the \"color\"": ["red", "", "e"]
  threads: 3
  weight: 250
  batching:
    policy: auto
    max_rows: 64
    prefer: idle_workers
    window: "5ms"
batching:
  policy: timeout
  max_rows: 512
  max_delay: "2ms"
queue:
  max_rows: 4096
"#;

const OUTPUTS: [Output; 5] = [
    Output::Output,
    Output::Margin,
    Output::Contribs,
    Output::Interactions,
    Output::Leaf,
];

#[test]
fn outputs_are_listed_by_name_without_duplicates() {
    let file = |outputs: &str| {
        let text = format!("models: [{{name: m, path: /m, outputs: {outputs}}}]");
        Settings::read(&text).map(|settings| settings.models[0].outputs.clone())
    };
    let all = file("[output, margin, contribs, interactions, leaf]").unwrap();
    assert_eq!(all, OUTPUTS);
    assert_eq!(file("[]").unwrap(), []);
    for (outputs, message) in [
        (
            "[value]",
            "models[0].outputs[0]: \"value\" is not an output",
        ),
        (
            "[leaf, leaf]",
            "models[0].outputs[1]: \"leaf\" is listed twice",
        ),
        ("leaf", "models[0].outputs"),
        ("[1]", "models[0].outputs[0]"),
    ] {
        let error = file(outputs).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_complete_file_is_parsed_and_printed_unchanged() {
    let settings = Settings::read(WHOLE).unwrap();
    assert_eq!(settings.models.len(), 2);
    assert_eq!(
        settings.models[0].slo,
        Some(Slo {
            latency: Duration::from_millis(25),
            percentile: 99.9,
            contribs: Some(Duration::from_millis(80)),
            interactions: None,
        })
    );
    let range = IterationsSetting::Range { begin: 2, end: 30 };
    assert_eq!(settings.models[0].iterations, Some(range));
    assert_eq!(settings.models[1].iterations, Some(IterationsSetting::Best));
    assert_eq!(settings.models[0].threads, None);
    assert_eq!(settings.models[1].threads, Some(3));
    let weights = settings.models.iter().map(|model| model.weight);
    assert!(weights.eq([100, 250]));
    let own = ModelBatching {
        policy: Policy::Auto(Prefer::IdleWorkers),
        batch_rows_max: 64,
        window: Some(Duration::from_millis(5)),
    };
    assert_eq!(settings.models[0].batching, None);
    assert_eq!(settings.models[1].batching, Some(own));
    let url = Source::Url("https://models.example/spam.txt?v=2".to_owned());
    assert_eq!(settings.models[1].source, url);
    let delay = Duration::from_millis(2);
    assert_eq!(settings.batching.policy, Policy::Timeout { delay });
    assert_eq!(settings.to_yaml(), WHOLE);
}

#[test]
fn threads_of_a_model_are_at_most_those_of_a_worker() {
    let of = |threads: &str| {
        let text = format!("models: [{{name: a, path: /a, threads: {threads}}}]");
        Settings::read(&text).unwrap().check_threads(4)
    };
    assert_eq!((of("4"), of("auto")), (Ok(()), Ok(())));
    assert_eq!(
        of("5").unwrap_err().to_string(),
        "models[0].threads: 5 is above the 4 threads of a worker of this server: write auto or at \
         most 4, or start it with more --threads"
    );
}

#[test]
fn fields_with_defaults_are_optional() {
    let text = "models: [{name: a, path: /a, slo: {latency: 2s}}]";
    let settings = Settings::read(text).unwrap();
    assert_eq!(settings.batching, BatchingParams::default());
    assert_eq!(settings.models[0].slo.unwrap().percentile, 99.0);
}

/// Texts of whole files.
const FILES: [(&str, &str); 7] = [
    ("", "the file: null is not an object"),
    ("[]", "the file: a list is not an object"),
    ("models: [", "line "),
    ("a: 1\n---\nb: 2", "line "),
    ("models: []", "models: is empty: name at least one"),
    ("models: a", "models: \"a\" is not a list"),
    ("models: [1]", "models[0]: 1 is not an object"),
];

/// Fields of a second model beside one with the name a.
const MODELS: [(&str, &str); 62] = [
    ("path: /b", "models[1].name: is missing"),
    ("name: b", "models[1].path: is missing: write path or url"),
    (
        "name: b, path: /b, weight: 0",
        "models[1].weight: 0 is not from 1 to 10000",
    ),
    (
        "name: b, path: /b, weight: 10001",
        "models[1].weight: 10001 is not from 1 to 10000",
    ),
    (
        "name: b, path: /b, weight: heavy",
        "models[1].weight: \"heavy\" is not a whole number",
    ),
    (
        "name: b, path: /b, batching: {prefer: neither}",
        "models[1].batching.prefer: \"neither\" is not a preference: write short_waits or",
    ),
    (
        "name: b, path: /b, batching: {policy: eager, prefer: idle_workers}",
        "models[1].batching.prefer: is allowed with policy auto only",
    ),
    (
        "name: b, path: /b, batching: {policy: never}",
        "models[1].batching.policy: \"never\" is not a policy",
    ),
    (
        "name: b, path: /b, batching: {policy: timeout}",
        "models[1].batching.max_delay: is missing",
    ),
    (
        "name: b, path: /b, batching: {policy: timeout, max_delay: 9ms}, slo: {latency: 9ms}",
        "models[1].batching.max_delay: \"9ms\" is not shorter than the latency objective",
    ),
    (
        "name: b, path: /b, batching: {policy: eager, window: 5ms}",
        "models[1].batching.window: \"5ms\" is allowed with policy auto or deferred only",
    ),
    (
        "name: b, path: /b, batching: {policy: timeout, max_delay: 1ms, window: 5ms}",
        "models[1].batching.window: \"5ms\" is allowed with policy auto or deferred only",
    ),
    (
        "name: b, path: /b, batching: {window: 11m}",
        "models[1].batching.window: \"11m\" is not a duration",
    ),
    (
        "name: b, path: /b, batching: {max_rows: 65537}",
        "models[1].batching.max_rows: 65537 is not from 1",
    ),
    (
        "name: b, path: b",
        "models[1].path: \"b\" is not an absolute path",
    ),
    (
        "name: b, path: /b, url: http://b",
        "models[1].url: cannot be combined with path",
    ),
    (
        "name: b, url: ftp://b",
        "models[1].url: \"ftp://b\" is not an http:// or",
    ),
    (
        "name: b, url: 's3://bucket'",
        "models[1].url: \"s3://bucket\" is not an http:// or https:// URL, nor an object",
    ),
    (
        "name: b, url: 'gs://bucket/a/../b'",
        "nor an object, s3://bucket/key",
    ),
    (
        "name: b, url: 'az://me:word@container/a'",
        "nor an object, s3://bucket/key",
    ),
    (
        "name: b, url: 'oci://ghcr.io/team/model'",
        "nor an artifact, oci://registry/repository:tag or @sha256:",
    ),
    (
        "name: b, url: 'http://'",
        "models[1].url: \"http://\" is not",
    ),
    (
        "name: b, url: 'http://b/#c'",
        "write the checksum as sha256",
    ),
    (
        "name: b, url: 'http://b/ c'",
        "models[1].url: \"http://b/ c\" has characters that are not allowed",
    ),
    ("name: a, path: /b", "models[1].name: \"a\" is used twice"),
    (
        "name: a/b, path: /b",
        "models[1].name: \"a/b\" is not a valid name",
    ),
    (
        "name: 7, path: /b",
        "models[1].name: 7 is not a string: put it in quotes",
    ),
    (
        "name: b, path: /b, iterations: Best",
        "models[1].iterations: \"Best\" is not a range of iterations: write all, best or {begin: 0, end: 100}",
    ),
    (
        "name: b, path: /b, iterations: 7",
        "models[1].iterations: 7 is neither a string nor an object: write all, best or {begin: 0, end: 100}",
    ),
    (
        "name: b, path: /b, iterations: {begin: 3}",
        "models[1].iterations.end: is missing",
    ),
    (
        "name: b, path: /b, iterations: {end: 3}",
        "models[1].iterations.begin: is missing",
    ),
    (
        "name: b, path: /b, iterations: {begin: 3, end: 3}",
        "models[1].iterations.end: 3 is not above begin, 3",
    ),
    (
        "name: b, path: /b, iterations: {begin: 0, end: 0}",
        "models[1].iterations.end: 0 is not above begin, 0",
    ),
    (
        "name: b, path: /b, iterations: {begin: -1, end: 3}",
        "models[1].iterations.begin: -1 is not a whole number",
    ),
    (
        "name: b, path: /b, iterations: {begin: 0, end: 3, step: 1}",
        "models[1].iterations.\"step\": is not a known field",
    ),
    (
        "name: b, path: /b, threads: 0",
        "models[1].threads: 0 is not a valid number of threads: write auto, or a number from 1 to",
    ),
    (
        "name: b, path: /b, threads: all",
        "models[1].threads: \"all\" is not a valid number of threads: write auto",
    ),
    (
        "name: b, path: /b, threads: 70000",
        "models[1].threads: 70000 is not a valid number of threads",
    ),
    (
        "name: b, path: /b, threads: 1.5",
        "models[1].threads: 1.5 is not a whole number",
    ),
    (
        "name: b, path: /b, sha256: abc",
        "models[1].sha256: \"abc\" is not a SHA-256 digest",
    ),
    (
        "name: b, path: /b, slo: {}",
        "models[1].slo.latency: is missing",
    ),
    (
        "name: b, path: /b, slo: 2ms",
        "models[1].slo: \"2ms\" is not an object",
    ),
    (
        "name: b, path: /b, slo: {latency: 25}",
        "slo.latency: 25 is not a string",
    ),
    (
        "name: b, path: /b, slo: {latency: 25m}",
        "a whole number of us, ms or s",
    ),
    (
        "name: b, path: /b, slo: {latency: 0s}",
        "must be longer than 0",
    ),
    ("name: b, path: /b, slo: {latency: 601s}", "at most 600s"),
    (
        "name: b, path: /b, slo: {latency: 2ms, percentile: 100}",
        "models[1].slo.percentile: 100 is not from 50 to 99.99",
    ),
    (
        "name: b, path: /b, missing: NaN",
        "models[1].missing: \"NaN\" is neither refuse nor nan: write one of them",
    ),
    (
        "name: b, path: /b, missing: 0",
        "models[1].missing: 0 is not a string",
    ),
    (
        "name: b, path: /b, classes: [a]",
        "models[1].classes: has 1 names, not from 2 to 1024",
    ),
    (
        "name: b, path: /b, classes: [a, b, a]",
        "models[1].classes[2]: \"a\" is used twice",
    ),
    (
        "name: b, path: /b, classes: [a, '']",
        "models[1].classes[1]: is empty",
    ),
    (
        "name: b, path: /b, classes: [a, \"b\\u0085\"]",
        "models[1].classes[1]: \"b",
    ),
    (
        "name: b, path: /b, classes: [0, 1]",
        "models[1].classes[0]: 0 is not a string: put it in quotes",
    ),
    (
        "name: b, path: /b, classes: [a, bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb]",
        "has more than 63 characters",
    ),
    (
        "name: b, path: /b, categories: [a]",
        "models[1].categories: a list is not an object of lists",
    ),
    (
        "name: b, path: /b, categories: {color: red}",
        "models[1].categories.\"color\": \"red\" is not a list",
    ),
    (
        "name: b, path: /b, categories: {color: []}",
        "models[1].categories.\"color\": has 0 categories, not from 1 to 16384",
    ),
    (
        "name: b, path: /b, categories: {size: [10]}",
        "models[1].categories.\"size\"[0]: 10 is not a string: put it in quotes",
    ),
    (
        "name: b, path: /b, categories: {color: [a, b, a]}",
        "models[1].categories.\"color\"[2]: \"a\" is used twice",
    ),
    (
        "name: b, path: /b, categories: {'': [a]}",
        "models[1].categories.\"\": is not a valid name",
    ),
    (
        "name: b, path: /b, slow: 1",
        "models[1].\"slow\": is not a known field; known fields are name,",
    ),
];

/// Text below a model with an objective of 2 ms.
const OTHER_FIELDS: [(&str, &str); 12] = [
    (
        "batching: {policy: lazy}",
        "batching.policy: \"lazy\" is not a policy",
    ),
    (
        "batching: {policy: timeout}",
        "batching.max_delay: is missing",
    ),
    (
        "batching: {prefer: speed}",
        "batching.prefer: \"speed\" is not a preference: write short_waits or idle_workers",
    ),
    (
        "batching: {policy: eager, prefer: short_waits}",
        "batching.prefer: is allowed with policy auto only",
    ),
    (
        "batching: {max_delay: 1ms}",
        "batching.max_delay: is allowed with policy timeout only",
    ),
    (
        "batching: {policy: timeout, max_delay: 2ms}",
        "batching.max_delay: \"2ms\" is not shorter than the latency objective of model a",
    ),
    (
        "batching: {max_rows: 0}",
        "batching.max_rows: 0 is not from 1 to 65536",
    ),
    (
        "batching: {max_rows: -1}",
        "batching.max_rows: -1 is not a whole number",
    ),
    (
        "batching: {max_rows: 1.5}",
        "batching.max_rows: 1.5 is not a whole number",
    ),
    (
        "queue: {max_rows: 1000}",
        "queue.max_rows: 1000 is below batching.max_rows",
    ),
    (
        "queue: {max_rows: 9999999}",
        "queue.max_rows: 9999999 is not from 1",
    ),
    (
        "queues: {}",
        "\"queues\": is not a known field; known fields are models, batching, queue",
    ),
];

#[track_caller]
fn assert_rejected(text: &str, words: &str) {
    let accepted = |settings| format!("was accepted: {settings:?}");
    let error = Settings::read(text).map_or_else(|error| error.to_string(), accepted);
    assert!(error.contains(words), "{text:.80}: {error}");
    assert!(!error.contains('\n') && error.len() < 400, "{error}");
}

#[test]
fn each_error_names_the_field_the_value_and_the_remedy() {
    for (text, words) in FILES {
        assert_rejected(text, words);
    }
    for (fields, words) in MODELS {
        let text = format!("models: [{{name: a, path: /a}}, {{{fields}}}]");
        assert_rejected(&text, words);
    }
    for (fields, words) in OTHER_FIELDS {
        let text = format!("models: [{{name: a, path: /a, slo: {{latency: 2ms}}}}]\n{fields}");
        assert_rejected(&text, words);
    }
    assert_rejected(&format!("a: {}", "b".repeat(1 << 20)), "bytes are too many");
    assert_rejected(&format!("a: {}", "[".repeat(100)), "line ");
}

fn any_batching() -> impl Strategy<Value = ModelBatching> {
    let delay = (1_u64..=1_000).prop_map(Duration::from_micros);
    let policy = prop_oneof![
        Just(Policy::default()),
        Just(Policy::Auto(Prefer::IdleWorkers)),
        Just(Policy::Deferred),
        Just(Policy::Eager),
        delay.prop_map(|delay| Policy::Timeout { delay }),
    ];
    let window = proptest::option::of((1_u64..=600_000_000).prop_map(Duration::from_micros));
    (policy, 1_usize..=65_536, window).prop_map(|(policy, batch_rows_max, window)| ModelBatching {
        policy,
        batch_rows_max,
        window: window.filter(|_| policy.has_window()),
    })
}

fn any_schema_names() -> impl Strategy<Value = SchemaNames> {
    let missing = prop_oneof![
        Just(MissingColumnPolicy::Refuse),
        Just(MissingColumnPolicy::Nan)
    ];
    let names = proptest::collection::btree_set(r"[^\x00-\x1f\x7f-\x9f]{1,63}", 2..5);
    let classes = prop_oneof![
        Just(Vec::new()),
        names.prop_map(|it| it.into_iter().collect())
    ];
    let text = r"[^\x00-\x1f\x7f-\x9f]{0,20}";
    let texts = proptest::collection::btree_set(text, 1..4);
    let texts = texts.prop_map(|it| it.into_iter().rev().collect());
    let columns = proptest::collection::btree_map(r"[^\x00-\x1f\x7f-\x9f]{1,20}", texts, 0..3);
    (missing, classes, columns).prop_map(|(missing, classes, categories)| SchemaNames {
        missing,
        classes,
        categories,
    })
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let latency = (1_001_u64..600_000_000).prop_map(Duration::from_micros);
    let other = (1_u64..600_000_000).prop_map(|micros| Some(Duration::from_micros(micros)));
    let other = prop_oneof![Just(None), other];
    let slo = (latency, 50.0..99.99, other.clone(), other).prop_map(
        |(latency, percentile, contribs, interactions)| Slo {
            latency,
            percentile,
            contribs,
            interactions,
        },
    );
    let path = r"/[^\x00-\x1f\x7f-\x9f]{0,40}[^\x00-\x1f\x7f-\x9f/]".prop_map(Source::Path);
    let url = r"https?://[a-z.:0-9]{1,20}/[!$-~]{0,40}".prop_map(Source::Url);
    let digest = any::<[u8; 32]>().prop_map(Digest);
    let range = (0_u32..1_000_000, 1_u32..1_000_000);
    let range = range.prop_map(|(begin, count)| IterationsSetting::Range {
        begin,
        end: begin + count,
    });
    let iterations = prop_oneof![
        Just(IterationsSetting::All),
        Just(IterationsSetting::Best),
        range
    ];
    let model = (
        "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
        prop_oneof![path, url],
        proptest::option::of(digest),
        proptest::option::of(iterations),
        proptest::option::of(slo),
        proptest::sample::subsequence(OUTPUTS.to_vec(), 0..=OUTPUTS.len()),
        proptest::option::of(1_u16..300),
        (
            1_u32..=10_000,
            proptest::option::of(any_batching()),
            any_schema_names(),
        ),
    );
    let model = model.prop_map(
        |(name, source, sha256, iterations, slo, outputs, threads, own)| ModelSettings {
            name,
            source,
            sha256,
            iterations,
            slo,
            outputs,
            threads,
            weight: own.0,
            batching: own.1,
            schema_names: own.2,
        },
    );
    let models = proptest::collection::vec(model, 1..5).prop_map(|mut models| {
        models.sort_by(|a, b| a.name.cmp(&b.name));
        models.dedup_by(|a, b| a.name == b.name);
        models
    });
    let queue = 65_536_usize..=4_194_304;
    (models, any_batching(), queue).prop_map(|(models, batching, queue_rows_max)| Settings {
        models,
        batching: BatchingParams {
            policy: batching.policy,
            batch_rows_max: batching.batch_rows_max,
            window: batching.window,
            queue_rows_max,
        },
    })
}

proptest! {
    #[test]
    fn valid_settings_round_trip(settings in any_settings()) {
        prop_assert_eq!(settings.check(), Ok(()));
        let text = settings.to_yaml();
        prop_assert_eq!(Settings::read(&text), Ok(settings), "{}", text);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".{0,200}") {
        let _ = Settings::read(&text);
    }

    #[test]
    fn corrupt_files_are_rejected_or_valid(at in 0..WHOLE.len(), byte in 0_u8..128) {
        let mut bytes = WHOLE.as_bytes().to_vec();
        bytes[at] = byte;
        let text = String::from_utf8(bytes).unwrap();
        if let Ok(settings) = Settings::read(&text) {
            prop_assert_eq!(settings.check(), Ok(()));
        }
    }
}
