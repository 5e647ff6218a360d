//! Real processes on the real kernel: threads are placed, and placed again after every event that
//! moves them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // tests fail by panicking

mod prefork;

use std::time::Duration;

use albacore_os::{Pid, Tid};
use albacore_placer::{Report, SlotRow, SlotState, SpawnKind};
use albacore_plan::limits::{BACK_OFF_MICROS_MIN, REPAIRS_MAX};
use albacore_plan::{
    BackOff, Enforcement, MainThread, MaskDriftCause, PlacementMethod, PlacementWarning, ServerKind,
};
use albacore_topology::CpuSet;
use prefork::{
    PreforkServer, Run, cpus, mask_of, own_cpus, policy, tasks_of, taskset, threads_of, tree_of,
};

fn kill(pid: albacore_os::Pid) {
    // It may have exited already.
    if let Ok(process) = albacore_os::PidFd::open(pid) {
        let _ = process.signal(nix::sys::signal::Signal::SIGKILL);
    }
}

#[test]
fn every_thread_of_a_named_server_is_placed_and_the_front_keeps_the_cpuset() {
    let server = PreforkServer::start(2, 3, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 3));
    run.until_placed();
    for row in run.rows() {
        let comm = std::fs::read_to_string(format!("/proc/{}/comm", row.tid.unwrap().0)).unwrap();
        assert_eq!(
            comm.trim(),
            format!("albw{}.{}", row.slot.worker.0, row.slot.rank.0)
        );
        assert_eq!(row.state, SlotState::Verified);
    }
    for tid in tasks_of(server.pid()) {
        assert_eq!(
            mask_of(tid).unwrap(),
            own_cpus(),
            "the front is never pinned"
        );
    }
}

#[test]
fn workers_of_any_prefork_server_are_found_by_the_shape_of_the_tree() {
    let server = PreforkServer::start(2, 2, &[]);
    let mut run = Run::on(server.pid(), ServerKind::PreFork, policy(2, 2));
    run.until_placed();
    for row in run.rows().iter().filter(|row| row.slot.rank.0 == 0) {
        assert_eq!(
            row.pid.unwrap().0,
            row.tid.unwrap().0,
            "rank 0 is the first thread"
        );
    }
}

#[test]
fn workers_that_replace_those_of_the_same_names_are_placed_once_these_have_ended() {
    let mut server = PreforkServer::start(2, 2, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 2));
    run.until_placed();
    let before = run.rows();
    let older = tree_of(server.pid());
    let is_newer = |pid: &Pid| !older.contains(pid);
    let is_name_twice = |report: &Report| {
        let warning = match report {
            Report::Warning { warning, .. } => warning,
            _ => return false,
        };
        matches!(warning, PlacementWarning::DuplicateWorkerName { .. })
    };
    // As during a rolling restart: both generations serve.
    server.order("again");
    run.until("both run", |run| {
        let newer = tree_of(server.pid()).into_iter().filter(is_newer);
        let threads: Vec<_> = newer.map(tasks_of).collect();
        threads.len() == 2
            && threads.iter().all(|tids| tids.len() == 2)
            && run.reports.iter().any(is_name_twice)
    });
    let calls = run.calls();
    run.for_a_while(Duration::from_millis(500));
    assert_eq!(run.calls(), calls, "no thread is moved");
    let pids = |rows: &[SlotRow]| rows.iter().map(|row| row.pid).collect::<Vec<_>>();
    assert_eq!(pids(&run.rows()), pids(&before));
    assert!(run.is_placed(), "{:#?}", run.rows());
    let newer: Vec<Pid> = tree_of(server.pid()).into_iter().filter(is_newer).collect();
    for tid in newer.iter().copied().flat_map(tasks_of) {
        assert_eq!(
            mask_of(tid),
            Some(own_cpus()),
            "the older workers have the names"
        );
    }
    server.order("retire");
    run.until("the newer ones are placed", |run| {
        let is_newer = |row: &SlotRow| row.pid.is_some_and(|pid| newer.contains(&pid));
        run.is_placed() && run.rows().iter().all(is_newer)
    });
    for (row, was) in run.rows().iter().zip(before) {
        assert_eq!(row.planned, was.planned, "in the same place");
    }
}

