//! Runs `albacore topology`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod command;

use command::{albacore, albacore_words, assert_refused, data};

#[test]
fn this_machine_is_shown_in_every_form() {
    let text = albacore_words("topology");
    assert_eq!(text.code, 0, "{text:?}");
    assert!(
        text.out.contains("package 0") && text.out.contains("core 0"),
        "{}",
        text.out
    );
    let json = albacore_words("topology --output json");
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["cpu_count"], json["cpus"].as_array().unwrap().len());
    let svg = albacore_words("topology --output svg");
    assert!(svg.out.starts_with("<svg ") && svg.out.ends_with("</svg>\n"));
}

#[test]
fn a_saved_hybrid_laptop_is_shown_with_its_clusters_and_kinds() {
    let laptop = data("sysfs/laptop_hybrid");
    let laptop = laptop.to_str().unwrap();
    let text = albacore(&["topology", "--topology", laptop]).out;
    let head = "14 cpus · 10 cores (4 fast, 6 slow) · 6 L2 · 2 L3 · 1 numa domain · 1 package";
    assert!(text.starts_with(head), "{text}");
    assert!(
        text.contains("L3 1 · L2 5\n    core 8   cpu  12  capacity 630 of 1024"),
        "{text}"
    );
    let json = albacore(&["topology", "--output", "json", "--topology", laptop]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["cpus"][12].to_string(),
        r#"{"cpu":12,"core":8,"l2":5,"l3":1,"numa":0,"package":0,"capacity":630,"kind":"efficiency"}"#
    );
}

#[test]
fn every_saved_sample_is_shown_in_every_form() {
    for entry in std::fs::read_dir(data("sysfs")).unwrap() {
        let path = entry.unwrap().path();
        for output in ["text", "json", "svg"] {
            let path = path.to_str().unwrap();
            let ran = albacore(&["topology", "--topology", path, "--output", output]);
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{path} {output}");
            assert!(!ran.out.is_empty());
        }
    }
}

#[test]
fn a_cpuset_keeps_its_cpus_and_the_numbers_of_the_machine() {
    let arguments = ["topology", "--topology", "core:4 pu:2", "--cpuset", "3,6-7"];
    let json = albacore(&[&arguments[..], &["--output", "json"]].concat()).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let cores: Vec<u64> = json["cpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["core"].as_u64().unwrap())
        .collect();
    assert_eq!(cores, [1, 3, 3]);
}

#[test]
fn wrong_machines_are_refused_with_what_to_do() {
    let refused = |spec: &str, code, words: &[&str]| {
        assert_refused(&albacore(&["topology", "--topology", spec]), code, words);
    };
    refused(
        "pack:1 kernel:4 pu:1",
        64,
        &["--topology", "position 8", "\"kernel\"", "pu:2"],
    );
    refused("pack:1 core:4", 64, &["position 14", "pu:1"]);
    refused(
        "/no/such/place",
        64,
        &["/no/such/place", "not a directory", "/sys/devices/system"],
    );
    let empty = tempfile::tempdir().unwrap();
    refused(
        empty.path().to_str().unwrap(),
        1,
        &["cpu/online is missing", "copy"],
    );
    std::fs::create_dir(empty.path().join("cpu")).unwrap();
    std::fs::write(empty.path().join("cpu/online"), "zero\n").unwrap();
    refused(
        empty.path().to_str().unwrap(),
        1,
        &["cpu/online", "zero", "cpu list"],
    );
}

#[test]
fn wrong_cpusets_are_refused_with_what_to_do() {
    for (cpuset, words) in [
        ("2-5", &["--cpuset", "cpus 4-5 are not online", "0-3"][..]),
        ("9", &["cpu 9 is not online", "0-3"]),
        ("", &["--cpuset", "is empty", "0-3"]),
        ("1-x", &["--cpuset", "1-x", "0-3,8"]),
        ("3-1", &["backwards"]),
        ("9999", &["8191"]),
    ] {
        let ran = albacore(&["topology", "--topology", "core:4 pu:1", "--cpuset", cpuset]);
        assert_refused(&ran, 64, words);
    }
}

#[test]
fn wrong_options_end_with_64_and_help_with_0() {
    assert_refused(
        &albacore_words("topology --output png"),
        64,
        &["png", "text", "json", "svg"],
    );
    assert_refused(
        &albacore_words("topology --frobnicate"),
        64,
        &["--frobnicate"],
    );
    assert_refused(&albacore_words("frobnicate"), 64, &["frobnicate"]);
    assert_refused(&albacore_words(""), 64, &["Usage"]);
    assert_eq!(albacore_words("--help").code, 0);
    assert!(albacore_words("--version").out.starts_with("albacore "));
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let program = env!("CARGO_BIN_EXE_albacore");
    let line = format!(
        "{program} topology --topology 'core:4000 pu:2' | head -n 1; exit ${{PIPESTATUS[0]}}"
    );
    let status = std::process::Command::new("bash")
        .args(["-c", &line])
        .output()
        .unwrap();
    assert!(status.status.success(), "{status:?}");
    assert!(status.stderr.is_empty(), "{status:?}");
}
