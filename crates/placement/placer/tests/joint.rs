//! Several process trees on one machine: they are placed together, and a new one moves no thread
//! unnecessarily.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

mod prefork;

use std::collections::{BTreeMap, BTreeSet};

use albacore_placer::{Report, SubjectConfig, SubjectId};
use albacore_plan::{Enforcement, PlacementMethod, PlacementWarning, ServerKind, SubjectPolicy};
use albacore_topology::{CpuId, CpuSet, DistanceOverrides};
use prefork::{PreforkServer, Run, own_cpus, policy, threads_of};

fn add(run: &mut Run, server: &PreforkServer, policy: SubjectPolicy) -> SubjectId {
    let config = SubjectConfig {
        root: server.pid(),
        cgroup: None,
        server_kind: ServerKind::Named,
        policy,
    };
    run.placer.add_subject(&config).unwrap()
}

/// The planned cpu of every slot of a subject.
fn planned(run: &Run, subject: SubjectId) -> Vec<Option<CpuSet>> {
    let rows = run.rows().into_iter().filter(|row| row.subject == subject);
    rows.map(|row| row.planned).collect()
}

/// Planned number of threads per cpu, over all subjects.
fn loads(run: &Run) -> BTreeMap<CpuId, u32> {
    let mut loads: BTreeMap<CpuId, u32> = own_cpus().iter().map(|cpu| (cpu, 0)).collect();
    for row in run.rows() {
        let cpu = row.planned.unwrap().first().unwrap();
        *loads.get_mut(&cpu).unwrap() += 1;
    }
    loads
}

fn is_balanced(loads: &BTreeMap<CpuId, u32>) -> bool {
    loads.values().max().unwrap() - loads.values().min().unwrap() <= 1
}

fn plans(run: &Run, subject: SubjectId) -> usize {
    let of = |r: &&Report| matches!(r, Report::Planned { subject: s, .. } if *s == subject);
    run.reports.iter().filter(of).count()
}

#[test]
fn two_servers_share_the_cpus_evenly() {
    let (one, two) = (
        PreforkServer::start(1, 1, &["named"]),
        PreforkServer::start(1, 2, &["named"]),
    );
    let mut run = Run::on(one.pid(), ServerKind::Named, policy(1, 1));
    let second = add(&mut run, &two, policy(1, 2));
    run.until_placed();
    assert_eq!(run.rows().len(), 3);
    assert!(is_balanced(&loads(&run)), "{:?}", run.rows());
    assert_eq!((plans(&run, run.subject), plans(&run, second)), (1, 1));
}

#[test]
fn a_newcomer_takes_free_cpus_and_moves_no_thread() {
    let one = PreforkServer::start(1, 1, &["named"]);
    let mut run = Run::on(one.pid(), ServerKind::Named, policy(1, 1));
    run.until_placed();
    let before = planned(&run, run.subject);
    let two = PreforkServer::start(1, 1, &["named"]);
    let second = add(&mut run, &two, policy(1, 1));
    run.until("both placed", |run| {
        run.rows().len() == 2 && run.is_placed()
    });
    assert_eq!(planned(&run, run.subject), before);
    assert_eq!(
        plans(&run, run.subject),
        1,
        "nothing new to tell of the first"
    );
    if own_cpus().len() > 1 {
        assert_ne!(
            planned(&run, second),
            before,
            "alone, it would go where the first is"
        );
    }
    assert!(is_balanced(&loads(&run)));
}

#[test]
fn when_a_deployment_ends_the_others_spread_over_its_cpus() {
    let (one, two) = (
        PreforkServer::start(1, 2, &["named"]),
        PreforkServer::start(1, 1, &["named"]),
    );
    let three = PreforkServer::start(1, 1, &["named"]);
    let mut run = Run::on(one.pid(), ServerKind::Named, policy(1, 2));
    let second = add(&mut run, &two, policy(1, 1));
    let third = add(&mut run, &three, policy(1, 1));
    run.until_placed();
    assert!(is_balanced(&loads(&run)));
    let _restored = run.placer.handle().remove(run.subject).unwrap();
    run.until("the rest placed", |run| {
        run.rows().len() == 2 && run.is_placed() && is_balanced(&loads(run))
    });
    let cpus: BTreeSet<_> = [second, third].map(|s| planned(&run, s)).into();
    assert_eq!(cpus.len(), own_cpus().len().min(2));
}

