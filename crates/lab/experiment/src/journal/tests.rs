//! Results that are resumed, that belong to another experiment, and that cannot be written.

use super::*;
use crate::grid::{Arm, Cell};
use crate::machine::Machine;
use crate::record::{Host, Quantiles, Usage};
use crate::spec::Spec;

fn header() -> Header {
    let spec: Spec = serde_json::from_value(serde_json::json!({
        "name": "a", "workers": [1], "threads": [1], "policies": ["kernel", "scatter"],
        "models": [{"name": "m", "file": "m.ubj", "features": 2}],
        "requests": [{"rows": 1}], "load": {"clients": 1}, "trials": 2, "window": "1s",
    }))
    .unwrap();
    Header {
        format: FORMAT,
        version: "0".to_owned(),
        started: 1,
        spec,
        machine: Machine::of_tests(),
    }
}

fn window(trial: u32) -> Window {
    Window {
        id: WindowId {
            cell: Cell {
                model: "m".to_owned(),
                workers: 1,
                threads: 1,
            },
            request: "1 output".to_owned(),
            arm: Arm::KernelAgain,
            trial,
        },
        at: 2,
        seconds: 1.0,
        sent: 3,
        answered: 3,
        good: 3,
        latency: Quantiles(vec![1; 13]),
        server: Quantiles::default(),
        stages: Default::default(),
        usage: Usage::default(),
        host: Host::default(),
        disturbed: None,
        repeats: 0,
    }
}

fn line(trial: u32) -> Line {
    Line::Window(Box::new(window(trial)))
}

#[test]
fn a_run_resumes_after_the_last_complete_line() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, before) = Journal::open(folder.path(), header()).unwrap();
    assert!(before.windows.is_empty());
    journal.append(&line(0)).unwrap();
    drop(journal);
    // a crash while a line is written
    let path = journal_file(folder.path());
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&whole[..], b"{\"kind\":\"win"].concat()).unwrap();
    let (mut journal, before) = Journal::open(folder.path(), header()).unwrap();
    assert_eq!(before.windows, [window(0)]);
    journal.append(&line(1)).unwrap();
    let results = Results::read(folder.path()).unwrap();
    assert_eq!(results.windows, [window(0), window(1)]);
    assert_eq!(results.header, header());
}

#[test]
fn results_of_another_experiment_are_not_extended() {
    let folder = tempfile::tempdir().unwrap();
    drop(Journal::open(folder.path(), header()).unwrap());
    let mut other = header();
    other.spec.trials = 3;
    let said = Journal::open(folder.path(), other).unwrap_err().to_string();
    assert!(said.contains("another experiment"), "{said}");
    let mut other = header();
    other.machine.kernel = "6.2".to_owned();
    let said = Journal::open(folder.path(), other).unwrap_err().to_string();
    assert!(said.contains("another machine"), "{said}");
    let path = journal_file(folder.path());
    std::fs::write(&path, "hello\n").unwrap();
    let said = Journal::open(folder.path(), header())
        .unwrap_err()
        .to_string();
    assert!(said.contains("line 1"), "{said}");
}

#[test]
fn a_failure_is_kept_until_its_cell_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(folder.path(), header()).unwrap();
    let failed = |what: &str| Failed {
        cell: window(0).id.cell,
        windows: 6,
        what: what.to_owned(),
    };
    journal.append(&Line::Failed(failed("first"))).unwrap();
    journal.append(&line(0)).unwrap();
    journal.append(&Line::Failed(failed("second"))).unwrap();
    let results = Results::read(folder.path()).unwrap();
    // a kind of request, two trials, two arms and the second kernel arm: five are missing
    let left = Failed {
        windows: 5,
        ..failed("second")
    };
    assert_eq!(results.failed, [left]);
    for arm in [Arm::Kernel, Arm::KernelAgain, Arm::Scatter] {
        for trial in 0..2 {
            let mut window = window(trial);
            window.id.arm = arm;
            if (arm, trial) != (Arm::KernelAgain, 0) {
                journal.append(&Line::Window(Box::new(window))).unwrap();
            }
        }
    }
    assert_eq!(Results::read(folder.path()).unwrap().failed, []);
}

#[test]
fn two_runs_do_not_write_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let first = Journal::open(folder.path(), header()).unwrap();
    let said = Journal::open(folder.path(), header())
        .unwrap_err()
        .to_string();
    assert!(said.contains("another run"), "{said}");
    drop(first);
    Journal::open(folder.path(), header()).unwrap();
}

#[test]
fn a_full_disk_is_reported() {
    let said = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let mut journal = Journal {
        path: "/dev/full".into(),
        file: said.unwrap(),
    };
    let said = albacore_values::sentence(&journal.append(&line(0)).unwrap_err());
    assert!(
        said.contains("/dev/full") && said.contains("No space"),
        "{said}"
    );
}
