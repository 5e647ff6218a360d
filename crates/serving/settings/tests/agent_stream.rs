//! The agent's stream: encoding round-trips, errors name the field, no input causes a panic.

#![allow(clippy::unwrap_used)] // tests fail by panicking

use std::net::IpAddr;
use std::time::Duration;

use albacore_settings::agent_stream::{
    LINE_TERMINATOR, LatencyReport, ModelParameters, ModelSlo, NodeSnapshot, Parameters, ServingPod,
};
use albacore_settings::{
    BatchingParams, ModelBatching, Policy, Prefer, REPORT_BUCKETS_MAX, REPORT_LINE_BYTES_MAX,
    SNAPSHOT_LINE_BYTES_MAX, SNAPSHOT_METRICS_BYTES_MAX, SNAPSHOT_PODS_MAX, Slo,
};
use proptest::prelude::*;

const LINE: &str = r##"{"node":"n1","sequence":7,"pods":[{"address":"10.0.0.7","namespace":"shop","name":"fraud-5d8-x","uid":"6a","deployment":"fraud","generation":3,"parameters":{"batching":{"policy":"timeout","max_rows":512,"max_delay":"2ms"},"queue":{"max_rows":4096},"slo":[{"model":"fraud","latency":"25ms","percentile":99.9}],"models":[{"model":"fraud","threads":2,"weight":300,"batching":{"policy":"deferred","max_rows":64,"window":"5ms"}},{"model":"spam"}],"generation":3}}],"metrics":"# TYPE a gauge\na 1\n"}
"##;

fn line() -> NodeSnapshot {
    NodeSnapshot::decode(LINE.as_bytes()).unwrap().snapshot
}

#[test]
fn a_line_is_decoded_and_encoded_unchanged() {
    let snapshot = line();
    let pod = &snapshot.pods[0];
    assert_eq!(pod.address, Some("10.0.0.7".parse().unwrap()));
    let fraud = pod.parameters.of_model("fraud").unwrap();
    let own = ModelBatching {
        policy: Policy::Deferred,
        batch_rows_max: 64,
        window: Some(Duration::from_millis(5)),
    };
    assert_eq!((fraud.threads, fraud.weight), (Some(2), 300));
    assert_eq!(fraud.batching, Some(own));
    let spam = pod.parameters.of_model("spam");
    assert_eq!(spam, Some(&ModelParameters::defaults("spam".to_owned())));
    assert_eq!(snapshot.encode().unwrap(), LINE);
    assert!(!LINE_TERMINATOR.iter().any(|byte| *byte != b'\n'));
}