#[test]
fn a_killed_worker_is_placed_again_in_its_own_slots_and_no_other_worker_moves() {
    for (named, server_kind) in [
        (&["named"][..], ServerKind::Named),
        (&[][..], ServerKind::PreFork),
    ] {
        let server = PreforkServer::start(2, 2, named);
        let mut run = Run::on(server.pid(), server_kind, policy(2, 2));
        run.until_placed();
        for round in 1..=25u32 {
            let before = run.rows();
            let victim = &before[usize::from(round % 2 == 0) * 2];
            let (worker, pid) = (victim.slot.worker, victim.pid.unwrap());
            kill(pid);
            run.until("respawned", |run| {
                run.is_placed() && run.rows().iter().all(|row| row.pid != Some(pid))
            });
            for (old, new) in before.iter().zip(run.rows()) {
                assert_eq!(old.planned, new.planned, "a slot keeps its cpu");
                assert!(old.slot.worker == worker || old.tid == new.tid);
            }
        }
        let figures = run.placer.counters();
        assert_eq!(figures.respawns, 25);
        assert!(figures.respawn_micros.count() >= 25);
        println!(
            "{server_kind:?}: respawn birth to verified p50 {:?} p99 {:?} max {} us",
            figures.respawn_micros.quantile_bound(0.5),
            figures.respawn_micros.quantile_bound(0.99),
            figures.respawn_micros.max()
        );
    }
}

#[test]
fn nothing_is_written_while_nothing_changes() {
    let server = PreforkServer::start(2, 2, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 2));
    run.until_placed();
    run.for_a_while(Duration::from_millis(200));
    let calls = run.calls();
    run.for_a_while(Duration::from_secs(2));
    assert_eq!(run.calls(), calls);
}

#[test]
fn a_foreign_taskset_is_undone_and_has_its_cause() {
    let server = PreforkServer::start(2, 2, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 2));
    run.until_placed();
    let tid = run.rows()[1].tid.unwrap();
    taskset(tid, &own_cpus());
    run.until("undone", |run| {
        run.is_placed()
            && run.reports.iter().any(|r| {
                matches!(
                    r,
                    Report::Drift {
                        cause: MaskDriftCause::Foreign,
                        ..
                    }
                )
            })
    });
}

#[test]
fn a_thread_that_starts_late_gets_the_cpus_of_its_worker() {
    let mut server = PreforkServer::start(2, 1, &[]);
    // Two threads are requested, but only one exists: the second is spawned later.
    let mut run = Run::on(server.pid(), ServerKind::PreFork, policy(2, 2));
    run.until("mains placed", |run| {
        run.rows()
            .iter()
            .filter(|r| r.state == SlotState::Verified)
            .count()
            == 2
    });
    // Threads spawned within a second of their process count as spawned with it.
    run.for_a_while(Duration::from_millis(1200));
    server.order("thread 0");
    server.order("thread 1");
    run.until_placed();
    let born = |r: &Report| {
        matches!(
            r,
            Report::Pinned {
                kind: SpawnKind::NewThread,
                spawn_to_verified_micros: Some(_),
                ..
            }
        )
    };
    assert_eq!(run.reports.iter().filter(|r| born(r)).count(), 2);
    assert_eq!(run.placer.counters().new_thread_micros.count(), 2);
    // An extra thread beyond T gets all cpus of its worker. The server's worker indexes may differ
    // from the placer's.
    server.order("thread 0");
    server.order("thread 1");
    let pid = run.rows()[0].pid.unwrap();
    let planned = run
        .rows()
        .into_iter()
        .filter(|r| r.slot.worker.0 == 0)
        .map(|r| r.planned.unwrap());
    let own = planned.fold(cpus(""), |all, one| all.union(&one));
    run.until("extra thread", |_| {
        let tasks = tasks_of(pid);
        tasks.len() == 3
            && tasks
                .iter()
                .filter(|&&tid| mask_of(tid).as_ref() == Some(&own))
                .count()
                >= 1
    });
}

#[test]
fn children_of_workers_do_not_keep_an_inherited_pin() {
    let mut server = PreforkServer::start(2, 2, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 2));
    run.until_placed();
    server.order("helper 1");
    let root = server.pid();
    run.until("helper given back", |_| {
        tree_of(root).into_iter().any(|pid| {
            let comm = std::fs::read_to_string(format!("/proc/{}/comm", pid.0)).unwrap_or_default();
            comm.trim() == "sleep" && mask_of(albacore_os::Tid(pid.0)) == Some(own_cpus())
        })
    });
}

