//! Runs `albacore plan`: the stable JSON, the texts, the picture, and rejected input.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod command;

use command::{albacore, albacore_words, assert_refused};
use serde_json::Value;

const MACHINE: &str = "pack:1 l3:1 core:16 pu:2";

fn plan(line: &str, machine: &str, output: &str) -> command::CommandOutput {
    let mut arguments = vec!["plan", "--topology", machine, "--output", output];
    arguments.extend(line.split_whitespace());
    albacore(&arguments)
}

fn json(line: &str, machine: &str) -> Value {
    let ran = plan(line, machine, "json");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
    assert_eq!(ran.out.lines().count(), 1, "one object on one line");
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn json_has_the_fields_of_the_contract_in_its_order() {
    let plan = json("--workers 2 --threads 2 --mode compact", "core:2 pu:2");
    let fields: Vec<&String> = plan.as_object().unwrap().keys().collect();
    let wanted = "workers threads mode policy objective bound optimal solve_micros relaxed cpus \
                  assignments proof distances";
    assert_eq!(fields, wanted.split_whitespace().collect::<Vec<_>>());
    assert_eq!(
        plan["cpus"][3].to_string(),
        r#"{"cpu":3,"core":1,"l2":1,"l3":0,"numa":0,"package":0,"capacity":1024}"#
    );
    let fields: Vec<&String> = plan["assignments"][0].as_object().unwrap().keys().collect();
    assert_eq!(fields, ["worker", "rank", "cpu"]);
    assert_eq!(
        (&plan["mode"], &plan["policy"]),
        (&"compact".into(), &"tuna".into())
    );
    assert_eq!(
        (&plan["optimal"], &plan["proof"]),
        (&true.into(), &"bound".into())
    );
    assert!(plan["solve_micros"].is_u64() && plan["relaxed"].is_array());
}

#[test]
fn all_36_combinations_in_both_modes_are_valid_and_say_how_good_they_are() {
    for workers in [2, 4, 6, 8, 12, 16] {
        for threads in [2, 4, 6, 8, 12, 16] {
            for mode in ["scatter", "compact"] {
                let line = format!("--workers {workers} --threads {threads} --mode {mode}");
                let plan = json(&line, MACHINE);
                let assignments = plan["assignments"].as_array().unwrap();
                assert_eq!(assignments.len(), workers * threads, "{line}");
                let (objective, bound) = (&plan["objective"], &plan["bound"]);
                assert!(objective.as_i64() <= bound.as_i64(), "{line}");
                if plan["optimal"] == true {
                    assert_eq!(objective, bound, "{line}");
                }
                let mut load = vec![0; 32];
                for assignment in assignments {
                    load[assignment["cpu"].as_u64().unwrap() as usize] += 1;
                }
                let most = (workers * threads).div_ceil(32);
                assert!(load.into_iter().max() <= Some(most), "{line}: rule (8)");
            }
        }
    }
}

#[test]
fn round_robin_places_thread_after_thread() {
    let plan = json(
        "--workers 2 --threads 2 --mode scatter --policy round-robin",
        "core:3 pu:1",
    );
    let cpus: Vec<u64> = plan["assignments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|assignment| assignment["cpu"].as_u64().unwrap())
        .collect();
    assert_eq!(cpus, [0, 1, 2, 0]);
    assert_eq!(plan["policy"], "round-robin");
}

#[test]
fn relaxed_rules_are_named_with_their_amount() {
    let plan = json("--workers 5 --threads 2 --mode scatter", "core:8 pu:1");
    let relaxed = plan["relaxed"].as_array().unwrap();
    assert!(
        !relaxed.is_empty(),
        "rule (12) leaves no place for the peers"
    );
    for rule in relaxed {
        assert!(
            rule["rule"].is_string() && rule["amount"].as_u64() > Some(0),
            "{rule}"
        );
    }
    let text = self::plan(
        "--workers 5 --threads 2 --mode scatter",
        "core:8 pu:1",
        "text",
    )
    .out;
    assert!(text.contains("relaxed    rule 12"), "{text}");
}

#[test]
fn the_text_shows_every_thread_on_its_core_with_mains_marked() {
    let text = plan(
        "--workers 2 --threads 2 --mode compact",
        "core:2 pu:2",
        "text",
    )
    .out;
    for word in [
        "objective  42 cycles",
        "bound      42",
        "optimal    yes: it meets the bound that counting gives",
        "relaxed    no rule",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(
        text.contains("core 0    cpu 0   0.0*  cpu 1   0.1"),
        "{text}"
    );
}

#[test]
fn a_cpuset_bounds_the_plan() {
    let plan = json(
        "--workers 2 --threads 2 --mode scatter --cpuset 4-7",
        MACHINE,
    );
    for assignment in plan["assignments"].as_array().unwrap() {
        assert!((4..8).contains(&assignment["cpu"].as_u64().unwrap()));
    }
    assert_eq!(plan["cpus"].as_array().unwrap().len(), 4);
}

#[test]
fn the_picture_has_a_disc_for_every_thread() {
    for (line, machine, threads, workers) in [
        ("--workers 4 --threads 4 --mode scatter", MACHINE, 16, 4),
        ("--workers 1 --threads 1 --mode scatter", "pu:1", 1, 1),
        (
            "--workers 12 --threads 16 --mode compact",
            "pack:2 l3:8 core:8 pu:2",
            192,
            12,
        ),
        (
            "--workers 40 --threads 2 --mode compact --cpuset 0-1",
            "core:2 pu:2",
            80,
            0,
        ),
    ] {
        let ran = plan(line, machine, "svg");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{line}");
        // The legend has one disc for main threads, one for peers, and one per named worker.
        let peers = usize::from(!line.contains("--threads 1 "));
        let discs = ran.out.matches("<circle ").count();
        assert_eq!(discs, threads + 1 + peers + workers, "{line}");
        let titles = ran.out.matches("(main thread) on cpu").count();
        assert!(titles >= workers, "{line}");
    }
}

#[test]
fn the_picture_in_the_readme_is_what_the_command_draws() {
    let line = "--workers 4 --threads 6 --mode scatter";
    let drawn = plan(line, "pack:2 l3:2 core:4 pu:2", "svg").out;
    let kept = command::data("../../examples/plan.svg");
    assert!(
        std::fs::read_to_string(&kept).unwrap() == drawn,
        "examples/plan.svg is out of date: albacore plan {line} --topology \"pack:2 l3:2 core:4 \
         pu:2\" --output svg > examples/plan.svg"
    );
}

#[test]
fn impossible_plans_are_refused_with_what_to_do() {
    for (line, words) in [
        (
            "--workers 0 --threads 2 --mode scatter",
            &["--workers 0", "at least 1"][..],
        ),
        (
            "--workers 2 --threads 0 --mode scatter",
            &["--threads 0", "at least 1"],
        ),
        ("--workers 2 --threads 2", &["--mode"]),
        ("--workers two --threads 2 --mode scatter", &["two"]),
        ("--workers -1 --threads 2 --mode scatter", &["-1"]),
        ("--workers 70000 --threads 2 --mode scatter", &["70000"]),
        (
            "--workers 2000 --threads 2 --mode scatter",
            &["2000", "fewer"],
        ),
        (
            "--workers 256 --threads 256 --mode scatter",
            &["256 x 256", "lower"],
        ),
        (
            "--workers 2 --threads 2 --mode diagonal",
            &["diagonal", "scatter", "compact"],
        ),
        (
            "--workers 2 --threads 2 --mode scatter --policy luck",
            &["luck", "round-robin"],
        ),
        (
            "--workers 2 --threads 2 --mode scatter --cpuset 40",
            &["cpu 40 is not online", "0-31"],
        ),
    ] {
        assert_refused(&plan(line, MACHINE, "json"), 64, words);
    }
    let ran = plan(
        "--workers 2 --threads 2 --mode scatter",
        "pack:1 core:x pu:1",
        "json",
    );
    assert_refused(&ran, 64, &["position 13", "\"x\""]);
    assert_refused(&albacore_words("plan --output xml"), 64, &["xml"]);
}
