//! Process trees of real servers.

use super::*;
use crate::{ObservedThread, ThreadId, Tid};
use albacore_topology::CpuSet;

/// A single-threaded process: pid, parent, command line.
fn process(pid: i32, parent: i32, cmdline: &str) -> Process {
    let thread = ObservedThread {
        id: ThreadId {
            start_ticks: 0,
            tid: Tid(pid),
        },
        comm: cmdline.split(' ').next().unwrap().into(),
        mask: CpuSet::new(),
        cpu_ticks: 0,
    };
    Process {
        id: ProcessId {
            start_ticks: pid as u64,
            pid: Pid(pid),
        },
        not_before: Micros(0),
        parent: Pid(parent),
        cmdline: cmdline.into(),
        threads: vec![thread],
    }
}

fn observation(server_kind: ServerKind, processes: Vec<Process>) -> Observation {
    let machine = albacore_topology::parse_synthetic("pack:1 core:2 pu:1").unwrap();
    let cpuset = machine.cpuset();
    let at = Micros(10_000_000);
    Observation {
        at,
        machine,
        cpuset,
        cpuset_changes: 0,
        server_kind,
        processes,
    }
}

fn workers(observation: &Observation, before: &PlanHistory) -> Vec<i32> {
    let roles = find_roles(observation, 1, before);
    let is_worker = |p: &&Process| roles.of(p) == Role::Worker;
    observation
        .processes
        .iter()
        .filter(is_worker)
        .map(|p| p.id.pid.0)
        .collect()
}

fn fresh(processes: Vec<Process>) -> Vec<i32> {
    workers(
        &observation(ServerKind::PreFork, processes),
        &PlanHistory::default(),
    )
}

const GUNICORN: &str = "python /usr/bin/gunicorn app:app -w 2";

#[test]
fn wrappers_are_skipped_and_trackers_and_helpers_are_no_workers() {
    let tree = vec![
        process(1, 0, "sh -c ./start"),
        process(2, 1, "tini -- gunicorn"),
        process(3, 2, GUNICORN),
        process(
            4,
            3,
            "python -c from multiprocessing.resource_tracker import main",
        ),
        process(5, 3, GUNICORN),
        process(6, 3, GUNICORN),
        process(7, 5, "sleep 60"),
        process(8, 5, "sleep 61"),
        process(9, 5, "sleep 62"),
    ];
    assert_eq!(fresh(tree.clone()), [5, 6]);
    let roles = find_roles(
        &observation(ServerKind::PreFork, tree.clone()),
        2,
        &PlanHistory::default(),
    );
    let found: Vec<Role> = tree.iter().map(|p| roles.of(p)).collect();
    use Role::{Arbiter, Helper, Other, Worker};
    assert_eq!(
        found,
        [
            Arbiter, Arbiter, Arbiter, Other, Worker, Worker, Helper, Helper, Helper
        ]
    );
}

#[test]
fn titles_with_numbers_are_like_each_other() {
    let tree = vec![
        process(1, 0, "server: master"),
        process(2, 1, "server: worker 1"),
        process(3, 1, "server: worker 12"),
    ];
    assert_eq!(fresh(tree), [2, 3]);
}

#[test]
fn one_worker_of_a_forking_server_is_found_and_a_server_without_forks_is_its_own_worker() {
    assert_eq!(
        fresh(vec![process(1, 0, GUNICORN), process(2, 1, GUNICORN)]),
        [2]
    );
    assert_eq!(
        fresh(vec![
            process(1, 0, "sh -c x"),
            process(2, 1, "python app.py")
        ]),
        [2]
    );
    assert_eq!(fresh(vec![process(1, 0, "python app.py")]), [1]);
}

#[test]
fn a_slowly_importing_arbiter_is_no_worker_where_several_are_requested() {
    let alone = observation(ServerKind::PreFork, vec![process(1, 0, GUNICORN)]);
    let is_worker = |requested| {
        let roles = find_roles(&alone, requested, &PlanHistory::default());
        roles.of(&alone.processes[0]) == Role::Worker
    };
    assert_eq!([1, 2, 8].map(is_worker), [true, false, false]);
}

#[test]
fn a_process_that_may_yet_fork_is_no_worker() {
    let young = Process {
        not_before: Micros(8_000_000),
        ..process(1, 0, GUNICORN)
    };
    assert_eq!(fresh(vec![young.clone()]), [0; 0]);
    // Likewise a master whose workers have all exited at this moment.
    let whole = vec![process(1, 0, GUNICORN), process(2, 1, GUNICORN)];
    let roles = find_roles(
        &observation(ServerKind::PreFork, whole),
        1,
        &PlanHistory::default(),
    );
    let history = PlanHistory {
        arbiter: roles.arbiter,
        command_pattern: roles.command_pattern,
        ..PlanHistory::default()
    };
    let alone = observation(ServerKind::PreFork, vec![process(1, 0, GUNICORN)]);
    assert_eq!(workers(&alone, &history), [0; 0]);
    let roles = find_roles(&alone, 1, &history);
    assert_eq!(roles.arbiter, history.arbiter);
}

#[test]
fn the_last_running_worker_stays_a_worker_beside_children_before_exec() {
    let exec = |pid, worker| process(pid, 1, &format!("server worker {worker}"));
    let whole = observation(
        ServerKind::PreFork,
        vec![
            process(1, 0, "server 3"),
            exec(2, 0),
            exec(3, 1),
            exec(4, 2),
        ],
    );
    let roles = find_roles(&whole, 1, &PlanHistory::default());
    let history = PlanHistory {
        arbiter: roles.arbiter,
        command_pattern: roles.command_pattern,
        ..PlanHistory::default()
    };
    let unexeced = |pid| Process {
        not_before: Micros(9_999_000),
        ..process(pid, 1, "server 3")
    };
    let respawning = observation(
        ServerKind::PreFork,
        vec![
            process(1, 0, "server 3"),
            exec(4, 2),
            unexeced(5),
            unexeced(6),
        ],
    );
    assert_eq!(workers(&respawning, &history), [4]);
    // A larger group that persists replaces the first one, which was a wrong guess.
    let lasting = observation(
        ServerKind::PreFork,
        vec![
            process(1, 0, "x"),
            exec(4, 2),
            process(5, 1, "y"),
            process(6, 1, "y"),
        ],
    );
    assert_eq!(workers(&lasting, &history), [5, 6]);
}

#[test]
fn workers_of_the_built_in_server_are_known_by_the_names_of_their_threads() {
    let mut named = process(3, 2, "albacore-server worker");
    named.threads[0].comm = "albw0.0".into();
    let mut helper = process(4, 3, "albacore-server worker");
    helper.threads[0].comm = "albw0.0".into();
    let tree = vec![
        process(2, 1, "albacore-server"),
        named,
        helper,
        process(5, 2, "unnamed"),
    ];
    let observation = observation(ServerKind::Named, tree);
    assert_eq!(workers(&observation, &PlanHistory::default()), [3]);
}
