//! Batching params and weight of single models: edits while the server runs, shown in its state, in
//! `/metrics` and in the dispatch reasons of batches.

use std::time::Duration;

use albacore_settings::{ModelBatching, ModelSettings, Policy, Prefer};
use serde_json::{Value, json};

use super::running::Running;
use super::{
    FILES, Volume, infer, infer_body, model, settings, start, state, until, until_in_force,
};

/// Model `a` with its own batching params, and model `b`.
fn models(batching: Option<ModelBatching>, weight: u32) -> Vec<ModelSettings> {
    let named = |name: &str| ModelSettings {
        name: name.to_owned(),
        ..model(FILES[0])
    };
    let a = ModelSettings {
        batching,
        weight,
        ..named("a")
    };
    vec![a, named("b")]
}

fn model_state<'a>(state: &'a Value, model: &str) -> &'a Value {
    let mut models = state["models"].as_array().unwrap().iter();
    models.find(|found| found["name"] == model).unwrap()
}

fn metrics(server: &Running) -> String {
    String::from_utf8(server.get("/metrics").body).unwrap()
}

/// Number of batches of a model dispatched for this reason.
fn dispatch_count(server: &Running, model: &str, reason: &str) -> f64 {
    let metrics = metrics(server);
    let labels = [format!("model=\"{model}\""), format!("cause=\"{reason}\"")];
    let lines = metrics.lines().filter(|line| {
        line.starts_with("albacore_batches_left_total")
            && labels.iter().all(|l| line.contains(&**l))
    });
    let counts = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
    counts.sum()
}

fn assert_answered(server: &Running, model: &str, rows: usize) {
    assert_eq!(
        infer(server, model, &infer_body(rows)).status,
        200,
        "{model}"
    );
}

#[test]
fn a_model_is_batched_by_its_own_rule_from_an_edit_on_and_not_its_neighbor() {
    let auto = Policy::Auto(Prefer::ShortWaits);
    let file = |batching, weight| settings(models(batching, weight), auto, 1024);
    let volume = Volume::new(&file(None, 100));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let before = until_in_force(&server, &volume);
    let of_all = json!({"policy": "auto", "max_rows": 1024, "prefer": "short_waits"});
    for name in ["a", "b"] {
        assert_eq!(model_state(&before, name)["batching_params"], of_all);
        assert_eq!(model_state(&before, name)["weight"], 100);
        (0..20).for_each(|_| assert_answered(&server, name, 8));
    }
    until(&server, "auto reports both", |state| {
        ["a", "b"]
            .iter()
            .all(|name| model_state(state, name)["batching"].is_array())
    });
    assert_eq!(dispatch_count(&server, "a", "due"), 0.0);

    let batching = ModelBatching {
        policy: Policy::Timeout {
            delay: Duration::from_millis(20),
        },
        batch_rows_max: 4,
        window: None,
    };
    volume.update(&file(Some(batching), 250));
    let after = until_in_force(&server, &volume);
    let expected = json!({"policy": "timeout", "max_rows": 4, "max_delay_us": 20_000});
    assert_eq!(model_state(&after, "a")["batching_params"], expected);
    assert_eq!(model_state(&after, "a")["weight"], 250);
    assert_eq!(model_state(&after, "b")["batching_params"], of_all);
    assert_eq!(after["batching"], of_all, "that of all is the same");
    assert_eq!(
        model_state(&after, "a")["batching"],
        Value::Null,
        "auto is no longer asked"
    );
    assert!(model_state(&after, "b")["batching"].is_array());
    let chosen = metrics(&server);
    assert!(!chosen.contains("albacore_batching_deferred{model=\"a\""));
    assert!(chosen.contains("albacore_batching_deferred{model=\"b\""));
    // Two rows wait for their delay; eight rows are two full batches.
    let (full, arrived) = (
        dispatch_count(&server, "a", "full"),
        dispatch_count(&server, "b", "arrival"),
    );
    assert_answered(&server, "a", 2);
    assert_answered(&server, "b", 2);
    assert_eq!(dispatch_count(&server, "a", "due"), 1.0);
    assert_eq!(dispatch_count(&server, "b", "due"), 0.0);
    assert_eq!(dispatch_count(&server, "b", "arrival"), arrived + 1.0);
    assert_answered(&server, "a", 8);
    assert_eq!(dispatch_count(&server, "a", "full"), full + 2.0);

    volume.update(&file(None, 100));
    let again = until_in_force(&server, &volume);
    assert_eq!(model_state(&again, "a")["batching_params"], of_all);
    assert_answered(&server, "a", 2);
    assert_eq!(
        dispatch_count(&server, "a", "due"),
        1.0,
        "it waits no longer"
    );
    let loaded = |state: &Value| model_state(state, "a")["loaded_at_unix_ms"].clone();
    assert_eq!(loaded(&before), loaded(&again), "nothing was loaded");
    assert_eq!(state(&server)["workers"]["restarts"], 0);
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn a_window_ends_the_wait_of_deferred_requests() {
    let long = albacore_settings::Slo::uniform(Duration::from_secs(60), 99.0);
    let with = |window| {
        let batching = ModelBatching {
            policy: Policy::Deferred,
            batch_rows_max: 64,
            window,
        };
        let deferred = ModelSettings {
            slo: Some(long),
            ..models(Some(batching), 100).remove(0)
        };
        settings(vec![deferred], Policy::Eager, 1024)
    };
    let volume = Volume::new(&with(Some(Duration::from_millis(5))));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let state = until_in_force(&server, &volume);
    assert_eq!(
        model_state(&state, "a")["batching_params"]["window_us"],
        5000
    );
    // Without the window the requests after the first, from which costs are learned, would each
    // wait for most of a minute.
    (0..20).for_each(|_| assert_answered(&server, "a", 1));
    assert!(dispatch_count(&server, "a", "due") > 0.0);
    // An edit that shortens the window dispatches the waiting request.
    volume.update(&with(Some(Duration::from_secs(50))));
    until_in_force(&server, &volume);
    let due = dispatch_count(&server, "a", "due");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| infer(&server, "a", &infer_body(1)).status);
        until(&server, "it waits", |_| {
            metrics(&server).contains("\nalbacore_queue_rows 1\n")
        });
        volume.update(&with(Some(Duration::from_millis(5))));
        assert_eq!(waiting.join().unwrap(), 200);
    });
    assert_eq!(dispatch_count(&server, "a", "due"), due + 1.0);
    assert_eq!(server.stop("-TERM"), Some(0));
}
