//! `albacore topology --measure` on eight cpus of several levels. The figures are those of an
//! emulator; that every pair is measured and every level has its mean is what is tested.

use std::process::Command;

use serde_json::Value;

const FILE: &str = "/tmp/distances.json";

fn albacore(words: &[&str]) -> Value {
    let output = Command::new("/albacore").args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

pub(crate) fn are_measured() {
    let measured = albacore(&["topology", "--measure", "--write", FILE, "--output", "json"]);
    println!("{measured}");
    let cycles = measured["matrix"]["cycles"].as_array().unwrap();
    assert_eq!(cycles.len(), 8);
    for (i, row) in cycles.iter().enumerate() {
        let row = row.as_array().unwrap();
        for (j, cycles) in row.iter().enumerate() {
            assert_eq!(cycles.is_null(), i == j, "{measured}");
            assert_eq!(*cycles, measured["matrix"]["cycles"][j][i]);
        }
    }
    let levels = ["l1", "l3", "numa", "machine"].map(|level| {
        let distance = measured["distances"][level].as_u64();
        distance.unwrap_or_else(|| panic!("{level}: {measured}"))
    });
    assert!(levels.is_sorted(), "{levels:?}");

    let plan = albacore(&[
        "plan",
        "--workers",
        "2",
        "--threads",
        "2",
        "--mode",
        "compact",
        "--distances",
        FILE,
        "--output",
        "json",
    ]);
    assert_eq!(
        plan["distances"]["l1"], measured["distances"]["l1"],
        "{plan}"
    );
}
