//! Changes of the cpuset of a placed server, with real cgroups. Works with cgroup v1 and v2,
//! whichever the machine has; needs root and two cpus.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // tests fail by panicking

mod prefork;

use std::time::Duration;

use albacore_os::{HostRoot, MaskRestoration, probe_mask_restoration};
use albacore_placer::{Placer, PlacerConfig, PlacerError, Report, SlotState, SubjectConfig};
use albacore_plan::{MaskDriftCause, PlacementWarning, ServerKind};
use prefork::group::{Group, two};
use prefork::{PreforkServer, Run, cpus, mask_of, policy, threads_of};

#[test]
fn a_cpuset_that_shrinks_and_grows_is_followed_and_masks_never_leave_it() {
    let (low, _, both) = two();
    let group = Group::new("moves", &both);
    let server = PreforkServer::start(2, 2, &["named"]);
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(2, 2));
    run.until_placed();
    group.take(server.pid());
    for round in 0..10 {
        let cpuset = if round % 2 == 0 { &low } else { &both };
        group.set(cpuset);
        run.until("followed", |run| {
            run.is_placed()
                && run
                    .rows()
                    .iter()
                    .all(|r| r.planned.as_ref().unwrap().is_subset(cpuset))
                && (cpuset.len() == 1 || run.rows()[0].planned != run.rows()[2].planned)
        });
        for tid in threads_of(server.pid()) {
            assert!(mask_of(tid).is_none_or(|mask| mask.is_subset(cpuset)));
        }
    }
    assert!(
        run.reports
            .iter()
            .any(|r| matches!(r, Report::CpusetChanged { .. }))
    );
    let is_reported = |cause| {
        run.reports
            .iter()
            .any(|r| matches!(r, Report::Drift { cause: c, .. } if *c == cause))
    };
    // A kernel that remembers requested masks may restore them as planned by itself; then there is
    // no drift.
    assert!(
        !is_reported(MaskDriftCause::Foreign),
        "a change of the cpuset is no foreign change"
    );
    let restored = run.restore();
    assert!(restored.errors.is_empty(), "{restored:?}");
    for tid in threads_of(server.pid()) {
        assert_eq!(mask_of(tid), Some(both.clone()));
    }
}

#[test]
fn restored_masks_grow_with_the_cpuset_as_if_never_narrowed() {
    let (low, _, both) = two();
    let group = Group::new("grows", &low);
    let server = PreforkServer::start(1, 2, &["named"]);
    group.take(server.pid());
    let mut run = Run::on(server.pid(), ServerKind::Named, policy(1, 2));
    run.until("verified", |run| {
        run.rows().iter().all(|r| r.state == SlotState::Verified)
    });
    group.take(server.pid());
    let restored = run.restore();
    assert!(restored.errors.is_empty(), "{restored:?}");
    group.set(&both);
    for tid in threads_of(server.pid()) {
        assert_eq!(mask_of(tid), Some(both.clone()));
    }
}

#[test]
fn a_limit_is_kept_inside_a_wider_cpuset() {
    let (_, high, _) = two();
    let server = PreforkServer::start(1, 2, &["named"]);
    let config = PlacerConfig {
        limit: Some(high.clone()),
        distances: None,
        ..PlacerConfig::live()
    };
    let mut run = Run::with(config, server.pid(), ServerKind::Named, policy(1, 2));
    run.until_placed();
    assert!(
        run.rows()
            .iter()
            .all(|row| row.planned.as_ref() == Some(&high))
    );
}

#[test]
fn a_server_without_a_usable_cpu_is_refused_with_the_file_that_says_so() {
    let server = PreforkServer::start(1, 1, &["named"]);
    let config = PlacerConfig {
        limit: Some(cpus("8000")),
        distances: None,
        ..PlacerConfig::live()
    };
    let mut placer = Placer::new(config).unwrap();
    let subject = SubjectConfig {
        root: server.pid(),
        cgroup: None,
        server_kind: ServerKind::Named,
        policy: policy(1, 1),
    };
    let error = placer.add_subject(&subject).unwrap_err();
    assert!(matches!(error, PlacerError::EmptyCpuset { .. }));
    assert!(error.to_string().contains("/sys/fs/cgroup"), "{error}");
}

#[test]
fn a_mask_that_is_lost_with_a_cpuset_is_counted_as_widened_and_repaired() {
    let (_, _, both) = two();
    let group = Group::new("widened", &both);
    let server = PreforkServer::start_in(&group, 1, 2);
    let mut run = Run::inside(&group, server.pid(), policy(1, 2));
    run.until_placed();
    assert_eq!(run.placer.counters().widened, 0);
    // Simulates an old kernel, which overwrites masks on every cpuset change, so that this is
    // tested on every kernel.
    let tid = run.rows()[1].tid.unwrap();
    prefork::taskset(tid, &both);
    group.set(&both);
    run.until("repaired", |run| {
        run.placer.counters().widened == 1 && run.is_placed()
    });
    let state = run.placer.states().remove(0);
    assert_eq!(state.widened, 1);
    assert_eq!(state.drifts.get(&MaskDriftCause::CpusetChange), Some(&1));
}

#[test]
fn a_container_without_a_cpu_waits_until_it_has_one_and_the_loop_sleeps() {
    let (_, _, both) = two();
    let group = Group::new("empty", &both);
    let server = PreforkServer::start_in(&group, 1, 2);
    let mut placer = Placer::new(PlacerConfig {
        limit: Some(cpus("8000")),
        distances: None,
        ..PlacerConfig::live()
    })
    .unwrap();
    let subject = SubjectConfig {
        root: server.pid(),
        cgroup: Some(group.cgroup()),
        server_kind: ServerKind::Named,
        policy: policy(1, 2),
    };
    placer.add_subject(&subject).unwrap();
    let mut turns = 0;
    let start = std::time::Instant::now();
    while start.elapsed() < Duration::from_millis(600) {
        placer
            .step(Duration::from_millis(600), &mut |_| {})
            .unwrap();
        turns += 1;
    }
    let state = placer.states().remove(0);
    assert!(state.cpuset.is_empty() && state.warnings.contains(&PlacementWarning::EmptyCpuset));
    assert_eq!(placer.counters().setaffinity_calls, 0);
    assert!(turns < 400, "{turns} turns in 600 ms");
}

#[test]
fn the_probe_of_this_kernel_gives_an_answer() {
    let mut sleep = std::process::Command::new("sleep");
    sleep.arg("60");
    let answer = probe_mask_restoration(&HostRoot::live(), sleep);
    println!("user masks: {answer:?}");
    assert!(
        !matches!(answer, MaskRestoration::Unknown { .. }),
        "{answer:?}"
    );
}
