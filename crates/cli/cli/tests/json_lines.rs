//! Every command that prints JSON prints it on one line, so that output can be read line by line.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod command;

use command::albacore_words;

/// Small enough for `--compare` and `--day`, which simulate many rates.
const SCENARIO: &str = "workers: 2\nmodels:\n  - {name: r, alpha: 1.053, beta: 5.072, slo: 25}\n\
                        rate: 300\nrequests: 2000\nearly: 0\npolicy: deferred\n";

#[test]
fn every_json_output_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("scenario.yaml");
    std::fs::write(&scenario, SCENARIO).unwrap();
    let scenario = scenario.to_str().unwrap();
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples");
    for words in [
        "topology --output json".to_owned(),
        "plan --workers 2 --threads 1 --mode scatter --output json".to_owned(),
        format!("simulate -f {scenario}"),
        format!("simulate -f {scenario} --output json"),
        format!("simulate -f {scenario} --goodput --seeds 1"),
        format!("simulate -f {scenario} --compare --policies eager"),
        format!("simulate -f {scenario} --day --day-seconds 600"),
        "simulate --example --output json".to_owned(),
        format!("partition -f {examples}/partition.yaml --seconds 1"),
    ] {
        let ran = albacore_words(&words);
        assert_eq!(ran.code, 0, "{words}: {ran:?}");
        assert_eq!(ran.out.lines().count(), 1, "{words}: {}", ran.out);
        assert!(ran.out.ends_with('\n'), "{words}");
        let value: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert!(value.is_object(), "{words}");
    }
}
