//! Runs `albacore plan --explain` and `--current`, and `albacore bench solver`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod command;

use std::path::{Path, PathBuf};

use command::{albacore, assert_refused};
use serde_json::{Value, json};

const MACHINE: &str = "pack:1 l3:1 core:16 pu:2";

fn run(line: &str, machine: &str, more: &[&str]) -> command::CommandOutput {
    let mut arguments = vec!["plan", "--topology", machine];
    arguments.extend(line.split_whitespace());
    arguments.extend(more);
    albacore(&arguments)
}

fn text(line: &str, machine: &str, more: &[&str]) -> String {
    let ran = run(line, machine, more);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line} {more:?}");
    ran.out
}

fn json(line: &str, machine: &str, more: &[&str]) -> Value {
    let out = text(line, machine, &[more, &["--output", "json"]].concat());
    assert_eq!(out.lines().count(), 1, "one object on one line");
    serde_json::from_str(&out).unwrap()
}

/// The text without line breaks.
fn flow(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn assert_contains(text: &str, sentences: &[&str]) {
    for sentence in sentences {
        assert!(
            flow(text).contains(sentence),
            "{sentence:?} is not in: {text}"
        );
    }
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "a long line: {line}");
    }
}

#[test]
fn the_plan_is_explained_in_sentences() {
    let compact = "--workers 4 --threads 4 --mode compact";
    let shown = text(compact, MACHINE, &["--explain"]);
    assert_contains(
        &shown,
        &[
            "volume 16 threads on 32 cpus: 16 must hold 1 and 16 must hold 0 (rule 8).",
            "each core must hold 1 (rule 8+)",
            "6 share an L3: 300 cycles apart in sum, as far as 4 mains can be: there is only 1 L3",
            "Workers 0-3 each: 6 share an L3, 300 cycles in sum, as close as 4 threads can be",
            "without rule 8+ (every core holds the same number of threads, or one more) at least",
            "Mains and every worker have the best that each could have alone, -900 in sum",
        ],
    );
    let contradictory = "--workers 5 --threads 2 --mode scatter";
    let shown = text(contradictory, "core:8 pu:1", &["--explain"]);
    assert_contains(&shown, &["Not all rules can be kept here", "rule 12 by 2"]);
    let baseline = "--workers 4 --threads 16 --mode scatter --policy round-robin";
    let shown = text(baseline, MACHINE, &["--explain"]);
    assert_contains(
        &shown,
        &[
            "Round robin breaks rule 2 by 1",
            "not the best",
            "Not proven.",
        ],
    );
}

#[test]
fn the_runner_up_is_named_with_its_price() {
    // main threads on different cores, peers on the remaining CPUs: any other value costs at least
    // 46
    let line = "--workers 6 --threads 8 --mode compact";
    let shown = text(line, MACHINE, &["--explain"]);
    assert_contains(
        &shown,
        &["The best other value that one exchange or shift can reach is"],
    );
    let plan = json(line, MACHINE, &["--explain"]);
    let next = &plan["explanation"]["runner_up"];
    assert!(next["gain"].as_i64() < Some(0), "{next}");
    assert!(next["to"].is_u64() && next["worker"].is_u64() && next["rank"].is_u64());
    assert_eq!(plan["explanation"]["complete"], true);
    assert_eq!(plan["explanation"]["better"], Value::Null);
}

#[test]
fn pairs_are_counted_by_level_and_those_beyond_an_l3_together_too() {
    let machine = "pack:2 numa:2 l3:2 core:2 pu:1";
    let plan = json(
        "--workers 4 --threads 4 --mode scatter",
        machine,
        &["--explain"],
    );
    let groups = plan["explanation"]["workers"].as_array().unwrap();
    for group in groups.iter().chain([&plan["explanation"]["mains"]]) {
        let at = |level: &str| group["pairs"][level].as_u64().unwrap();
        let beyond = at("numa") + at("package") + at("machine");
        assert_eq!(at("beyond"), beyond, "the field of 0.1.0 is kept");
        assert!(at("machine") > 0 && at("package") > 0, "{group}");
    }
}

#[test]
fn cores_of_two_speeds_are_explained_in_sentences_and_figures() {
    let line = "--workers 6 --threads 1 --mode scatter";
    let machine = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../tests/data/sysfs/laptop_hybrid"
    );
    assert_contains(
        &text(line, machine, &["--explain"]),
        &[
            "relaxed 2 main threads on slow cores",
            "4 cores of capacity 1024 have 4 threads, 4 of them main",
            "6 cores of capacity 630 have 2 threads, 2 of them main",
            "fast-mains by 2",
        ],
    );
    let plan = json(line, machine, &["--explain"]);
    assert_eq!(
        plan["relaxed"],
        json!([{"rule": "fast-mains", "amount": 2}])
    );
    let wanted = json!([
        {"capacity": 1024, "cores": 4, "cpus": 8, "threads": 4, "mains": 4},
        {"capacity": 630, "cores": 6, "cpus": 6, "threads": 2, "mains": 2},
    ]);
    assert_eq!(plan["explanation"]["speeds"], wanted);
}