#[test]
fn a_server_that_pins_itself_is_left_alone_after_three_reversals() {
    let server = PreforkServer::start(1, 2, &["named", "pin=5"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(1, 2));
    // The peer insists on the highest cpu. Whether that is the planned one depends on the solver,
    // so both cases are handled.
    run.until("settled or left alone", |run| {
        let rows = run.rows();
        rows.iter().all(|r| r.tid.is_some()) && rows[1].state != SlotState::Missing
    });
    let rows = run.rows();
    let insists: albacore_topology::CpuSet = own_cpus().iter().last().into_iter().collect();
    if rows[1].planned.as_ref() == Some(&insists) {
        run.until_placed();
        return;
    }
    run.until("left alone", |run| {
        run.rows()[1].state == SlotState::BackedOff
    });
    assert!(
        run.reports
            .iter()
            .any(|r| matches!(r, Report::BackedOff { .. }))
    );
    let calls = run.calls();
    run.for_a_while(Duration::from_millis(500));
    assert_eq!(run.calls(), calls, "left alone means no more writes");
    assert_eq!(mask_of(run.rows()[1].tid.unwrap()), Some(insists));
}

/// Changes a thread's mask until it is no longer repaired; returns the reported back-off.
fn change_until_backed_off(run: &mut Run, tid: albacore_os::Tid) -> BackOff {
    let back_off = |run: &Run| {
        let last = run.reports.iter().rev();
        last.filter_map(|report| match report {
            Report::BackedOff { back_off, .. } => Some(*back_off),
            _ => None,
        })
        .next()
    };
    let before = back_off(run);
    // bound: REPAIRS_MAX changes within a minute, and one more; a slow machine takes longer and
    // starts over.
    while back_off(run) == before {
        taskset(tid, &own_cpus());
        run.until("repaired or left alone", |run| {
            (run.is_placed() && mask_of(tid) != Some(own_cpus())) || back_off(run) != before
        });
    }
    back_off(run).unwrap()
}

#[test]
fn a_mask_that_is_changed_again_and_again_is_left_until_the_back_off_ends() {
    let server = PreforkServer::start(2, 2, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 2));
    run.until_placed();
    let tid = run.rows()[3].tid.unwrap();
    // While a server starts slowly, a thread may be planned twice.
    let placed = run.reports.len();
    let left = change_until_backed_off(&mut run, tid);
    assert_eq!(left.changes, REPAIRS_MAX + 1);
    assert_eq!(left.retry_at.0 - left.last.0, BACK_OFF_MICROS_MIN);
    assert_eq!(run.rows()[3].state, SlotState::BackedOff);
    assert_eq!(mask_of(tid), Some(own_cpus()));
    let verified = |run: &Run| {
        let rows = run.rows();
        rows.iter()
            .filter(|r| r.state == SlotState::Verified)
            .count()
    };
    assert_eq!(verified(&run), 3);
    let causes: Vec<MaskDriftCause> = run.reports[placed..]
        .iter()
        .filter_map(|report| match report {
            Report::Drift { tid: of, cause, .. } if *of == tid => Some(*cause),
            _ => None,
        })
        .filter(|cause| !matches!(cause, MaskDriftCause::NewThread | MaskDriftCause::Inherited))
        .collect();
    assert!(
        causes.iter().all(|c| *c == MaskDriftCause::Foreign),
        "{causes:?}"
    );
    // An edit resets the back-off immediately.
    run.placer.retry_now(run.subject);
    run.until("repaired", |run| {
        run.is_placed() && mask_of(tid) != Some(own_cpus())
    });
    let again = change_until_backed_off(&mut run, tid);
    assert_eq!(again.changes, REPAIRS_MAX + 1, "it starts over");
    // Without any change the placer itself retries after the pause.
    let calls = run.calls();
    let pause = Duration::from_micros(BACK_OFF_MICROS_MIN);
    run.for_a_while(pause / 2);
    assert_eq!(run.calls(), calls, "not before");
    run.until("repaired", |run| {
        run.is_placed() && mask_of(tid) != Some(own_cpus())
    });
    assert_eq!(run.calls(), calls + 1);
    assert_eq!(verified(&run), 4);
}

#[test]
fn every_mask_is_restored_on_exit() {
    let mut server = PreforkServer::start(2, 2, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 2));
    run.until_placed();
    server.order("thread 0");
    server.order("helper 1");
    let restored = run.restore();
    assert!(
        restored.count >= 4 && restored.errors.is_empty(),
        "{restored:?}"
    );
    for tid in threads_of(server.pid()) {
        assert_eq!(mask_of(tid), Some(own_cpus()), "thread {}", tid.0);
    }
}

