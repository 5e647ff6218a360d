//! Parameters of the stream: applied, kept after a disconnect, rejected, discarded.

use std::net::TcpListener;
use std::time::Duration;

use albacore_proto::params::{
    Batching, ModelParameters, Objective, Parameters, Policy, Prefer, Queue,
};
use albacore_settings::Policy as Rule;
use serde_json::json;
use tonic::Status;

use crate::fake_params::FakeParams;
use crate::running::{Running, kill, zoo};
use crate::volume::{Volume, model, settings};
use crate::{infer, message, metric, start, state, until};

fn start_with_model(further: &[&str], endpoint: &str) -> Running {
    let model = format!("m={}", zoo("xgb_exact.ubj").display());
    let arguments: Vec<&str> = ["--model", &model].iter().chain(further).copied().collect();
    start(&arguments, endpoint)
}

#[test]
fn parameters_of_the_stream_are_applied_and_invalid_ones_refused_by_name() {
    let params = FakeParams::start(Ok(message(77)));
    let mut server = start_with_model(&["--max-rows", "9"], &params.endpoint());
    let state = until(&server, "applied", |state| {
        state["params"]["generation"] == 77
    });
    let batching = json!({"policy": "timeout", "max_rows": 77, "max_delay_us": 1500});
    assert_eq!(state["batching"], batching);
    assert_eq!(
        state["params"],
        json!({"connected": true, "generation": 77})
    );
    let mut wrong = message(78);
    wrong.queue = Some(Queue { max_rows: 5 });
    params.send(Ok(wrong.clone()));
    let refused = server.event("parameters_refused");
    let words = refused["error"].as_str().unwrap();
    assert!(
        words.starts_with("parameters.queue.max_rows: 5 is below"),
        "{words}"
    );
    let state = until(&server, "refused", |state| {
        !state["params"]["refused"].is_null()
    });
    assert_eq!(
        (&state["batching"], &state["params"]["generation"]),
        (&batching, &json!(77))
    );
    // The same error is counted but not reported again: the next event is of another message.
    wrong.generation = 79;
    params.send(Ok(wrong));
    while metric(&server, "albacore_params_messages_refused_total") < 2.0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut deferred = message(80);
    let batching = deferred.batching.as_mut().unwrap();
    (batching.policy, batching.max_delay_us) = (Policy::Deferred.into(), None);
    params.send(Ok(deferred));
    server.event("parameters_applied");
    let state = until(&server, "applied", |state| {
        state["params"]["generation"] == 80
    });
    assert_eq!(state["batching"]["policy"], "deferred");
    let mut more = message(81);
    let batching = more.batching.as_mut().unwrap();
    (batching.policy, batching.max_delay_us) = (Policy::Deferred.into(), None);
    batching.window_us = Some(5000);
    params.send(Ok(more));
    let applied = server.event("parameters_applied");
    assert_eq!(
        applied,
        json!({"event": "parameters_applied", "generation": 81})
    );
    let state = until(&server, "right again", |state| {
        state["params"]["generation"] == 81
    });
    assert!(state["params"]["refused"].is_null());
    assert_eq!(state["batching"]["window_us"], 5000);
    assert_eq!(metric(&server, "albacore_params_connected"), 1.0);
    assert_eq!(metric(&server, "albacore_params_generation"), 81.0);
    assert_eq!(metric(&server, "albacore_params_messages_taken_total"), 3.0);
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn queue_and_objectives_of_the_stream_are_applied() {
    let params = FakeParams::start(Ok(message(64)));
    let server = start_with_model(&["--slo", "1us"], &params.endpoint());
    let late = "albacore_late_total{model=\"m\"}";
    until(&server, "applied", |state| {
        state["params"]["generation"] == 64
    });
    assert_eq!(infer(&server, 8), 200);
    assert_eq!(
        metric(&server, late),
        0.0,
        "without an objective none is late"
    );
    let mut strict = message(65);
    strict.slo = vec![Objective {
        model: "m".to_owned(),
        latency_us: 10,
        percentile: 99.0,
        contribs_us: None,
        interactions_us: None,
    }];
    strict.batching.as_mut().unwrap().max_delay_us = Some(5);
    params.send(Ok(strict));
    until(&server, "applied", |state| {
        state["params"]["generation"] == 65
    });
    assert_eq!(infer(&server, 8), 200);
    assert_eq!(metric(&server, late), 1.0);
    let mut narrow = message(4);
    narrow.queue = Some(Queue { max_rows: 4 });
    params.send(Ok(narrow));
    until(&server, "applied", |state| state["queue"]["max_rows"] == 4);
    assert_ne!(
        infer(&server, 8),
        200,
        "eight rows never fit a queue of four"
    );
    assert_eq!(infer(&server, 4), 200);
}

#[test]
fn parameters_of_a_lost_stream_stay_until_the_settings_change() {
    let rows = |rows| settings(vec![model("xgb_exact.ubj")], Rule::default(), rows);
    let volume = Volume::new(&rows(100));
    let params = FakeParams::start(Ok(message(200)));
    let (file, endpoint) = (volume.settings().display().to_string(), params.endpoint());
    let mut server = start(&["--settings", &file], &endpoint);
    let max_rows =
        |rows: u32| move |state: &serde_json::Value| state["batching"]["max_rows"] == rows;
    until(&server, "of the stream", max_rows(200));
    // While the stream is connected, it overrides an edit of the file.
    volume.update(&rows(101));
    server.event("settings_applied");
    assert_eq!(state(&server)["batching"]["max_rows"], 200);
    let address = params.address;
    drop(params);
    let lost = server.event("parameters_lost");
    assert_eq!(lost["place"], endpoint);
    let state = until(&server, "lost", |state| {
        state["params"]["connected"] == false
    });
    assert_eq!(
        state["batching"]["max_rows"], 200,
        "the parameters are kept"
    );
    assert_eq!(infer(&server, 8), 200);
    volume.update(&rows(102));
    let state = until(&server, "of the newer file", max_rows(102));
    assert!(state["params"]["generation"].is_null());
    let params = FakeParams::start_at(address, Ok(message(201)));
    until(&server, "back", max_rows(201));
    // A stream that ends with an error is reopened.
    params.send(Err(Status::permission_denied("no pod of this node")));
    let lost = server.event("parameters_lost");
    let words = lost["error"].as_str().unwrap().to_owned();
    assert!(
        words.contains("cannot connect") || words.contains("no pod"),
        "{words}"
    );
    until(&server, "lost", |state| {
        state["params"]["connected"] == false
    });
    params.send(Ok(message(202)));
    until(&server, "again", max_rows(202));
}

#[test]
fn parameters_in_force_survive_the_front() {
    let rows = |rows| settings(vec![model("xgb_exact.ubj")], Rule::default(), rows);
    let volume = Volume::new(&rows(100));
    let params = FakeParams::start(Ok(message(200)));
    let (file, endpoint) = (volume.settings().display().to_string(), params.endpoint());
    let mut server = start(&["--settings", &file], &endpoint);
    until(&server, "of the stream", |state| {
        state["params"]["generation"] == 200
    });
    drop(params);
    server.event("parameters_lost");
    let mut kill_front = || {
        until(&server, "a standby is ready", |state| {
            state["front"]["standby_ready"] == true
        });
        assert!(kill("-KILL", server.front()));
        server.event("front_died");
        state(&server)
    };
    let successor = kill_front();
    assert_eq!(successor["batching"]["max_rows"], 200);
    let params = json!({"connected": false, "generation": 200});
    assert_eq!(successor["params"], params);
    // Also in the next front, which was started later; newer settings replace the parameters.
    assert_eq!(kill_front()["params"], params);
    volume.update(&rows(101));
    server.event("settings_applied");
    assert!(kill("-KILL", server.front()));
    server.event("front_died");
    let successor = state(&server);
    assert_eq!(successor["batching"]["max_rows"], 101);
    assert!(successor["params"]["generation"].is_null());
}

#[test]
fn latency_is_reported_while_the_stream_asks_for_it() {
    let params = FakeParams::start(Ok(message(64)));
    let server = start_with_model(&[], &params.endpoint());
    until(&server, "applied", |state| {
        state["params"]["generation"] == 64
    });
    for _ in 0..3 {
        assert_eq!(infer(&server, 8), 200);
    }
    let reported = || params.reported.borrow().clone();
    assert_eq!(reported().1, 0, "no report was requested");
    let asking = |rows: u32, report_us: Option<u64>| {
        let mut asking = message(rows);
        asking.report_us = report_us;
        params.send(Ok(asking));
        until(&server, "applied", |state| {
            state["params"]["generation"] == rows
        });
    };
    // Shorter than the minimum period of the server, which then applies.
    asking(65, Some(1));
    until(&server, "reported", |_| reported().1 > 1);
    let (report, _) = reported();
    assert_eq!(report.counts.len(), report.bounds_us.len() + 1);
    assert_eq!(report.counts.iter().sum::<u64>(), 3, "since the start");
    assert!(report.bounds_us.is_sorted() && report.bounds_us[0] == 50);
    assert_eq!(infer(&server, 8), 200);
    until(&server, "counted", |_| {
        reported().0.counts.iter().sum::<u64>() == 4
    });
    asking(66, None);
    // One report may be in flight.
    std::thread::sleep(Duration::from_millis(500));
    let (_, count) = reported();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(reported().1, count, "reports are no longer requested");
}

#[test]
fn the_preference_of_auto_batching_changes_without_a_restart() {
    let of_auto = |generation: u32, prefer: Prefer| {
        let mut auto = message(generation);
        auto.batching = Some(Batching {
            policy: Policy::Auto.into(),
            max_rows: 80,
            max_delay_us: None,
            window_us: None,
            prefer: Some(prefer.into()),
        });
        Ok(auto)
    };
    let params = FakeParams::start(of_auto(90, Prefer::IdleWorkers));
    let server = start_with_model(&["--max-rows", "9"], &params.endpoint());
    for (generation, prefer) in [(90, "idle_workers"), (91, "short_waits")] {
        if generation == 91 {
            params.send(of_auto(91, Prefer::ShortWaits));
        }
        let state = until(&server, "applied", |state| {
            state["params"]["generation"] == generation
        });
        let batching = json!({"policy": "auto", "max_rows": 80, "prefer": prefer});
        assert_eq!(state["batching"], batching);
    }
    assert_eq!(server.stop("-TERM"), Some(0));
}

/// A message with parameters of model `m`.
fn of_model(generation: u32, parameters: ModelParameters) -> Parameters {
    Parameters {
        models: vec![parameters],
        ..message(generation)
    }
}

#[test]
fn parameters_of_single_models_are_changed_without_a_restart() {
    let mut model = model("xgb_exact.ubj");
    (model.threads, model.weight) = (Some(1), 250);
    let volume = Volume::new(&settings(vec![model], Rule::default(), 100));
    let file = volume.settings().display().to_string();
    // An older sender lists no models: the parameters of the file apply to them.
    let params = FakeParams::start(Ok(message(64)));
    let server = start(&["--settings", &file, "--threads", "2"], &params.endpoint());
    let applied = |generation: u32| {
        let state = until(&server, "applied", |state| {
            state["params"]["generation"] == generation
        });
        state["models"][0].clone()
    };
    let of_all = json!({"policy": "timeout", "max_rows": 64, "max_delay_us": 1500});
    let state = applied(64);
    assert_eq!(
        (&state["threads"], &state["weight"]),
        (&json!(1), &json!(250))
    );
    assert_eq!(state["batching_params"], of_all);
    // A listed model has the listed parameters, and defaults for the others.
    let listed = ModelParameters {
        model: "m".to_owned(),
        weight: Some(300),
        batching: Some(Batching {
            policy: Policy::Deferred.into(),
            max_rows: 8,
            max_delay_us: None,
            prefer: None,
            window_us: Some(5000),
        }),
        ..ModelParameters::default()
    };
    params.send(Ok(of_model(65, listed.clone())));
    let state = applied(65);
    assert_eq!(
        (&state["threads"], &state["weight"]),
        (&json!(null), &json!(300))
    );
    let expected = json!({"policy": "deferred", "max_rows": 8, "window_us": 5000});
    assert_eq!(state["batching_params"], expected);
    assert_eq!(infer(&server, 8), 200);
    // A message with more threads than a worker has is rejected as a whole.
    let wrong = ModelParameters {
        threads: Some(3),
        ..listed
    };
    params.send(Ok(of_model(66, wrong)));
    let state = until(&server, "refused", |state| {
        !state["params"]["refused"].is_null()
    });
    let words = state["params"]["refused"].as_str().unwrap();
    let reason =
        "parameters.models[0].threads: 3 is above the 2 threads of a worker of this server";
    assert!(words.starts_with(reason), "{words}");
    assert_eq!(state["models"][0]["batching_params"], expected);
    let plain = ModelParameters {
        model: "m".to_owned(),
        threads: Some(2),
        ..ModelParameters::default()
    };
    params.send(Ok(of_model(67, plain)));
    let state = applied(67);
    assert_eq!(
        (&state["threads"], &state["weight"]),
        (&json!(2), &json!(100))
    );
    assert_eq!(state["batching_params"]["max_rows"], 67);
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn a_server_starts_without_its_stream() {
    // A listener that never responds, and addresses without a listener.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    for endpoint in [&*silent, "http://127.0.0.1:1", "unix:/absent/params.sock"] {
        let server = start_with_model(&["--max-rows", "9"], endpoint);
        assert_eq!(infer(&server, 8), 200);
        let state = state(&server);
        assert_eq!(
            state["batching"],
            json!({"policy": "auto", "max_rows": 9, "prefer": "short_waits"})
        );
        assert_eq!(
            state["params"],
            json!({"connected": false, "generation": null})
        );
        if endpoint != silent {
            assert!(metric(&server, "albacore_params_streams_lost_total") > 0.0);
        }
        assert_eq!(server.stop("-TERM"), Some(0));
    }
    let without = Running::start(&[("m", "xgb_exact.ubj")], &[]);
    assert!(state(&without)["params"].is_null());
}
