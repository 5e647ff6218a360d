//! `albacore topology --measure` on eight CPUs of several levels. The latencies are those of an
//! emulator; the test checks that every pair is measured and every level has a mean.

use std::process::Command;

use serde_json::Value;

const FILE: &str = "/tmp/distances.json";

/// Number of measurements that may fail on a busy machine, each after some seconds.
const REFUSALS_MAX: u32 = 20;

fn albacore(words: &[&str]) -> Result<Value, String> {
    let output = Command::new("/albacore").args(words).output().unwrap();
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Measures all pairs. Next to other programs, the emulator's threads may be preempted for longer
/// than the timeout of a measurement, which then fails.
fn measure() -> Value {
    let words = ["topology", "--measure", "--write", FILE, "--output", "json"];
    let mut refusals = 0;
    // bound: REFUSALS_MAX.
    loop {
        match albacore(&words) {
            Ok(measured) => return measured,
            Err(said) => {
                assert!(said.contains("exchanged too few messages"), "{said}");
                println!("{said}");
                refusals += 1;
                assert!(refusals < REFUSALS_MAX, "the machine is busy: {said}");
            }
        }
    }
}

pub(crate) fn are_measured() {
    let measured = measure();
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
    ])
    .unwrap();
    assert_eq!(
        plan["distances"]["l1"], measured["distances"]["l1"],
        "{plan}"
    );
}
