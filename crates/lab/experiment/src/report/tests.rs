//! Reports of results with known figures.

use std::collections::BTreeMap;

use albacore_random::Xoshiro256;

use super::*;
use crate::grid::{Cell, WindowId, windows};
use crate::machine::Machine;
use crate::record::{FORMAT, Failed, Header, Host, Quantiles, SHARES, Stage, Usage, Window};
use crate::spec::Spec;

/// Results in which each arm takes the given multiple of the kernel's time, with this noise in
/// percent.
fn results(times: &[(Arm, f64)], noise: f64) -> Results {
    let spec: Spec = serde_json::from_value(serde_json::json!({
        "name": "known", "workers": [1, 2], "threads": [1, 2, 4],
        "policies": ["kernel", "scatter", "compact"],
        "models": [{"name": "m", "file": "m.ubj", "features": 2}],
        "requests": [{"rows": 1}, {"rows": 9, "output": "contribs"}],
        "load": {"clients": 1}, "trials": 5, "window": "1s",
    }))
    .unwrap();
    let mut random = Xoshiro256::new(3, 0);
    let mut measured = |id: WindowId| {
        let factor = times
            .iter()
            .find(|(arm, _)| *arm == id.arm)
            .map_or(1.0, |&(_, f)| f);
        let drift = 1.0 + noise / 100.0 * (random.unit() - 0.5);
        let micros = 1e4 * factor * drift;
        window(id, micros)
    };
    let all = windows(&spec).into_iter().flat_map(|(_, windows)| windows);
    let windows = all.map(&mut measured).collect();
    let machine = Machine::of_tests();
    Results {
        header: Header {
            format: FORMAT,
            version: "0".to_owned(),
            started: 1,
            spec,
            machine,
        },
        windows,
        failed: Vec::new(),
    }
}

fn window(id: WindowId, micros: f64) -> Window {
    let stage = Stage {
        mean: micros / 2.0,
        p99: micros as u64,
    };
    Window {
        id,
        at: 1,
        seconds: 1.0,
        sent: 100,
        answered: 100,
        good: 100,
        latency: Quantiles(SHARES.iter().map(|share| (share * micros) as u64).collect()),
        server: Quantiles::default(),
        stages: BTreeMap::from([("queue".to_owned(), stage), ("run".to_owned(), stage)]),
        usage: Usage::default(),
        host: Host::default(),
        disturbed: None,
        repeats: 0,
    }
}

fn said(results: &Results) -> String {
    conclusions::of(results).join("\n")
}

#[test]
fn gains_and_losses_are_reported_alike() {
    let said = said(&results(&[(Arm::Scatter, 0.5), (Arm::Compact, 2.0)], 4.0));
    assert!(!said.contains("too noisy"), "{said}");
    for claim in [
        "scatter compared with kernel: p99 2.0",
        "faster. It is better in 12 settings, worse in 0, and in 0 nothing",
        "compact compared with kernel: p99 0.50x",
        "slower. It is better in 0 settings, worse in 12, and in 0 nothing",
        "scatter compared with kernel, oversubscribed: 2.0",
        "Compact beats Scatter for model m and 4 threads a worker: no, Scatter beats it; 0.25x",
    ] {
        assert!(said.contains(claim), "{claim}: {said}");
    }
}

#[test]
fn no_difference_is_claimed_between_equal_arms() {
    let said = said(&results(&[], 20.0));
    assert!(
        said.contains("scatter compared with kernel: p99 "),
        "{said}"
    );
    assert!(said.contains("no difference can be claimed"), "{said}");
    assert!(said.contains("and 1 thread a worker: open"), "{said}");
}

#[test]
fn a_noisy_machine_and_missing_windows_are_reported() {
    // a drift of the machine between the two measurements of the kernel
    let mut noisy = results(&[(Arm::KernelAgain, 1.3)], 4.0);
    let first = said(&noisy);
    assert!(first.contains("differs in 12 of 12 settings"), "{first}");
    assert!(first.contains("too noisy to decide"), "{first}");
    noisy = results(&[], 4.0);
    for window in &mut noisy.windows {
        window.disturbed = Some("the hypervisor took 9.0 % of the cpus".to_owned());
    }
    noisy.failed.push(Failed {
        cell: Cell {
            model: "bad".to_owned(),
            workers: 1,
            threads: 1,
        },
        windows: 7,
        what: "no <model>".to_owned(),
    });
    let second = said(&noisy);
    assert!(second.contains("too noisy to decide"), "{second}");
    assert!(second.contains("7 windows are missing"), "{second}");
    let html = html::page(&noisy, &conclusions::of(&noisy));
    assert!(html.contains("no &lt;model&gt;"), "{html}");
}

#[test]
fn a_report_without_windows_states_that_it_has_none() {
    let mut empty = results(&[], 1.0);
    empty.windows.clear();
    assert_eq!(said(&empty), "Nothing was measured.");
    assert!(html::page(&empty, &conclusions::of(&empty)).contains("Nothing was measured."));
}

#[test]
fn every_window_and_stage_has_its_line() {
    let results = results(&[(Arm::Scatter, 0.5)], 4.0);
    assert_eq!(
        csv::windows(&results).lines().count(),
        1 + results.windows.len()
    );
    assert_eq!(
        csv::stages(&results).lines().count(),
        1 + 2 * results.windows.len()
    );
    // 12 settings, three arms in addition to the kernel
    let comparisons = csv::comparisons(&results);
    assert_eq!(comparisons.lines().count(), 1 + 36);
    let columns = |line: &str| line.split(',').count();
    for text in [csv::windows(&results), csv::stages(&results), comparisons] {
        let widths: std::collections::BTreeSet<usize> = text.lines().map(columns).collect();
        assert_eq!(widths.len(), 1, "{text}");
    }
}