#[test]
fn threads_of_a_round_robin_are_obstacles() {
    let (one, two) = (
        PreforkServer::start(1, 1, &["named"]),
        PreforkServer::start(1, 1, &["named"]),
    );
    let round_robin = SubjectPolicy {
        placement: PlacementMethod::RoundRobin,
        ..policy(1, 1)
    };
    let mut run = Run::on(one.pid(), ServerKind::Named, round_robin);
    run.until_placed();
    let taken = planned(&run, run.subject);
    add(&mut run, &two, policy(1, 1));
    run.until("both placed", |run| {
        run.rows().len() == 2 && run.is_placed()
    });
    run.until("apart", |run| is_balanced(&loads(run)));
    assert_eq!(
        planned(&run, run.subject),
        taken,
        "a round robin keeps its own rule"
    );
}

#[test]
fn threads_that_pinned_themselves_are_obstacles() {
    let (one, two) = (
        PreforkServer::start(1, 1, &["named"]),
        PreforkServer::start(1, 1, &["named"]),
    );
    let unplaced = SubjectPolicy {
        placement: PlacementMethod::None,
        ..policy(1, 1)
    };
    let lowest: CpuSet = own_cpus().iter().take(1).collect();
    let mut run = Run::on(one.pid(), ServerKind::Named, unplaced);
    run.until("worker there", |_| !threads_of(one.pid()).is_empty());
    for tid in threads_of(one.pid()) {
        prefork::taskset(tid, &lowest);
    }
    run.for_a_while(std::time::Duration::from_millis(200));
    let second = add(&mut run, &two, policy(1, 1));
    run.until("placed", |run| {
        let rows = run.rows();
        let mut own = rows.iter().filter(|row| row.subject == second);
        own.all(|row| row.verified_micros_ago.is_some())
    });
    if own_cpus().len() > 1 {
        assert_ne!(planned(&run, second), [Some(lowest)]);
    }
}

#[test]
fn one_that_is_only_observed_does_not_disturb() {
    let (one, two) = (
        PreforkServer::start(1, 2, &["named"]),
        PreforkServer::start(1, 2, &["named"]),
    );
    let mut run = Run::on(one.pid(), ServerKind::Named, policy(1, 2));
    run.until_placed();
    let before = planned(&run, run.subject);
    let observed = SubjectPolicy {
        enforcement: Enforcement::Observe,
        ..policy(1, 2)
    };
    let second = add(&mut run, &two, observed);
    run.until("planned", |run| plans(run, second) == 1);
    run.for_a_while(std::time::Duration::from_millis(200));
    assert_eq!(planned(&run, run.subject), before);
    assert_eq!(plans(&run, run.subject), 1);
}

#[test]
fn distances_that_differ_are_ignored_where_all_are_planned_together() {
    let (one, two) = (
        PreforkServer::start(1, 1, &["named"]),
        PreforkServer::start(1, 1, &["named"]),
    );
    let with = |l3| SubjectPolicy {
        distances: DistanceOverrides {
            l3,
            ..DistanceOverrides::default()
        },
        ..policy(1, 1)
    };
    let ignored = |run: &Run| -> Vec<bool> {
        let is_it = |warning: &PlacementWarning| *warning == PlacementWarning::DistancesIgnored;
        let states = run.placer.states();
        let of = states.iter().map(|state| state.warnings.iter().any(is_it));
        of.collect()
    };
    let mut run = Run::on(one.pid(), ServerKind::Named, with(Some(60)));
    run.until_placed();
    assert_eq!(ignored(&run), [false], "one alone has what it asks for");
    let second = add(&mut run, &two, policy(1, 1));

    run.until("the first has the warning", |run| {
        ignored(run) == [true, false]
    });
    run.placer.set_policy(second, with(Some(60))).unwrap();
    run.until("both ask for the same", |run| {
        ignored(run) == [false, false]
    });
}
