//! Several models in one server: which models miss their objective, in its state and in `/metrics`,
//! and the thread limits of models.

use std::time::Duration;

use albacore_settings::{ModelSettings, Policy, Slo};
use serde_json::{Value, json};

use super::running::Running;
use super::{
    FILES, Volume, infer, infer_body, model, settings, start, state, until, until_in_force,
};

const LONG: Duration = Duration::from_secs(60);

/// Shorter than the latency of any reply.
const TOO_SHORT: Duration = Duration::from_micros(1);

fn named(name: &str, slo: Slo) -> ModelSettings {
    let name = name.to_owned();
    let slo = Some(slo);
    ModelSettings {
        name,
        slo,
        ..model(FILES[0])
    }
}

fn metric(metrics: &str, series: &str) -> Option<f64> {
    let mut lines = metrics.lines();
    let line = lines.find(|line| {
        line.strip_prefix(series)
            .is_some_and(|l| l.starts_with(' '))
    })?;
    line[series.len() + 1..].parse().ok()
}

fn send(server: &Running, model: &str, body: &[u8], count: usize) {
    for _ in 0..count {
        infer(server, model, body);
    }
}

fn model_state<'a>(state: &'a Value, model: &str) -> &'a Value {
    let mut models = state["models"].as_array().unwrap().iter();
    models.find(|found| found["name"] == model).unwrap()
}

fn kind<'a>(model: &'a Value, kind: &str) -> &'a Value {
    let mut kinds = model["outcomes"].as_array().unwrap().iter();
    kinds.find(|found| found["kind"] == kind).unwrap()
}

fn check_state(state: &Value) {
    let (meets, misses) = (model_state(state, "meets"), model_state(state, "misses"));
    let explained = model_state(state, "explained");
    let met = |model: &Value| model["slo_met"].clone();
    assert_eq!(met(meets), true, "{meets:#}");
    assert_eq!(met(misses), false, "{misses:#}");
    assert_eq!(met(explained), false, "{explained:#}");
    assert_eq!(
        met(model_state(state, "free")),
        Value::Null,
        "it has no objective"
    );
    assert_eq!(
        (
            &kind(meets, "value")["good"],
            &kind(misses, "value")["late"]
        ),
        (&400.into(), &5.into())
    );
    assert_eq!(
        (&misses["bad_rate"], &misses["goodput_per_second"]),
        (&1.0.into(), &0.0.into())
    );
    let rate = explained["bad_rate"].as_f64().unwrap();
    assert!(
        rate < 0.01,
        "all of its requests together are in time: {rate}"
    );
    assert_eq!(kind(explained, "contribs")["late"], 4);
    assert_eq!(kind(explained, "contribs")["newest"]["late"], 4);
    let replies: u64 = kind(meets, "value")["latency_us"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bucket| bucket[1].as_u64().unwrap())
        .sum();
    assert_eq!(replies, 400);
    assert!(meets["latency_p99_ms"].as_f64().unwrap() > 0.0);
    // Nine of 1,112 requests were bad; they are all requests of one model.
    assert!(state["bad_rate"].as_f64().unwrap() < 0.01, "{state:#}");
    assert!(
        (state["load_factor"].as_f64().unwrap() - 10.0).abs() < 1e-9,
        "{state:#}"
    );
}

fn check_metrics(metrics: &str) {
    for (series, expected) in [
        ("albacore_slo_met{model=\"meets\"}", Some(1.0)),
        ("albacore_slo_met{model=\"misses\"}", Some(0.0)),
        ("albacore_slo_met{model=\"explained\"}", Some(0.0)),
        ("albacore_slo_met{model=\"free\"}", None),
        (
            "albacore_outcomes_total{model=\"meets\",kind=\"value\",outcome=\"good\"}",
            Some(400.0),
        ),
        (
            "albacore_outcomes_total{model=\"misses\",kind=\"value\",outcome=\"late\"}",
            Some(5.0),
        ),
        (
            "albacore_outcomes_total{model=\"explained\",kind=\"contribs\",outcome=\"late\"}",
            Some(4.0),
        ),
        (
            "albacore_outcomes_total{model=\"misses\",kind=\"unread\",outcome=\"shed\"}",
            Some(0.0),
        ),
    ] {
        assert_eq!(metric(metrics, series), expected, "{series} in {metrics}");
    }
    let factor = metric(metrics, "albacore_load_factor").unwrap();
    assert!((factor - 10.0).abs() < 1e-9, "{factor}");
}

#[test]
fn a_model_and_a_kind_that_miss_their_objective_are_named_beside_those_that_meet_it() {
    let explained = Slo {
        contribs: Some(TOO_SHORT),
        ..Slo::uniform(LONG, 99.0)
    };
    let models = vec![
        named("meets", Slo::uniform(LONG, 99.0)),
        named("misses", Slo::uniform(TOO_SHORT, 99.0)),
        named("explained", explained),
        ModelSettings {
            name: "free".to_owned(),
            ..model(FILES[0])
        },
    ];
    let volume = Volume::new(&settings(models, Policy::Eager, 1024));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    until_in_force(&server, &volume);
    let row = infer_body(1);
    let mut contribs: Value = serde_json::from_slice(&row).unwrap();
    contribs["outputs"] = json!([{"name": "contribs"}]);
    let contribs = contribs.to_string().into_bytes();
    // Too few to learn batch costs: all are answered, these late.
    send(&server, "meets", &row, 400);
    send(&server, "misses", &row, 5);
    send(&server, "explained", &row, 700);
    send(&server, "explained", &contribs, 4);
    send(&server, "free", &row, 3);

    check_state(&state(&server));
    check_metrics(&String::from_utf8(server.get("/metrics").body).unwrap());
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn threads_of_a_model_change_without_a_restart_and_more_than_a_worker_has_are_refused() {
    let with = |threads| {
        let model = ModelSettings {
            threads,
            ..model(FILES[0])
        };
        settings(vec![model], Policy::Eager, 1024)
    };
    let volume = Volume::new(&with(None));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let before = until_in_force(&server, &volume);
    assert_eq!(model_state(&before, "m")["threads"], Value::Null);
    volume.update(&with(Some(1)));
    let after = until_in_force(&server, &volume);
    assert_eq!(model_state(&after, "m")["threads"], 1);
    let loaded = |state: &Value| model_state(state, "m")["loaded_at_unix_ms"].clone();
    assert_eq!(loaded(&before), loaded(&after), "nothing was loaded");
    assert_eq!(infer(&server, "m", &infer_body(4)).status, 200);
    volume.update(&with(Some(3)));
    let refused = until(&server, "three are refused", |state| {
        state["settings_error"].is_string()
    });
    let error = refused["settings_error"].as_str().unwrap();
    assert!(
        error.ends_with(
            "models[0].threads: 3 is above the 2 threads of a worker of this server: write auto or \
             at most 2, or start it with more --threads"
        ),
        "{error}"
    );
    assert_eq!(
        model_state(&refused, "m")["threads"],
        1,
        "the former ones stay"
    );
    assert_eq!(server.stop("-TERM"), Some(0));
}
