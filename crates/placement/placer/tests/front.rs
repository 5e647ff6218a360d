//! Event loops of the front end, with real processes on the real kernel. Needs two cpus.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // tests fail by panicking

mod prefork;

use std::time::Duration;

use albacore_os::{Pid, Tid};
use albacore_placer::{FrontRow, Report};
use albacore_plan::{Enforcement, MaskDriftCause, PlacementMethod, ServerKind, SubjectPolicy};
use albacore_topology::CpuSet;
use prefork::{
    PreforkServer, Run, mask_of, own_cpus, policy, tasks_of, taskset, threads_of, tree_of,
};

/// The event loops that the placer reports.
fn front(run: &Run) -> Vec<FrontRow> {
    let mut states = run.placer.states().into_iter();
    states
        .find(|state| state.subject == run.subject)
        .unwrap()
        .front
}

/// The cpus without main threads, according to their masks.
fn free(run: &Run) -> CpuSet {
    let rows = run.rows().into_iter().filter(|row| row.slot.rank.0 == 0);
    let mains = rows.filter_map(|row| mask_of(row.tid?));
    own_cpus().difference(&mains.fold(CpuSet::new(), |all, mask| all.union(&mask)))
}

/// Steps until this many event loops have the cpus without main threads, according to /proc.
fn until_apart(run: &mut Run, loops: usize) {
    run.until("event loops placed", |run| {
        let (front, free) = (front(run), free(run));
        run.is_placed()
            && front.len() == loops
            && front
                .iter()
                .all(|row| row.planned == free && mask_of(row.tid) == Some(free.clone()))
    });
}

fn comm(tid: Tid) -> String {
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", tid.0));
    comm.unwrap_or_default().trim().to_owned()
}

fn kill(pid: Pid) {
    // It may have exited already.
    if let Ok(process) = albacore_os::PidFd::open(pid) {
        let _ = process.signal(nix::sys::signal::Signal::SIGKILL);
    }
}

#[test]
fn event_loops_leave_the_cpus_of_main_threads_and_nothing_else_of_their_process_is_pinned() {
    let server = PreforkServer::start(1, 1, &["named", "loops=1"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(1, 1));
    until_apart(&mut run, 1);
    let event_loop = front(&run)[0].tid;
    assert_eq!(comm(event_loop), "albf.io0");
    // Threads spawned by the event loop inherit its mask, and are restored to the cpuset.
    let is_whole = |tid: &Tid| mask_of(*tid).is_none_or(|mask| mask == own_cpus());
    for _ in 0..3 {
        let before = tasks_of(server.pid());
        run.until("another thread was spawned", |_| {
            tasks_of(server.pid()) != before
        });
        run.until("it has the whole cpuset", |_| {
            let others = tasks_of(server.pid())
                .into_iter()
                .filter(|tid| *tid != event_loop);
            others.collect::<Vec<_>>().iter().all(is_whole)
        });
    }
    assert_eq!(mask_of(event_loop), Some(free(&run)));
}

#[test]
fn event_loops_of_serving_and_standby_processes_are_placed_again_after_a_kill() {
    let server = PreforkServer::start(1, 1, &["named", "loops=1", "fronts=2"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(1, 1));
    until_apart(&mut run, 2);
    for _ in 0..3 {
        let victim = front(&run)[0].pid;
        kill(victim);
        run.until("gone", |run| front(run).iter().all(|row| row.pid != victim));
        until_apart(&mut run, 2);
    }
    for tid in tasks_of(server.pid()) {
        assert_eq!(mask_of(tid), Some(own_cpus()), "the root starts processes");
    }
    // A change by another program is repaired, and reported as that of an event loop.
    let event_loop = front(&run)[0].tid;
    taskset(event_loop, &own_cpus());
    run.until("repaired", |run| {
        let repaired = |report: &Report| {
            matches!(report, Report::Pinned { tid, front: Some(0), cause: MaskDriftCause::Foreign, .. }
                if *tid == event_loop)
        };
        run.reports.iter().any(repaired)
    });
    until_apart(&mut run, 2);
}

#[test]
fn event_loops_that_do_not_spawn_cost_no_call_once_they_are_placed() {
    let server = PreforkServer::start(1, 1, &["named", "loops=1", "quiet"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(1, 1));
    until_apart(&mut run, 1);
    let calls = run.calls();
    run.for_a_while(Duration::from_secs(1));
    assert_eq!(run.calls(), calls);
}

#[test]
fn a_main_thread_on_every_cpu_leaves_event_loops_unpinned() {
    let workers = own_cpus().len() as u16;
    let server = PreforkServer::start(workers, 1, &["named", "loops=1", "quiet"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(workers, 1));
    run.until("placed", |run| run.is_placed() && front(run).len() == 1);
    assert_eq!(run.calls(), u64::from(workers), "only workers are written");
    let row = &front(&run)[0];
    assert_eq!(
        (&row.planned, mask_of(row.tid)),
        (&own_cpus(), Some(own_cpus()))
    );
}

#[test]
fn event_loops_get_the_cpuset_back_with_observe_without_placement_and_at_the_end() {
    let server = PreforkServer::start(1, 1, &["named", "loops=1", "fronts=1", "quiet"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(1, 1));
    let is_free = || {
        let masks = threads_of(server.pid()).into_iter().map(mask_of);
        masks.into_iter().all(|mask| mask == Some(own_cpus()))
    };
    let observe = SubjectPolicy {
        enforcement: Enforcement::Observe,
        ..policy(1, 1)
    };
    let unplaced = SubjectPolicy {
        placement: PlacementMethod::None,
        ..policy(1, 1)
    };
    for policy_without in [observe, unplaced] {
        run.placer.set_policy(run.subject, policy(1, 1)).unwrap();
        until_apart(&mut run, 1);
        run.placer.set_policy(run.subject, policy_without).unwrap();
        run.until("given back", |_| is_free());
    }
    run.placer.set_policy(run.subject, policy(1, 1)).unwrap();
    until_apart(&mut run, 1);
    let restored = run.restore();
    assert_eq!((restored.count, restored.errors.len()), (2, 0));
    assert!(is_free());
}

#[test]
fn names_of_event_loops_mean_nothing_in_a_server_that_is_not_the_built_in_one() {
    let server = PreforkServer::start(2, 1, &["loops=1", "quiet"]);
    let mut run = Run::on(server.pid(), ServerKind::PreFork, policy(2, 1));
    run.until_placed();
    run.for_a_while(Duration::from_millis(300));
    assert!(front(&run).is_empty());
    for tid in tasks_of(server.pid()) {
        assert_eq!(mask_of(tid), Some(own_cpus()));
    }
    assert_eq!(tree_of(server.pid()).len(), 3);
}
