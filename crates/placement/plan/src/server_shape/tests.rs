//! Process trees with busy and idle threads.

use std::collections::BTreeMap;

use albacore_topology::{CpuSet, parse_synthetic};
use albacore_values::{Micros, Pid, Tid};
use proptest::prelude::*;

use super::*;
use crate::{ObservedThread, PlanHistory, ProcessId, ThreadId, find_roles};

fn process(pid: i32, parent: i32, cmdline: &str, peers: &[(&str, u64)]) -> Process {
    let thread = |tid: i32, comm: &str, cpu_ticks| ObservedThread {
        id: ThreadId {
            start_ticks: 1,
            tid: Tid(tid),
        },
        comm: comm.to_owned(),
        mask: CpuSet::default(),
        cpu_ticks,
    };
    let peers = peers.iter().enumerate();
    let peers = peers.map(|(at, (comm, ticks))| thread(pid + 1 + at as i32, comm, *ticks));
    Process {
        id: ProcessId {
            start_ticks: 1,
            pid: Pid(pid),
        },
        not_before: Micros(0),
        parent: Pid(parent),
        cmdline: cmdline.to_owned(),
        threads: std::iter::once(thread(pid, "main", 500))
            .chain(peers)
            .collect(),
    }
}

fn shape(server_kind: ServerKind, processes: Vec<Process>, ranks: u16) -> Option<(u16, u16)> {
    let observation = Observation {
        at: Micros(60_000_000),
        machine: parse_synthetic("pack:1 core:4 pu:1").unwrap(),
        cpuset: "0-3".parse().unwrap(),
        cpuset_changes: 0,
        server_kind,
        processes,
    };
    let roles = find_roles(&observation, 2, &PlanHistory::default());
    server_shape(&observation, &roles, ranks).map(|shape| (shape.workers, shape.threads))
}

fn gunicorn(peers: &[&[(&str, u64)]]) -> Vec<Process> {
    let workers = peers.iter().enumerate();
    let workers = workers.map(|(at, peers)| process(100 * (2 + at as i32), 100, "gunicorn", peers));
    std::iter::once(process(100, 1, "gunicorn", &[]))
        .chain(workers)
        .collect()
}

#[test]
fn idle_threads_of_libraries_and_one_odd_worker_do_not_count() {
    let busy: &[(&str, u64)] = &[("omp", 400), ("omp", 390), ("blas", 0), ("log", 30)];
    let young: &[(&str, u64)] = &[("omp", 9)];
    let forked = |peers: &[&[(&str, u64)]]| shape(ServerKind::PreFork, gunicorn(peers), 1);
    assert_eq!(forked(&[busy, busy]), Some((2, 3)));
    assert_eq!(forked(&[young, young, young]), Some((3, 1)));
    assert_eq!(forked(&[busy, young, young]), Some((3, 1)));
    assert_eq!(forked(&[busy, young]), Some((2, 3)), "half of them");
    assert_eq!(forked(&[]), None, "a process alone may fork later");
    let ranked = shape(ServerKind::PreFork, gunicorn(&[busy, busy]), 5);
    assert_eq!(ranked, Some((2, 5)), "cpu times are not read then");
}

#[test]
fn names_of_the_built_in_server_tell() {
    let root = || process(100, 1, "albacore-server", &[]);
    let worker = |pid, names: &[(&str, u64)]| process(pid, 100, "albacore-server", names);
    let processes = vec![
        root(),
        worker(200, &[("albw0.0", 0), ("albw0.1", 0), ("tokio", 900)]),
        worker(300, &[("albw1.0", 0), ("albw1.1", 0)]),
    ];
    assert_eq!(shape(ServerKind::Named, processes, 1), Some((2, 2)));
    assert_eq!(shape(ServerKind::Named, vec![root()], 1), None);
}

proptest! {
    #[test]
    fn the_order_of_workers_does_not_matter(
        counts in proptest::collection::vec(0_usize..6, 1..8),
    ) {
        let all = [("omp", 400); 6];
        let of = |counts: &[usize]| {
            let peers: Vec<&[(&str, u64)]> = counts.iter().map(|&n| &all[..n]).collect();
            shape(ServerKind::PreFork, gunicorn(&peers), 1)
        };
        let backward: Vec<usize> = counts.iter().rev().copied().collect();
        prop_assert_eq!(of(&counts), of(&backward));
        let (workers, threads) = of(&counts).unwrap();
        prop_assert_eq!(usize::from(workers), counts.len());
        let reach: BTreeMap<bool, usize> = counts.iter().fold(BTreeMap::new(), |mut all, n| {
            *all.entry(n + 1 >= usize::from(threads)).or_default() += 1;
            all
        });
        prop_assert!(2 * reach[&true] >= counts.len());
    }
}
