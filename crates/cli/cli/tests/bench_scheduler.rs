//! Runs `albacore bench scheduler` as a process. Its speed depends on the machine and is not
//! asserted.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod command;

use command::{albacore_words, assert_refused};
use serde_json::Value;

#[test]
fn each_rate_gives_a_line_of_figures() {
    let ran = albacore_words("bench scheduler --rates 2000,4000 --seconds 1 --models 2");
    assert_eq!(ran.code, 0, "{ran:?}");
    let lines: Vec<Value> = ran
        .out
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        let number = |key: &str| line[key].as_f64().unwrap();
        assert!(number("taken_in_per_second") > 0.0, "{line}");
        assert!(
            number("good_per_second") <= number("taken_in_per_second"),
            "{line}"
        );
        assert!((0.0..=1.0).contains(&number("bad_share")), "{line}");
        assert!(number("lag_us_p50") <= number("lag_us_max"), "{line}");
    }
}

#[test]
fn no_rate_and_no_worker_are_refused() {
    assert_refused(
        &albacore_words("bench scheduler --rates 0"),
        64,
        &["--rates"],
    );
    assert_refused(
        &albacore_words("bench scheduler --workers 0"),
        64,
        &["--workers"],
    );
}