#[test]
fn one_thread_is_explained_cpu_by_cpu() {
    let line = "--workers 6 --threads 8 --mode scatter";
    let shown = text(line, MACHINE, &["--explain", "2.0"]);
    assert_contains(
        &shown,
        &[
            "why 2.0 is on cpu",
            "It is the main thread of worker 2: 250 cycles to the 5 other mains (far is better)",
            "same core",
            "same L3",
            "forbids it",
            "No cpu is better",
        ],
    );
    let plan = json(line, MACHINE, &["--explain", "2.0"]);
    let thread = &plan["explanation"]["thread"];
    assert_eq!((&thread["worker"], &thread["rank"]), (&json!(2), &json!(0)));
    let places = thread["places"].as_array().unwrap();
    assert_eq!(places.len(), 31);
    let assignments = plan["assignments"].as_array().unwrap();
    let slot = assignments
        .iter()
        .find(|a| a["worker"] == 2 && a["rank"] == 0);
    assert_eq!(slot.unwrap()["cpu"], thread["cpu"]);
    for place in places {
        let is_allowed = place["forbidden"].as_array().unwrap().is_empty();
        assert!(!is_allowed || place["gain"].as_i64() <= Some(0), "{place}");
    }
}

#[test]
fn without_explain_and_current_no_field_is_added() {
    let plan = json("--workers 2 --threads 2 --mode scatter", MACHINE, &[]);
    for field in ["explanation", "moves", "moved", "gained"] {
        assert_eq!(plan.get(field), None);
    }
}

#[test]
fn wrong_questions_are_refused_with_what_to_do() {
    let line = "--workers 2 --threads 3 --mode scatter";
    for (more, words) in [
        (
            &["--explain", "2.0"][..],
            &["--explain", "no thread 2.0", "0 to 1", "0 to 2"][..],
        ),
        (&["--explain", "main"], &["main", "such as 2.0"]),
        (
            &["--explain", "--output", "svg"],
            &["--explain", "text or json"],
        ),
        (&["--time-limit", "0"], &["0", "above 0"]),
        (&["--time-limit", "-3"], &["-3"]),
        (&["--time-limit", "forever"], &["forever", "seconds"]),
        (
            &["--time-limit", "1", "--policy", "round-robin"],
            &["--time-limit", "round robin"],
        ),
        (&["--obstacle", "0=1"], &["--obstacle", "-f"]),
        (&["--move-cost", "5"], &["--move-cost", "-f"]),
    ] {
        assert_refused(&run(line, MACHINE, more), 64, words);
    }
}