#[test]
fn observe_plans_and_reports_but_writes_nothing() {
    let server = PreforkServer::start(2, 2, &["named"]);
    let observe = albacore_plan::SubjectPolicy {
        enforcement: Enforcement::Observe,
        ..policy(2, 2)
    };
    let mut run = Run::on(server.pid(), ServerKind::Named, observe);
    run.until("reported", |run| {
        run.reports
            .iter()
            .filter(|r| matches!(r, Report::Drift { .. }))
            .count()
            >= 4
    });
    run.for_a_while(Duration::from_millis(500));
    assert_eq!(run.calls(), 0);
    assert_eq!(run.restore().count, 0);
    assert!(
        run.reports
            .iter()
            .any(|r| matches!(r, Report::Planned { .. }))
    );
    for tid in threads_of(server.pid()) {
        assert_eq!(mask_of(tid), Some(own_cpus()));
    }
}

#[test]
fn the_main_thread_may_have_all_cpus_of_its_worker() {
    let server = PreforkServer::start(1, 2, &["named"]);
    let wide = albacore_plan::SubjectPolicy {
        main_thread: MainThread::WorkerSet,
        ..policy(1, 2)
    };
    let mut run = Run::on(server.pid(), ServerKind::Named, wide);
    run.until_placed();
    let rows = run.rows();
    assert!(
        rows[1]
            .planned
            .as_ref()
            .unwrap()
            .is_subset(rows[0].planned.as_ref().unwrap())
    );
    assert_eq!(
        rows[0].planned.as_ref().unwrap().len(),
        own_cpus().len().min(2)
    );
}

#[test]
fn a_live_change_to_none_gives_masks_back_and_tuna_places_again() {
    let server = PreforkServer::start(2, 2, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 2));
    run.until_placed();
    let handle = run.placer.handle();
    for placement in [
        PlacementMethod::None,
        PlacementMethod::RoundRobin,
        PlacementMethod::None,
        PlacementMethod::Tuna,
    ] {
        let next = albacore_plan::SubjectPolicy {
            placement,
            ..policy(2, 2)
        };
        handle.set_policy(run.subject, next).unwrap();
        let root = server.pid();
        run.until("followed", |run| match placement {
            PlacementMethod::None => threads_of(root)
                .iter()
                .all(|&t| mask_of(t) == Some(own_cpus())),
            _ => run.is_placed(),
        });
    }
    assert!(run.reports.iter().all(|r| !matches!(
        r,
        Report::Drift {
            cause: MaskDriftCause::Foreign,
            ..
        }
    )));
}

#[test]
fn a_live_change_to_observe_restores_masks_once_and_then_writes_nothing() {
    let server = PreforkServer::start(2, 2, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 2));
    run.until_placed();
    let handle = run.placer.handle();
    let with = |enforcement| albacore_plan::SubjectPolicy {
        enforcement,
        ..policy(2, 2)
    };
    let is_free = |tid: &Tid| mask_of(*tid) == Some(own_cpus());
    handle
        .set_policy(run.subject, with(Enforcement::Observe))
        .unwrap();
    run.until("given back", |_| {
        threads_of(server.pid()).iter().all(is_free)
    });
    let released: Vec<usize> = run
        .reports
        .iter()
        .filter_map(|report| match report {
            Report::Released { restored, .. } => Some(restored.count),
            _ => None,
        })
        .collect();
    assert_eq!(released, [4]);

    // From now on nothing is written: not over foreign changes, not for a new worker, and not after
    // a policy change that keeps observing.
    let calls = run.calls();
    let (thread, cpu) = (run.rows()[0].tid.unwrap(), own_cpus().first().unwrap());
    let foreign: CpuSet = [cpu].into_iter().collect();
    taskset(thread, &foreign);
    let killed = run.rows()[2].pid.unwrap();
    kill(killed);
    run.until("another worker", |run| {
        let now = run.rows()[2].pid;
        now.is_some() && now != Some(killed)
    });
    let compact = albacore_plan::SubjectPolicy {
        mode: albacore_solver::Mode::Compact,
        ..with(Enforcement::Observe)
    };
    handle.set_policy(run.subject, compact).unwrap();
    run.for_a_while(Duration::from_millis(500));
    assert_eq!(mask_of(thread), Some(foreign));
    assert_eq!(run.calls(), calls);
    handle
        .set_policy(run.subject, with(Enforcement::Enforce))
        .unwrap();
    run.until_placed();
}

#[test]
fn a_server_that_ends_is_reported_and_forgotten() {
    let server = PreforkServer::start(1, 1, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(1, 1));
    run.until_placed();
    drop(server);
    run.until("reported", |run| {
        run.reports
            .iter()
            .any(|r| matches!(r, Report::SubjectGone { .. }))
    });
    assert!(run.rows().is_empty());
}
