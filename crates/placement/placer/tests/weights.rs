//! Real processes on the real kernel: hot threads are measured and placed. Needs two cpus.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // tests fail by panicking

mod prefork;

use std::time::{Duration, Instant};

use albacore_os::Tid;
use albacore_placer::{LoadClass, Report, SlotRow};
use albacore_plan::ServerKind;
use albacore_topology::CpuSet;
use prefork::group::two;
use prefork::{PreforkServer, Run, mask_of, policy, tasks_of, taskset};

/// More than two periods of reading loads.
const MEASURED_WITHIN: Duration = Duration::from_secs(180);

/// Steps until weights were measured; returns whether workers exchanged cpus because of them.
fn until_weighed(run: &mut Run) -> bool {
    let start = Instant::now();
    loop {
        let weighed = run.reports.iter().find_map(|report| match report {
            Report::WeightsChanged { is_reordered, .. } => Some(*is_reordered),
            _ => None,
        });
        if let Some(is_reordered) = weighed {
            return is_reordered;
        }
        assert!(start.elapsed() < MEASURED_WITHIN, "{:#?}", run.rows());
        run.step();
    }
}

fn cpu(row: &SlotRow) -> Option<CpuSet> {
    row.tid.and_then(mask_of)
}

#[test]
fn hot_threads_that_share_a_cpu_are_parted_and_then_stay() {
    let mut server = PreforkServer::start(4, 2, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(4, 2));
    run.until_placed();
    // The peer threads of two workers that share a cpu.
    let rows = run.rows();
    let peers: Vec<&SlotRow> = rows.iter().filter(|row| row.slot.rank.0 == 1).collect();
    let first = cpu(peers[0]);
    let other = peers[1..].iter().find(|row| cpu(row) == first).unwrap();
    let hot = [0, other.slot.worker.0];
    hot.iter()
        .for_each(|worker| server.order(&format!("spin {worker}")));
    assert!(
        rows.iter().all(|row| row.load.is_none()),
        "nothing is measured yet"
    );
    let before = run.placer.counters().solves;
    assert!(until_weighed(&mut run), "they contend for a cpu");
    run.until_placed();
    let rows = run.rows();
    for row in &rows {
        let is_hot = row.slot.rank.0 == 1 && hot.contains(&row.slot.worker.0);
        let expected = if is_hot {
            LoadClass::Hot
        } else {
            LoadClass::Cool
        };
        assert_eq!(row.load, Some(expected), "{row:?}");
    }
    let hot_cpus: Vec<_> = rows
        .iter()
        .filter(|row| row.load == Some(LoadClass::Hot))
        .map(cpu)
        .collect();
    assert_ne!(hot_cpus[0], hot_cpus[1]);
    assert_eq!(run.placer.counters().solves, before + 1);
    // Stable from now on.
    let calls = run.calls();
    run.for_a_while(Duration::from_secs(15));
    assert_eq!(run.calls(), calls);
}

#[test]
fn a_main_thread_leaves_the_cpu_of_a_hot_thread_that_no_worker_has() {
    let mut server = PreforkServer::start(1, 1, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(1, 1));
    run.until_placed();
    let main = run.rows()[0].clone();
    let before = tasks_of(server.pid());
    server.order("burn");
    let is_new = |tid: &Tid| !before.contains(tid);
    run.until("it computes", |_| tasks_of(server.pid()).iter().any(is_new));
    let burning = *tasks_of(server.pid())
        .iter()
        .find(|tid| is_new(tid))
        .unwrap();
    let (low, high, _) = two();
    let its_cpu = cpu(&main).unwrap();
    taskset(burning, &its_cpu);
    let start = Instant::now();
    let is_away = |run: &Run| cpu(&run.rows()[0]).is_some_and(|now| now != its_cpu);
    while !is_away(&run) {
        assert!(start.elapsed() < MEASURED_WITHIN, "{:#?}", run.rows());
        run.step();
    }
    let now = cpu(&run.rows()[0]).unwrap();
    assert!([low, high].contains(&now));
    assert_eq!(
        mask_of(burning),
        Some(its_cpu),
        "it was pinned by another program"
    );
    assert_eq!(run.rows()[0].load, Some(LoadClass::Cool));
}

#[test]
fn a_hot_thread_beyond_the_requested_ones_moves_nothing() {
    let mut server = PreforkServer::start(1, 2, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(1, 1));
    run.until_placed();
    server.order("spin 0");
    let planned = run.rows()[0].planned.clone();
    assert!(!until_weighed(&mut run));
    let is_weighed = |report: &Report| {
        matches!(
            report,
            Report::WeightsChanged {
                hot: 0,
                other_hot: 0,
                ..
            }
        )
    };
    assert!(run.reports.iter().any(is_weighed), "{:#?}", run.reports);
    run.for_a_while(Duration::from_secs(2));
    assert_eq!(run.rows()[0].planned, planned);
}
