//! `albacore simulate` as a process: figures, traces, pictures, and rejected input.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod command;

use command::{albacore, albacore_words, assert_refused, data};
use serde_json::Value;

const SCENARIO: &str = "workers: 8\nmodels:\n  - {name: r, alpha: 1.053, beta: 5.072, slo: 25}\n\
                        rate: 4000\nrequests: 20000\nearly: 0\npolicy: deferred\n";

/// A directory with a scenario.
fn folder(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scenario.yaml");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn figures_are_one_json_object_and_keys_can_be_set() {
    let (_folder, path) = folder(SCENARIO);
    let ran = albacore(&[
        "simulate",
        "-f",
        &path,
        "--set",
        "seed=3",
        "--set",
        "drop.target=half",
    ]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let figures: Value = serde_json::from_str(&ran.out).unwrap();
    let keys: Vec<_> = figures.as_object().unwrap().keys().collect();
    let wanted = [
        "offered",
        "bad",
        "bad_rate",
        "worst_model_bad_rate",
        "idle_share",
        "workers_used",
        "batch_median",
        "batch_mean",
        "queue_p50_ms",
        "queue_p99_ms",
        "good_per_second",
    ];
    assert_eq!(keys, wanted);
    assert_eq!(figures["offered"], 20_000);
    let again = albacore(&[
        "simulate",
        "-f",
        &path,
        "--set",
        "seed=3",
        "--set",
        "drop.target=half",
    ]);
    assert_eq!(ran.out, again.out, "the same seed gives the same run");
}

#[test]
fn goodput_is_found_for_several_seeds() {
    let (_folder, path) = folder(SCENARIO);
    let ran = albacore(&["simulate", "-f", &path, "--goodput", "--seeds", "2"]);
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(found["seeds"].as_array().unwrap().len(), 2);
    let goodput = found["goodput"].as_f64().unwrap();
    assert!((4500.0..6000.0).contains(&goodput), "{found}");
}

#[test]
fn the_traces_of_the_reference_come_out_of_the_command() {
    let golden = data("symphony/golden");
    let manifest = std::fs::read_to_string(golden.join("MANIFEST.txt")).unwrap();
    for line in manifest.lines().filter(|line| !line.starts_with('#')) {
        let (name, words) = line.split_once(": trace ").unwrap();
        let option = |key: &str| {
            let mut words = words.split_whitespace();
            words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
        };
        let place = |file: &str| golden.join(file).to_str().unwrap().to_owned();
        let arrivals = option("arrivals").unwrap().strip_prefix("file:").unwrap();
        let mut text = format!(
            "workers: {}\nprofiles: {}\nearly: 0\npolicy: {}\narrivals:\n  process: file\n  \
             file: {}\ndrop:\n  rule: {}\n",
            option("gpus").unwrap(),
            place(option("models").unwrap()),
            option("policy").unwrap(),
            place(arrivals),
            option("drop").unwrap()
        );
        if let Some(target) = option("target") {
            text += &format!("  target: {target}\n");
        }
        if let Some(share) = option("kfrac") {
            text += &format!("timeout: {}%\n", share.parse::<f64>().unwrap() * 100.0);
        }
        if let Some(from) = option("eager_from_ms") {
            text += &format!("eager_from: {from}\n");
        }
        let (_folder, path) = folder(&text);
        let ran = albacore(&["simulate", "-f", &path, "--trace"]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.err);
        let wanted = std::fs::read_to_string(golden.join(name)).unwrap();
        assert!(ran.out == wanted, "{name} differs");
    }
}

#[test]
fn policies_are_compared_and_drawn() {
    let (_folder, path) = folder(SCENARIO);
    let compare = [
        "simulate",
        "-f",
        &path,
        "--set",
        "requests=5000",
        "--compare",
    ];
    let ran = albacore(&compare);
    let all: Value = serde_json::from_str(&ran.out).unwrap();
    let policies = all["policies"].as_array().unwrap();
    assert_eq!(policies.len(), 5);
    assert!(
        policies
            .iter()
            .all(|p| p["points"].as_array().unwrap().len() > 5)
    );
    let ran = albacore(&[&compare[..], &["--output", "svg"]].concat());
    assert!(ran.out.starts_with("<svg") && ran.out.trim_end().ends_with("</svg>"));
    for panel in [
        "good requests a second",
        "bad rate",
        "idle share",
        "mean size",
        "eager/half",
    ] {
        assert!(ran.out.contains(panel), "{panel}");
    }
    let words = ["--policies", "lazy"];
    let ran = albacore(&[&compare[..], &words].concat());
    assert_refused(&ran, 64, &["--policies lazy", "write auto, auto=idle"]);
    let words = ["--policies", "auto=short_waits,auto=idle_workers"];
    let ran = albacore(&[&compare[..], &words].concat());
    let all: Value = serde_json::from_str(&ran.out).unwrap();
    let names: Vec<_> = all["policies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["policy"])
        .collect();
    assert_eq!(names, ["auto=short_waits", "auto=idle_workers"]);
}

#[test]
fn the_example_of_the_article_is_shown() {
    let ran = albacore_words("simulate --example");
    assert!(
        ran.out
            .contains("deferred: 14 of 15 batches have 4 requests, nothing is dropped")
    );
    assert!(
        ran.out
            .contains("dropped  R35 at 31.50, R37 at 33.00, R38 at 33.75"),
        "{}",
        ran.out
    );
    let ran = albacore_words("simulate --example --output svg");
    assert!(ran.out.starts_with("<svg") && ran.out.contains("R35 dropped at 31.50"));
    let ran = albacore_words("simulate --example --output json");
    let example: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        example["timelines"][1]["drops"].as_array().unwrap().len(),
        0
    );
}

#[test]
fn what_is_wrong_is_refused_with_file_line_and_key() {
    for (from, to, words) in [
        (
            "workers: 8",
            "workers: 0",
            ["scenario.yaml: line 1", "workers", "0 is not between"],
        ),
        (
            "alpha: 1.053",
            "alpha: -2",
            ["line 3", "models[0].alpha", "-2 is not between"],
        ),
        (
            "slo: 25",
            "slo: 5",
            ["line 3", "models[0].slo", "below l(1)"],
        ),
        (
            "early: 0",
            "earlier: 0",
            ["line 6", "earlier", "is unknown"],
        ),
    ] {
        let (_folder, path) = folder(&SCENARIO.replace(from, to));
        assert_refused(&albacore(&["simulate", "-f", &path]), 64, &words);
    }
    let (folder, path) = folder("workers: 1\nrate: 1\nprofiles: zoo.csv\n");
    std::fs::write(
        folder.path().join("zoo.csv"),
        "name,alpha_ms,slo_ms\nm,1,5\n",
    )
    .unwrap();
    let refused = albacore(&["simulate", "-f", &path]);
    assert_refused(
        &refused,
        64,
        &["zoo.csv", "line 1", "beta_ms", "column is missing"],
    );
    assert_refused(
        &albacore_words("simulate -f nowhere.yaml"),
        64,
        &["nowhere.yaml"],
    );
    assert_refused(&albacore_words("simulate"), 64, &["--file"]);
}

#[test]
fn a_day_is_followed_and_drawn() {
    let (_folder, path) = folder(SCENARIO);
    let day = ["simulate", "-f", &path, "--day", "--day-seconds", "600"];
    let ran = albacore(&day);
    assert_eq!(ran.code, 0, "{ran:?}");
    let both: Value = serde_json::from_str(&ran.out).unwrap();
    for day in both["days"].as_array().unwrap() {
        assert_eq!(day["intervals"].as_array().unwrap().len(), 40);
        assert!(day["worker_seconds"].as_f64().unwrap() > 0.0);
    }
    let ran = albacore(&[&day[..], &["--output", "svg"]].concat());
    assert!(ran.out.starts_with("<svg") && ran.out.contains("workers"));
}

#[test]
fn routings_are_compared_and_options_that_would_mean_nothing_are_refused() {
    let (_folder, path) = folder(SCENARIO);
    let simulate = ["simulate", "-f", &path];
    let of = |words: &[&'static str]| albacore(&[&simulate[..], words].concat());
    let compared =
        "--cluster --seeds 1 --pods 2 --hop-us 0 --routing central,round-robin --slow 1:3";
    let ran = of(&compared.split(' ').collect::<Vec<_>>());
    assert_eq!(ran.code, 0, "{ran:?}");
    let result: Value = serde_json::from_str(&ran.out).unwrap();
    let share = |row: usize| result["rows"][row]["share_of_central"].as_f64().unwrap();
    assert_eq!(share(0), 1.0);
    assert!((0.2..0.8).contains(&share(1)), "{}", share(1));
    assert_refused(&of(&["--slow", "1:3"]), 64, &["--cluster"]);
    assert_refused(&of(&["--cluster", "--down", "1s"]), 64, &["--fail"]);
    assert_refused(&of(&["--cluster", "--slow", "3:2"]), 64, &["--slow 3"]);
}
