//! Runs `albacore plan -f a.yaml -f b.yaml` with several deployments on one machine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod command;

use std::collections::BTreeMap;

use command::{CommandOutput, albacore, assert_refused};
use serde_json::{Value, json};

const MACHINE: &str = "pack:1 l3:1 core:16 pu:2";

/// Files of deployments that are removed on drop.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, file: &str, text: &str) -> String {
        let path = self.0.path().join(file);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Writes the file of a deployment with this name.
    fn deployment(&self, name: &str, size: (u16, u16, &str)) -> String {
        let spec = spec(name, size);
        self.write(&format!("{name}.yaml"), &spec)
    }
}

fn spec(name: &str, (workers, threads, mode): (u16, u16, &str)) -> String {
    format!(
        "apiVersion: albacore.dev/v1beta1\nkind: InferenceDeployment\nmetadata: {{name: {name}}}\nspec:\n  \
         workers: {workers}\n  threads: {threads}\n  mode: {mode}\n  models:\n  - {{name: m, uri: \
         'pvc://claim/m.ubj'}}\n"
    )
}

fn plan(words: &[&str]) -> CommandOutput {
    albacore(&[&["plan", "--topology", MACHINE], words].concat())
}

fn json(words: &[&str]) -> Value {
    let ran = plan(&[words, &["--output", "json"]].concat());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}");
    assert_eq!(ran.out.lines().count(), 1, "one object on one line");
    serde_json::from_str(&ran.out).unwrap()
}

/// Number of threads per CPU, over all deployments.
fn loads(plan: &Value) -> BTreeMap<u64, u32> {
    let mut loads = BTreeMap::new();
    for deployment in plan["deployments"].as_array().unwrap() {
        for assignment in deployment["assignments"].as_array().unwrap() {
            *loads
                .entry(assignment["cpu"].as_u64().unwrap())
                .or_insert(0) += 1;
        }
    }
    loads
}

#[test]
fn two_files_are_placed_together() {
    let folder = Folder::new();
    let a = folder.deployment("fraud", (4, 4, "Scatter"));
    let b = folder.deployment("ranking", (2, 6, "Compact"));
    let plan = json(&["-f", &a, "-f", &b]);
    let fields: Vec<&String> = plan.as_object().unwrap().keys().collect();
    let wanted = "deployments objective bound optimal gained moved relaxed solve_micros obstacles cpus \
         proof distances";
    assert_eq!(fields, wanted.split_whitespace().collect::<Vec<_>>());
    let [fraud, ranking] = &plan["deployments"].as_array().unwrap()[..] else {
        panic!("two deployments")
    };
    assert_eq!(
        (
            &fraud["name"],
            &fraud["workers"],
            &fraud["threads"],
            &fraud["mode"]
        ),
        (&json!("fraud"), &json!(4), &json!(4), &json!("scatter"))
    );
    assert_eq!(
        (&ranking["name"], &ranking["mode"]),
        (&json!("ranking"), &json!("compact"))
    );
    assert_eq!(fraud["assignments"].as_array().unwrap().len(), 16);
    assert_eq!(ranking["assignments"].as_array().unwrap().len(), 12);
    assert!(
        loads(&plan).values().all(|&load| load == 1),
        "28 threads on 32 cpus"
    );
    let mains: std::collections::BTreeSet<u64> = [fraud, ranking]
        .iter()
        .flat_map(|d| d["assignments"].as_array().unwrap())
        .filter(|a| a["rank"] == 0)
        .map(|a| a["cpu"].as_u64().unwrap() / 2)
        .collect();
    assert_eq!(
        mains.len(),
        6,
        "mains of both repel each other: a core for each"
    );
}

