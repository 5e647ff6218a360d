//! Real cgroups: what happens when the cpuset of a placed server changes. Works with cgroup v1 and v2, whichever the
//! machine has; needs root and two cpus.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)] // tests fail by panicking

mod swarm;

use albacore_os::{HostRoot, UserMasks, probe_user_masks};
use albacore_placer::{Config, Placer, PlacerError, Report, RowState, SubjectConfig};
use albacore_plan::{Cause, Source};
use swarm::group::{Group, two};
use swarm::{Run, Swarm, cpus, mask_of, policy, threads_of};

#[test]
fn a_cpuset_that_shrinks_and_grows_is_followed_and_masks_never_leave_it() {
    let (low, _, both) = two();
    let group = Group::new("moves", &both);
    let server = Swarm::start(2, 2, &["named"]);
    let mut run = Run::on(server.pid(), Source::Named, policy(2, 2));
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
    let told = |cause| {
        run.reports
            .iter()
            .any(|r| matches!(r, Report::Drift { cause: c, .. } if *c == cause))
    };
    // A kernel that remembers masks may bring them where they are planned by itself: then nothing drifts.
    assert!(
        !told(Cause::SelfPin) && !told(Cause::Foreign),
        "nobody is blamed for a cpuset"
    );
    let restored = run.restore();
    assert!(restored.errors.is_empty(), "{restored:?}");
    for tid in threads_of(server.pid()) {
        assert_eq!(mask_of(tid), Some(both.clone()));
    }
}

#[test]
fn masks_given_back_grow_with_the_cpuset_as_if_they_had_never_been_narrower() {
    let (low, _, both) = two();
    let group = Group::new("grows", &low);
    let server = Swarm::start(1, 2, &["named"]);
    group.take(server.pid());
    let mut run = Run::on(server.pid(), Source::Named, policy(1, 2));
    run.until("verified", |run| {
        run.rows().iter().all(|r| r.state == RowState::Verified)
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
    let server = Swarm::start(1, 2, &["named"]);
    let config = Config {
        limit: Some(high.clone()),
        ..Config::live()
    };
    let mut run = Run::with(config, server.pid(), Source::Named, policy(1, 2));
    run.until_placed();
    assert!(
        run.rows()
            .iter()
            .all(|row| row.planned.as_ref() == Some(&high))
    );
}

#[test]
fn a_server_without_a_usable_cpu_is_refused_with_the_file_that_says_so() {
    let server = Swarm::start(1, 1, &["named"]);
    let config = Config {
        limit: Some(cpus("8000")),
        ..Config::live()
    };
    let mut placer = Placer::new(config).unwrap();
    let subject = SubjectConfig {
        root: server.pid(),
        cgroup: None,
        source: Source::Named,
        policy: policy(1, 1),
    };
    let error = placer.add_subject(&subject).unwrap_err();
    assert!(matches!(error, PlacerError::EmptyCpuset { .. }));
    assert!(error.to_string().contains("/sys/fs/cgroup"), "{error}");
}

#[test]
fn the_probe_of_this_kernel_gives_an_answer() {
    let answer = probe_user_masks(&HostRoot::live());
    println!("user masks: {answer:?}");
    assert!(!matches!(answer, UserMasks::Unknown { .. }), "{answer:?}");
}