/// The lines of `albacore bench solver`.
fn bench_solver(line: &str, machine: &str) -> Vec<Value> {
    let mut arguments = vec!["bench", "solver", "--topology", machine];
    arguments.extend(line.split_whitespace());
    let ran = albacore(&arguments);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    let lines = ran.out.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_integer_program_of_the_article_and_the_solver_agree() {
    for (line, machine) in [
        ("--workers 2 --threads 2 --mode scatter", "core:3 pu:1"),
        ("--workers 2 --threads 2 --mode compact", "core:2 pu:2"),
    ] {
        let answers = bench_solver(line, machine);
        let solvers: Vec<_> = answers.iter().map(|answer| &answer["solver"]).collect();
        assert_eq!(solvers, ["exact", "literal"]);
        assert_eq!(answers[0]["objective"], answers[1]["objective"], "{line}");
    }
}

#[test]
fn a_problem_too_large_for_the_program_of_the_article_is_reported() {
    let answers = bench_solver("--workers 64 --threads 64 --mode compact", MACHINE);
    assert!(answers[0]["objective"].is_number());
    let error = answers[1]["error"].as_str().unwrap();
    assert!(error.contains("variables"), "{error}");
}

/// A file for `--current` that is removed with its directory.
struct Saved {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn saved(text: &str) -> Saved {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("current.json");
    std::fs::write(&path, text).unwrap();
    Saved {
        _folder: folder,
        path,
    }
}

fn current(path: &Path) -> [&str; 2] {
    ["--current", path.to_str().unwrap()]
}

#[test]
fn a_plan_in_force_that_is_still_the_best_stays() {
    let line = "--workers 4 --threads 4 --mode scatter";
    let before = text(line, MACHINE, &["--output", "json"]);
    let file = saved(&before);
    let after = json(line, MACHINE, &current(&file.path));
    let before: Value = serde_json::from_str(&before).unwrap();
    assert_eq!(after["assignments"], before["assignments"]);
    assert_eq!((&after["gained"], &after["moved"]), (&json!(0), &json!(0)));
    assert_eq!(after["moves"], json!([]));
    let shown = text(line, MACHINE, &current(&file.path));
    assert_contains(&shown, &["moved 0 of 16 threads: the plan in force stays"]);
    // the assignments alone are sufficient
    let file = saved(&before["assignments"].to_string());
    let again = json(line, MACHINE, &current(&file.path));
    assert_eq!(again["moved"], 0);
}

#[test]
fn a_round_robin_in_force_is_replaced_by_a_better_plan() {
    let line = "--workers 4 --threads 16 --mode scatter";
    let before = text(
        line,
        MACHINE,
        &["--policy", "round-robin", "--output", "json"],
    );
    let file = saved(&before);
    let after = json(line, MACHINE, &current(&file.path));
    let before: Value = serde_json::from_str(&before).unwrap();
    let gained = after["objective"].as_i64().unwrap() - before["objective"].as_i64().unwrap();
    assert!(gained > 0);
    assert_eq!(after["gained"], gained);
    let moves = after["moves"].as_array().unwrap();
    assert_eq!(after["moved"], moves.len());
    let cpu = |plan: &Value, of: &Value| {
        let assignments = plan["assignments"].as_array().unwrap();
        let same = |a: &&Value| a["worker"] == of["worker"] && a["rank"] == of["rank"];
        assignments.iter().find(same).unwrap()["cpu"].clone()
    };
    for one in moves {
        assert_eq!(
            (&cpu(&before, one), &cpu(&after, one)),
            (&one["from"], &one["to"])
        );
        assert_ne!(one["from"], one["to"]);
    }
    let shown = text(line, MACHINE, &current(&file.path));
    assert_contains(
        &shown,
        &[
            "cycles gained; the plan in force breaks rule 2 by 1",
            "moves",
        ],
    );
    let svg = text(
        line,
        MACHINE,
        &[&current(&file.path)[..], &["--output", "svg"]].concat(),
    );
    let rings = svg.matches("class=\"moved\"").count();
    assert_eq!(rings, moves.len() + 1, "one a move and one in the legend");
    assert!(svg.contains("moved from cpu"));
}

#[test]
fn threads_whose_cpu_is_gone_must_move_and_few_others_do() {
    let line = "--workers 2 --threads 4 --mode scatter";
    let before = text(line, MACHINE, &["--output", "json"]);
    let file = saved(&before);
    let before: Value = serde_json::from_str(&before).unwrap();
    let lost = before["assignments"][0]["cpu"].as_u64().unwrap();
    assert_eq!(lost, 0, "the first thread is on cpu 0");
    let after = json(
        line,
        MACHINE,
        &[&current(&file.path)[..], &["--cpuset", "1-31"]].concat(),
    );
    assert_eq!(after["gained"], Value::Null);
    assert_eq!(after["moves"][0]["from"], 0);
    assert!(after["moved"].as_u64() <= Some(2), "{}", after["moves"]);
    let shown = text(
        line,
        MACHINE,
        &[&current(&file.path)[..], &["--cpuset", "1-31"]].concat(),
    );
    assert_contains(&shown, &["because cpus of the plan in force are gone"]);
}

#[test]
fn files_that_are_no_plan_are_refused_with_field_and_value() {
    let line = "--workers 2 --threads 2 --mode scatter";
    let four = [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3)];
    let list = |of: &[(u16, u16, u16)]| -> Value {
        let one = |&(worker, rank, cpu): &(u16, u16, u16)| json!({"worker": worker, "rank": rank, "cpu": cpu});
        of.iter().map(one).collect()
    };
    let mut wrong_cpu = list(&four);
    wrong_cpu[3]["cpu"] = json!("x");
    let mut no_rank = list(&four);
    no_rank[1].as_object_mut().unwrap().remove("rank");
    let twice = list(&[&four[..], &[(0, 1, 5)]].concat());
    for (file, words) in [
        (
            json!("plan").to_string(),
            &["assignments", "albacore plan --output json"][..],
        ),
        ("{".to_owned(), &["not valid JSON", "line 1"]),
        (String::new(), &["not valid JSON"]),
        (
            json!({"assignments": []}).to_string(),
            &["assignments is missing, empty"],
        ),
        (
            json!({"workers": 3, "assignments": list(&four)}).to_string(),
            &["workers is 3", "--workers is 2", "same workers"],
        ),
        (
            list(&four[..2]).to_string(),
            &["1 workers x 2 threads", "--workers is 2"],
        ),
        (list(&four[1..]).to_string(), &["has no thread 0.0"]),
        (list(&four[..3]).to_string(), &["has no thread 1.1"]),
        (twice.to_string(), &["assignments[4]", "0.1 a second time"]),
        (
            wrong_cpu.to_string(),
            &["assignments[3].cpu is \"x\"", "0 to 8191"],
        ),
        (no_rank.to_string(), &["assignments[1].rank is missing"]),
        (
            json!({"deployments": []}).to_string(),
            &["several deployments", "-f"],
        ),
    ] {
        let file = saved(&file);
        let ran = run(line, MACHINE, &current(&file.path));
        assert_refused(&ran, 64, words);
        assert!(ran.err.contains(file.path.to_str().unwrap()), "{}", ran.err);
        assert_eq!(ran.err.trim_end().lines().count(), 1, "{}", ran.err);
    }
    let none = run(line, MACHINE, &["--current", "/no/such.json"]);
    assert_refused(&none, 64, &["/no/such.json", "cannot be read"]);
}