#[test]
fn the_text_has_a_letter_for_each_deployment() {
    let folder = Folder::new();
    let a = folder.deployment("fraud", (2, 2, "Scatter"));
    let b = folder.deployment("ranking", (1, 3, "Compact"));
    let ran = plan(&["-f", &a, "-f", &b, "--obstacle", "0=2", "--obstacle", "0=1"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for words in [
        "2 deployments\nmachine    32 cpus",
        "A          fraud    2 workers x 2 threads, scatter, cpus 0-31",
        "B          ranking  1 worker x 3 threads, compact, cpus 0-31",
        "cpu 0   +3",
        "A0.0*",
        "B0.2",
        "+n stands for n threads of others",
    ] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    assert!(ran.out.lines().all(|line| line.chars().count() <= 100));
}

#[test]
fn the_picture_has_a_disc_for_every_thread_and_obstacle() {
    let folder = Folder::new();
    let a = folder.deployment("fraud", (2, 2, "Scatter"));
    let b = folder.deployment("ranking", (1, 3, "Compact"));
    let words = ["-f", &a, "-f", &b, "--obstacle", "0=2", "--output", "svg"];
    let ran = plan(&words);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    // 7 threads, an obstacle; in the legend main, peer, others and two deployments
    assert_eq!(ran.out.matches("<circle ").count(), 7 + 1 + 5);
    for words in [
        "ranking, worker 0, rank 0 (main thread) on cpu",
        "fraud: 2 × 2 scatter",
        "A1",
    ] {
        assert!(ran.out.contains(words), "{words}");
    }
}

#[test]
fn each_file_may_have_cpus_of_its_own() {
    let folder = Folder::new();
    let a = folder.deployment("fraud", (2, 2, "Scatter")) + "@0-3";
    let b = folder.deployment("ranking", (2, 2, "Scatter"));
    let plan = json(&["-f", &a, "-f", &b, "--cpuset", "0-15"]);
    let cpus = |index: usize| -> Vec<u64> {
        let list = plan["deployments"][index]["assignments"]
            .as_array()
            .unwrap();
        list.iter().map(|a| a["cpu"].as_u64().unwrap()).collect()
    };
    assert!(cpus(0).iter().all(|&cpu| cpu < 4));
    assert!(
        cpus(1).iter().all(|&cpu| (4..16).contains(&cpu)),
        "the others are taken"
    );
    assert_eq!(plan["deployments"][0]["cpuset"], "0-3");
    assert_eq!(plan["deployments"][1]["cpuset"], "0-15");
}

#[test]
fn obstacles_push_threads_away_even_from_a_sibling_outside_the_cpuset() {
    let folder = Folder::new();
    let a = folder.deployment("fraud", (1, 1, "Scatter"));
    let plan = json(&["-f", &a, "--cpuset", "0,2", "--obstacle", "1=1"]);
    assert_eq!(plan["deployments"][0]["assignments"][0]["cpu"], 2);
    assert_eq!(plan["obstacles"], json!([{"cpu": 1, "weight": 1}]));
}

#[test]
fn a_new_deployment_moves_no_thread_and_its_plan_is_accepted_as_the_current_one() {
    let folder = Folder::new();
    let a = folder.deployment("fraud", (4, 2, "Scatter"));
    let b = folder.deployment("ranking", (2, 2, "Compact"));
    let words = ["-f", &a, "-f", &b, "--output", "json"];
    let before = plan(&words).out;
    let file = folder.write("now.json", &before);
    let again = json(&["-f", &a, "-f", &b, "--current", &file]);
    assert_eq!((&again["moved"], &again["gained"]), (&json!(0), &json!(0)));
    assert_eq!(again["moved_least"], 0);
    let before: Value = serde_json::from_str(&before).unwrap();
    for index in [0, 1] {
        let assignments = |plan: &Value| plan["deployments"][index]["assignments"].clone();
        assert_eq!(assignments(&again), assignments(&before));
    }
    let c = folder.deployment("churn", (2, 2, "Scatter"));
    let words = ["-f", &a, "-f", &b, "-f", &c, "--current", &file];
    let third = json(&[&words[..], &["--move-cost", "1000"]].concat());
    assert_eq!(third["moved"], 0, "16 threads have room on 32 cpus");
    assert_eq!(third["deployments"][2]["moves"], json!([]));
    let shown = plan(&["-f", &a, "--current", &file]).out;
    assert!(
        shown.contains("moved      0 of 8 threads in force"),
        "{shown}"
    );
    assert!(shown.contains("ended      ranking"), "{shown}");
}

#[test]
fn one_file_is_explained_like_one_deployment() {
    let folder = Folder::new();
    let a = folder.deployment("fraud", (4, 4, "Compact"));
    let ran = plan(&["-f", &a, "--explain"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains("why this plan\nvolume"), "{}", ran.out);
    let shown = json(&["-f", &a, "--explain", "1.2"]);
    assert_eq!(shown["explanation"]["thread"]["worker"], 1);
    let one = ["--workers", "4", "--threads", "4", "--mode", "compact"];
    assert_eq!(shown["objective"], json(&one)["objective"]);
}

#[test]
fn wrong_files_and_options_are_refused_with_what_to_do() {
    let folder = Folder::new();
    let a = folder.deployment("fraud", (2, 2, "Scatter"));
    let twin = folder.write("twin.yaml", &spec("fraud", (1, 1, "Scatter")));
    let zero = folder.write("zero.yaml", &spec("zero", (0, 2, "Scatter")));
    let dealt = spec("dealt", (2, 2, "Scatter")) + "  placement: {policy: RoundRobin}\n";
    let dealt = folder.write("dealt.yaml", &dealt);
    let single = folder.write("single.json", r#"{"assignments": []}"#);
    let nameless = folder.write("nameless.json", r#"{"deployments": [{"assignments": []}]}"#);
    let (beyond, backwards) = (format!("{a}@30-40"), format!("{a}@3-1"));
    for (words, said) in [
        (
            &["-f", a.as_str(), "--workers", "2"][..],
            &["--workers", "--file"][..],
        ),
        (&["-f", &a, "--threads", "2"], &["--threads"]),
        (&["-f", &a, "--mode", "scatter"], &["--mode"]),
        (&["-f", &a, "--policy", "tuna"], &["--policy"]),
        (
            &["-f", &a, "-f", &twin],
            &["twin.yaml", "metadata.name", "\"fraud\"", "fraud.yaml"],
        ),
        (&["-f", &zero], &["zero.yaml:5", "workers", "0"]),
        (&["-f", &dealt], &["dealt.yaml", "RoundRobin", "--obstacle"]),
        (
            &["-f", "/no/such.yaml"],
            &["/no/such.yaml", "cannot be read"],
        ),
        (
            &["-f", &beyond],
            &["@30-40", "cpus 32-40 are not online", "0-31"],
        ),
        (&["-f", &backwards], &["backwards"]),
        (&["-f", &a, "--cpuset", "40"], &["cpu 40 is not online"]),
        (
            &["-f", &a, "--obstacle", "99=1"],
            &["--obstacle", "cpu 99", "0-31"],
        ),
        (&["-f", &a, "--obstacle", "3"], &["such as 3=2"]),
        (&["-f", &a, "--move-cost", "9"], &["--current"]),
        (
            &["-f", &a, "--current", &single],
            &["single.json", "deployments is missing"],
        ),
        (
            &["-f", &a, "--current", &nameless],
            &["deployments[0].name"],
        ),
        (
            &["-f", &a, "-f", &zero, "--explain"],
            &["--explain", "one -f"],
        ),
    ] {
        assert_refused(&plan(words), 64, said);
    }
}