#[test]
fn unknown_fields_of_another_version_are_ignored_and_counted() {
    let more = LINE
        .replacen("{", r#"{"color":{"a":[1,{"b":2}]},"#, 1)
        .replace(r#""uid":"#, r#""zone":null,"uid":"#)
        .replace(r#""latency":"#, r#""soft":true,"latency":"#)
        .replace(r#""queue":{"#, r#""queue":{"depth":1,"#);
    let decoded = NodeSnapshot::decode(more.as_bytes()).unwrap();
    assert_eq!(decoded.unknown_fields, 4);
    assert_eq!(decoded.snapshot, line());
}

#[test]
fn unused_fields_of_an_older_sender_are_ignored() {
    let older = LINE.replace(
        r#""generation":3}}]"#,
        r#""window":"5ms","workers":4,"threads":4,"cpu_share":3.5,"generation":3}}]"#,
    );
    let decoded = NodeSnapshot::decode(older.as_bytes()).unwrap();
    assert_eq!(decoded.unknown_fields, 4);
    assert_eq!(decoded.snapshot, line());
    // It lists no models, so their settings are unchanged.
    let older = older.replace(r#""models":"#, r#""unlisted":"#);
    let decoded = NodeSnapshot::decode(older.as_bytes()).unwrap();
    assert_eq!(decoded.snapshot.pods[0].parameters.models, []);
}

#[test]
fn an_ipv4_mapped_ipv6_address_is_decoded_as_ipv4() {
    let mapped = LINE.replace("10.0.0.7", "::ffff:10.0.0.7");
    assert_eq!(
        NodeSnapshot::decode(mapped.as_bytes()).unwrap().snapshot,
        line()
    );
    let mut pod = line().pods.remove(0);
    pod.address = Some("::ffff:10.0.0.7".parse().unwrap());
    let error = pod.check().unwrap_err().to_string();
    assert!(error.starts_with("pod.address: ::ffff:10.0.0.7 is an IPv4 address in IPv6"));
}

/// Text to replace in the line, its replacement, and the expected error.
const WRONG: [(&str, &str, &str); 29] = [
    ("\"n1\"", "\"\"", "node: \"\" is not 1 to 253"),
    ("\"n1\"", "7", "node: 7 is not a string"),
    ("\"node\":\"n1\",", "", "node: is missing"),
    (
        "\"sequence\":7",
        "\"sequence\":-7",
        "sequence: -7 is not a whole",
    ),
    (
        "10.0.0.7",
        "10.0.0.7.8",
        "pods[0].address: \"10.0.0.7.8\" is not an IP address",
    ),
    (
        "10.0.0.7",
        "0.0.0.0",
        "pods[0].address: 0.0.0.0 is not an address of a pod",
    ),
    ("10.0.0.7", "fe80::1%eth0", "pods[0].address: "),
    (
        "\"6a\"",
        "\"6a\\n\"",
        "pods[0].uid: \"6a\\n\" is not 1 to 253",
    ),
    ("\"shop\"", "\"a b\"", "pods[0].namespace: "),
    (
        "\"timeout\"",
        "\"never\"",
        "pods[0].parameters.batching.policy: \"never\" is not a policy",
    ),
    (
        "\"deferred\",\"max_rows\":64,\"window\":\"5ms\"",
        "\"timeout\",\"max_rows\":64,\"max_delay\":\"25ms\"",
        "models[0].batching.max_delay: \"25ms\" is not shorter",
    ),
    (
        "\"2ms\"",
        "2",
        "pods[0].parameters.batching.max_delay: 2 is not a string",
    ),
    (
        "4096",
        "511",
        "pods[0].parameters.queue.max_rows: 511 is below",
    ),
    (
        "512",
        "0",
        "pods[0].parameters.batching.max_rows: 0 is not from 1",
    ),
    (
        "512",
        "1e3",
        "pods[0].parameters.batching.max_rows: 1000.0 is not a whole",
    ),
    (
        "99.9",
        "101",
        "pods[0].parameters.slo[0].percentile: 101 is not from 50",
    ),
    (
        "\"model\":\"fraud\"",
        "\"model\":\"-\"",
        "pods[0].parameters.slo[0].model: \"-\" is not a valid name",
    ),
    (
        "\"window\":\"5ms\"",
        "\"window\":\"5\"",
        "pods[0].parameters.models[0].batching.window: \"5\" is not a duration",
    ),
    (
        "\"deferred\"",
        "\"eager\"",
        "models[0].batching.window: \"5ms\" is allowed with policy auto or deferred only",
    ),
    (
        "\"max_delay\":\"2ms\"",
        "\"max_delay\":\"2ms\",\"window\":\"1ms\"",
        "pods[0].parameters.batching.window: \"1ms\" is allowed with policy auto or deferred",
    ),
    (
        "\"deferred\",",
        "\"deferred\",\"prefer\":\"idle_workers\",",
        "models[0].batching.prefer: is allowed with policy auto only",
    ),
    (
        "\"max_rows\":64",
        "\"max_rows\":4097",
        "queue.max_rows: 4096 is below pods[0].parameters.models[0].batching.max_rows, 4097",
    ),
    (
        "\"weight\":300",
        "\"weight\":0",
        "pods[0].parameters.models[0].weight: 0 is not from 1 to 10000",
    ),
    (
        "\"weight\":300",
        "\"weight\":10001",
        "pods[0].parameters.models[0].weight: 10001 is not from 1 to 10000",
    ),
    (
        "\"threads\":2",
        "\"threads\":0",
        "pods[0].parameters.models[0].threads: 0 is not a valid number of threads",
    ),
    (
        "\"model\":\"spam\"",
        "\"model\":\"fraud\"",
        "pods[0].parameters.models[1].model: \"fraud\" is listed twice",
    ),
    ("99.9", "1e400", "number out of range"),
    ("\"pods\":[", "\"pods\":[1,", "pods[0]: 1 is not an object"),
    ("}\n", "", "EOF"),
];

#[test]
fn each_invalid_value_is_reported_with_its_field() {
    for (from, to, words) in WRONG {
        let wrong = LINE.replacen(from, to, 1);
        assert_ne!(wrong, LINE, "{from}");
        let error = NodeSnapshot::decode(wrong.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{from} -> {to}: {error}");
    }
    for whole in ["[]", "1", "null", "", "\n", "\u{feff}{}", "{} {}"] {
        assert!(NodeSnapshot::decode(whole.as_bytes()).is_err(), "{whole:?}");
    }
    let deep = "[".repeat(SNAPSHOT_LINE_BYTES_MAX);
    assert!(NodeSnapshot::decode(deep.as_bytes()).is_err());
}

#[test]
fn bounds_apply_when_encoding() {
    let mut snapshot = line();
    snapshot.metrics = "a".repeat(SNAPSHOT_METRICS_BYTES_MAX + 1);
    let error = snapshot.encode().unwrap_err().to_string();
    assert!(error.starts_with("metrics: has 262145 bytes"), "{error}");
    snapshot.metrics = "\u{1}".repeat(SNAPSHOT_METRICS_BYTES_MAX);
    let error = snapshot.encode().unwrap_err().to_string();
    assert!(error.contains("a snapshot line has at most"), "{error}");
    snapshot.metrics.clear();
    let pod = snapshot.pods[0].clone();
    snapshot.pods = vec![pod.clone(); SNAPSHOT_PODS_MAX];
    let full = snapshot.encode().unwrap();
    assert!(full.len() < SNAPSHOT_LINE_BYTES_MAX, "{}", full.len());
    snapshot.pods.push(pod);
    let error = snapshot.encode().unwrap_err().to_string();
    assert_eq!(error, "pods: has 1025 entries, at most 1024");
    let long = vec![b' '; SNAPSHOT_LINE_BYTES_MAX + 1];
    assert!(NodeSnapshot::decode(&long).is_err());
}

fn slo() -> impl Strategy<Value = Slo> {
    let micros = || 1000_u64..600_000_000;
    let other = || prop_oneof![Just(None), micros().prop_map(Some)];
    (micros(), 5_000_u32..=9_999, other(), other()).prop_map(
        |(latency, hundredths, contribs, interactions)| Slo {
            latency: Duration::from_micros(latency),
            percentile: f64::from(hundredths) / 100.0,
            contribs: contribs.map(Duration::from_micros),
            interactions: interactions.map(Duration::from_micros),
        },
    )
}

fn batching() -> impl Strategy<Value = ModelBatching> {
    let policy = prop_oneof![
        Just(Policy::default()),
        Just(Policy::Auto(Prefer::IdleWorkers)),
        Just(Policy::Deferred),
        Just(Policy::Eager),
        (1_u64..1000).prop_map(|micros| Policy::Timeout {
            delay: Duration::from_micros(micros)
        }),
    ];
    let window = prop::option::of(1_u64..600_000_000);
    (policy, 1_usize..=65_536, window).prop_map(|(policy, batch_rows_max, window)| ModelBatching {
        policy,
        batch_rows_max,
        window: window
            .filter(|_| policy.has_window())
            .map(Duration::from_micros),
    })
}

fn parameters() -> impl Strategy<Value = Parameters> {
    let slo = prop::collection::btree_map("[a-z]([a-z0-9._-]{0,9}[a-z0-9])?", slo(), 0..4);
    let report = prop::option::of(1_u64..600_000_000);
    let own = (
        prop::option::of(1_u16..300),
        1_u32..=10_000,
        prop::option::of(batching()),
    );
    let models = prop::collection::btree_map("[a-z]([a-z0-9._-]{0,9}[a-z0-9])?", own, 0..4);
    let queue = 65_536_usize..4_194_304;
    let parts = (batching(), queue, slo, models, report, any::<u64>());
    parts.prop_map(
        |(batching, queue_rows_max, slo, models, report, generation)| Parameters {
            batching: BatchingParams {
                policy: batching.policy,
                batch_rows_max: batching.batch_rows_max,
                window: batching.window,
                queue_rows_max,
            },
            slo: slo
                .into_iter()
                .map(|(model, slo)| ModelSlo { model, slo })
                .collect(),
            models: models
                .into_iter()
                .map(|(model, (threads, weight, batching))| ModelParameters {
                    model,
                    threads,
                    weight,
                    batching,
                })
                .collect(),
            generation,
            report: report.map(Duration::from_micros),
        },
    )
}

fn pod() -> impl Strategy<Value = ServingPod> {
    let address = prop::option::of(prop_oneof![
        (1_u32..0xe000_0000).prop_map(|bits| IpAddr::from(bits.to_be_bytes())),
        (1_u64.., any::<u64>()).prop_map(|(high, low)| {
            let bits = (u128::from(high & 0x3fff_ffff_ffff_ffff | 1 << 61) << 64) | u128::from(low);
            IpAddr::from(bits.to_be_bytes())
        }),
    ]);
    let word = || "[a-zA-Z0-9.:_-]{1,40}";
    (
        address,
        word(),
        word(),
        word(),
        word(),
        any::<u64>(),
        parameters(),
    )
        .prop_map(
            |(address, namespace, name, uid, deployment, generation, parameters)| ServingPod {
                address,
                namespace,
                name,
                uid,
                deployment,
                generation,
                parameters,
            },
        )
}

prop_compose! {
    fn snapshot()(
        node in "[a-z0-9.-]{1,253}",
        sequence in any::<u64>(),
        pods in prop::collection::vec(pod(), 0..5),
        metrics in any::<String>(),
    ) -> NodeSnapshot {
        NodeSnapshot { node, sequence, pods, metrics }
    }
}

proptest! {
    #[test]
    fn encoded_lines_round_trip(snapshot in snapshot()) {
        let line = snapshot.encode().unwrap();
        prop_assert_eq!(line.find('\n'), Some(line.len() - 1), "one line");
        let decoded = NodeSnapshot::decode(line.as_bytes()).unwrap();
        prop_assert_eq!(decoded.unknown_fields, 0);
        prop_assert_eq!(decoded.snapshot, snapshot);
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_rejected(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = NodeSnapshot::decode(&bytes);
    }

    #[test]
    fn corrupt_lines_are_decoded_or_rejected(
        snapshot in snapshot(),
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3), 1..6),
    ) {
        let mut bytes = snapshot.encode().unwrap().into_bytes();
        for (index, byte, how) in damages {
            let at = index.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, byte),
            }
        }
        if let Ok(decoded) = NodeSnapshot::decode(&bytes) {
            // A decoded snapshot is valid in every field and can be encoded again.
            decoded.snapshot.encode().unwrap();
        }
    }

    #[test]
    fn arbitrary_values_in_any_field_are_decoded_or_rejected(
        field in 0_usize..22,
        value in prop_oneof![
            Just("null".to_owned()), Just("[]".to_owned()), Just("{}".to_owned()),
            Just("true".to_owned()), any::<f64>().prop_map(|x| format!("{x:e}")),
            any::<i64>().prop_map(|x| x.to_string()),
            any::<String>().prop_map(|x| format!("{x:?}")),
        ],
    ) {
        // Replaces the value of the field and moves the old value to a field `other` after it.
        let at = LINE.match_indices("\":").nth(field).map_or(0, |(at, _)| at + 2);
        let text = format!("{}{value},\"other\":{}", &LINE[..at], &LINE[at..]);
        if let Ok(decoded) = NodeSnapshot::decode(text.as_bytes()) {
            prop_assert_eq!(decoded.unknown_fields, 1);
            decoded.snapshot.encode().unwrap();
        }
    }
}

fn report() -> LatencyReport {
    LatencyReport {
        uid: "6a".to_owned(),
        bounds_us: vec![1000, 5000],
        counts: vec![17, 3, 0],
    }
}

#[test]
fn a_report_round_trips_and_the_longest_fits_its_line() {
    let line = r#"{"uid":"6a","bounds_us":[1000,5000],"counts":[17,3,0]}"#;
    assert_eq!(LatencyReport::decode(line.as_bytes()).unwrap(), report());
    assert_eq!(report().encode().unwrap(), format!("{line}\n"));
    let longest = LatencyReport {
        uid: "u".repeat(253),
        bounds_us: (1..REPORT_BUCKETS_MAX as u64)
            .map(|n| u64::MAX - 100 + n)
            .collect(),
        counts: vec![u64::MAX; REPORT_BUCKETS_MAX],
    };
    let line = longest.encode().unwrap();
    assert!(line.len() <= REPORT_LINE_BYTES_MAX, "{}", line.len());
    assert_eq!(LatencyReport::decode(line.as_bytes()).unwrap(), longest);
}

#[test]
fn invalid_reports_are_rejected_with_the_field() {
    let long = format!("{{\"uid\":\"{}\"}}", "u".repeat(REPORT_LINE_BYTES_MAX));
    let many = format!(
        "{{\"uid\":\"a\",\"counts\":{:?}}}",
        [0; REPORT_BUCKETS_MAX + 1]
    );
    for (line, words) in [
        ("", "EOF"),
        ("7", "the report: 7 is not an object"),
        ("{}", "uid: \"\" is not 1 to 253"),
        (r#"{"uid":"a","counts":[]}"#, "counts: has 0 entries"),
        (
            r#"{"uid":"a","counts":[1,2]}"#,
            "counts: has 2 entries for 0 bounds",
        ),
        (
            r#"{"uid":"a","counts":[1,-2],"bounds_us":[1]}"#,
            "counts[1]: -2 is not a whole",
        ),
        (
            r#"{"uid":"a","counts":[1,2,3],"bounds_us":[5,5]}"#,
            "bounds_us: are not in ascending order",
        ),
        (
            r#"{"uid":"a b","counts":[1]}"#,
            "uid: \"a b\" is not 1 to 253",
        ),
        (&many, "counts: has 33 entries"),
        (&long, "the report: has 2"),
    ] {
        let error = LatencyReport::decode(line.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(error.starts_with(words), "{line}: {error}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_a_report_or_rejected(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
    ) {
        let _ = LatencyReport::decode(&bytes);
        let mut line = report().encode().unwrap().into_bytes();
        let at = at.index(line.len());
        line[at] = bytes.first().copied().unwrap_or_default();
        if let Ok(report) = LatencyReport::decode(&line) {
            report.encode().unwrap();
        }
    }
}
