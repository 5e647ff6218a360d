//! Two models that saturate the only worker are served by weight, also after an edit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use albacore_settings::{ModelSettings, Policy};
use serde_json::json;

use super::running::{PATIENCE, Running};
use super::{Volume, model, settings, until_in_force};

const FILE: &str = "main_medium_d6.ubj";

const FEATURES: usize = 155;

/// Rows of a request, and of a batch, so that the other requests of a model wait.
const ROWS: usize = 20;

/// Connections per model.
const CLIENTS: usize = 6;

/// Replies of both models per comparison.
const ANSWERS: u64 = 100;

/// Comparisons before the test fails: a stall of the machine can favor one model.
const COMPARISONS: usize = 10;

fn file(weights: [u32; 2]) -> String {
    let named = |(name, weight): (&str, u32)| ModelSettings {
        name: name.to_owned(),
        weight,
        ..model(FILE)
    };
    let models = ["a", "b"].into_iter().zip(weights).map(named).collect();
    settings(models, Policy::Eager, ROWS as u32)
}

fn contributions() -> Vec<u8> {
    let data: Vec<f64> = (0..ROWS * FEATURES).map(|at| (at % 97) as f64).collect();
    let shape = [ROWS, FEATURES];
    let input = json!({"name": "input", "shape": shape, "datatype": "FP32", "data": data});
    let outputs = [json!({"name": "contribs"})];
    json!({"inputs": [input], "outputs": outputs})
        .to_string()
        .into_bytes()
}

/// Waits until the model at `more` has at least twice as many answers as the other one.
fn compare(answers: &[AtomicU64; 2], more: usize) {
    let now = || [0, 1].map(|model| answers[model].load(Ordering::Relaxed));
    let mut results = Vec::new();
    for _ in 0..COMPARISONS {
        let (before, start) = (now(), Instant::now());
        let gained = loop {
            let gained = [0, 1].map(|model| now()[model] - before[model]);
            if gained.iter().sum::<u64>() >= ANSWERS {
                break gained;
            }
            assert!(start.elapsed() < PATIENCE, "{gained:?}");
            std::thread::sleep(Duration::from_millis(5));
        };
        // The ratio of the weights is four.
        if gained[more] >= 2 * gained[1 - more] {
            return;
        }
        results.push(gained);
    }
    panic!("answers of a and b: {results:?}");
}

/// Stops the clients on drop, also if a comparison fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn models_that_always_wait_are_answered_by_weight_and_an_edit_of_it_applies_at_once() {
    let volume = Volume::new(&file([100, 400]));
    let path = volume.settings().display().to_string();
    let arguments = ["--settings", &path, "--workers", "1", "--threads", "1"];
    let mut server = Running::spawn(&arguments.map(str::to_owned));
    server.wait_until_ready();
    until_in_force(&server, &volume);
    let (answers, is_over) = (
        [AtomicU64::new(0), AtomicU64::new(0)],
        AtomicBool::new(false),
    );
    let body = contributions();
    std::thread::scope(|scope| {
        for client in 0..2 * CLIENTS {
            let (answers, is_over, body) = (&answers, &is_over, &body);
            let mut connection = server.connect();
            scope.spawn(move || {
                let path = format!("/v2/models/{}/infer", ["a", "b"][client % 2]);
                while !is_over.load(Ordering::Relaxed) {
                    let answer = connection.call("POST", &path, &[], body);
                    assert_eq!(answer.status, 200, "{answer:?}");
                    answers[client % 2].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _end = StopOnDrop(&is_over);
        compare(&answers, 1);
        volume.update(&file([400, 100]));
        until_in_force(&server, &volume);
        compare(&answers, 0);
    });
}
