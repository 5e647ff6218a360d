//! Invariants of every cluster, and known properties of routings.

use albacore_batching::Nanos;
use albacore_batching::deadlines::{Cost, Delays};
use albacore_random::Xoshiro256;
use proptest::prelude::*;

use super::pods::Report;
use super::routing::{KnownPods, Router};
use super::{Cluster, Failures, Routing};
use crate::{
    ArrivalProcess, DropPolicy, Model, Policy, Popularity, Scenario, Source, Target,
    run as run_alone,
};

const MS: u64 = 1_000_000;

/// ResNet50 of Table 2.
fn scenario(workers: usize, rate: f64, requests: u64) -> Scenario {
    Scenario {
        workers,
        models: vec![Model {
            name: "resnet50".to_owned(),
            cost: Cost::new(1.053e6, 5.072e6),
            objective: Nanos(25 * MS),
        }],
        source: Source::Drawn {
            process: ArrivalProcess::Poisson,
            popularity: Popularity::Equal,
            rate,
            requests,
        },
        seed: 1,
        policy: Policy::Deferred,
        drop: DropPolicy::window(Target::Own),
        delays: Delays::default(),
        early: 0.05,
        eager_from: None,
    }
}

fn cluster(pod: Scenario, pods: usize, routing: Routing) -> Cluster {
    Cluster {
        pod,
        slowness: vec![1.0; pods],
        routing,
        hop: Nanos(0),
        is_forwarding: false,
        failures: None,
        routers: 1,
        report_every: Nanos(20 * MS),
        weigh_every: Nanos(100 * MS),
        blackout: Nanos(200 * MS),
    }
}

fn policies() -> [(Policy, DropPolicy); 3] {
    [
        (Policy::Deferred, DropPolicy::window(Target::Own)),
        (Policy::Eager, DropPolicy::window(Target::Half)),
        (
            Policy::Auto(albacore_batching::Prefer::ShortWaits),
            DropPolicy::Auto,
        ),
    ]
}

#[test]
fn one_pod_without_hops_is_the_simulation_of_one_pod() {
    for (policy, drop) in policies() {
        let mut pod = scenario(8, 5400.0, 30_000);
        (pod.policy, pod.drop) = (policy, drop);
        let alone = run_alone(&pod);
        assert!(alone.bad > 0);
        for routing in Routing::ALL {
            let mut cluster = cluster(pod.clone(), 1, routing);
            cluster.is_forwarding = true;
            assert_eq!(cluster.run().unwrap().figures, alone, "{routing:?}");
        }
    }
}

#[test]
fn a_central_scheduler_has_the_workers_of_all_pods_a_hop_away() {
    let mut central = cluster(scenario(2, 5400.0, 30_000), 4, Routing::Central);
    central.hop = Nanos(MS / 5);
    let mut alone = scenario(8, 5400.0, 30_000);
    alone.delays.control = Nanos(MS / 5);
    assert_eq!(central.run().unwrap().figures, run_alone(&alone));
}

#[test]
fn a_listed_source_is_refused() {
    let mut pod = scenario(1, 1.0, 1);
    pod.source = Source::Listed(Vec::new());
    let cluster = cluster(pod, 2, Routing::Random);
    assert_eq!(
        (cluster.run(), cluster.goodput(0.99, &mut |_| ())),
        (None, 0.0)
    );
}

prop_compose! {
    fn failures()(every in 5..200_u64, down in 0..300_u64, notice in 0..20_u64, is_retried: bool) -> Failures {
        Failures {
            every: Nanos(every * MS),
            down: Nanos(down * MS),
            notice: Nanos(notice * MS),
            is_retried,
        }
    }
}

prop_compose! {
    fn clusters()(
        slowness in prop::collection::vec(prop::sample::select(vec![1.0, 1.0, 3.0]), 1..6),
        routing in prop::sample::select(Routing::ALL.to_vec()),
        (policy, drop) in prop::sample::select(policies().to_vec()),
        hop in 0..2_000_u64,
        is_forwarding: bool,
        failures in prop::option::of(failures()),
        (workers, routers) in (1_usize..4, 1_usize..4),
        load in 0.3..1.6_f64,
        seed: u16,
    ) -> Cluster {
        let rate = load * 600.0 * (workers * slowness.len()) as f64;
        let pod = Scenario { seed: seed.into(), policy, drop, ..scenario(workers, rate, 2000) };
        let cluster = cluster(pod, 1, routing);
        let hop = Nanos(hop * 1000);
        Cluster { slowness, hop, is_forwarding, failures, routers, ..cluster }
    }
}

proptest! {
    #[test]
    fn every_request_ends_once_and_equal_seeds_give_equal_runs(cluster in clusters()) {
        let done = cluster.run().unwrap();
        prop_assert_eq!(cluster.run(), Some(done));
        prop_assert_eq!(done.figures.offered, 2000);
        prop_assert_eq!(done.figures.bad, done.late + done.refused + done.lost);
        prop_assert_eq!(done.figures.offered, done.in_time + done.figures.bad);
        prop_assert_eq!(done.late, 0, "no scheduler starts what would be late");
        prop_assert!(done.forwarded <= done.figures.offered && done.retried <= done.figures.offered);
        let is_forwarding = cluster.is_forwarding && cluster.routing != Routing::Central;
        prop_assert!(is_forwarding || done.forwarded == 0);
        let is_retried = cluster.failures.is_some_and(|failures| failures.is_retried);
        prop_assert!(is_retried || done.retried == 0);
        prop_assert!(cluster.failures.is_some() || done.lost == 0);
    }
}

#[test]
fn no_request_is_forwarded_twice() {
    // Between bursts both pods report capacity, and during a burst neither has any: a request that
    // bounced between them would do so more than a hundred times.
    let mut pod = scenario(1, 700.0, 20_000);
    if let Source::Drawn { process, .. } = &mut pod.source {
        *process = ArrivalProcess::Gamma { shape: 0.05 };
    }
    let mut bursts = cluster(pod, 2, Routing::RoundRobin);
    bursts.is_forwarding = true;
    bursts.hop = Nanos(MS / 10);
    bursts.report_every = Nanos(40 * MS);
    let done = bursts.run().unwrap();
    let share = done.forwarded as f64 / done.figures.offered as f64;
    assert!((0.05..1.0).contains(&share), "{done:?}");
}

#[test]
fn central_is_the_best_of_equal_pods_and_forwarding_helps_random_routing() {
    let goodput = |routing, is_forwarding| {
        let mut cluster = cluster(scenario(2, 1.0, 60_000), 4, routing);
        cluster.is_forwarding = is_forwarding;
        cluster.goodput(0.99, &mut |_| ())
    };
    let central = goodput(Routing::Central, false);
    assert!((central / 5321.0 - 1.0).abs() < 0.02, "{central}");
    for routing in Routing::ALL {
        let pods = goodput(routing, false);
        assert!(pods <= central * 1.01, "{routing:?}: {pods} of {central}");
    }
    let (alone, forwarded) = (
        goodput(Routing::Random, false),
        goodput(Routing::Random, true),
    );
    assert!(forwarded > alone, "{forwarded} {alone}");
}

#[test]
fn load_aware_routing_spares_a_slow_pod() {
    let bad_rate = |routing, (policy, drop)| {
        let mut pod = scenario(2, 3000.0, 60_000);
        (pod.policy, pod.drop) = (policy, drop);
        let mut cluster = cluster(pod, 4, routing);
        cluster.slowness[0] = 2.0;
        cluster.run().unwrap().figures.bad_rate
    };
    let [deferred, eager, _] = policies();
    for (routing, rules) in [
        (Routing::Central, deferred),
        (Routing::OrcaWork, deferred),
        // If requests are deferred, their number does not reflect a pod's speed.
        (Routing::LeastRequest, eager),
    ] {
        let (aware, even) = (
            bad_rate(routing, rules),
            bad_rate(Routing::RoundRobin, rules),
        );
        assert!(aware < even * 0.8, "{routing:?}: {aware} {even}");
    }
}

#[test]
fn retries_recover_requests_lost_in_a_failure() {
    let lost = |is_retried| {
        let mut cluster = cluster(scenario(2, 2000.0, 40_000), 4, Routing::LeastRequest);
        cluster.failures = Some(Failures {
            every: Nanos(500 * MS),
            down: Nanos(200 * MS),
            notice: Nanos(MS),
            is_retried,
        });
        let done = cluster.run().unwrap();
        (done.lost, done.retried)
    };
    let ((once, _), (again, retried)) = (lost(false), lost(true));
    assert!(
        once > 100 && again < once && retried >= once,
        "{once} {again} {retried}"
    );
}

#[test]
fn weights_wait_for_the_blackout_and_a_pod_without_one_has_the_mean() {
    let mut known = KnownPods::new(3);
    let report = |weight| Report {
        open: 0,
        answers_after: Vec::new(),
        weight,
    };
    known.reported(0, report(Some(1e-6)), Nanos(0));
    known.reported(1, report(Some(3e-6)), Nanos(0));
    known.reported(1, report(None), Nanos(5));
    let (mut router, mut random) = (Router::new(0, 3), Xoshiro256::new(1, 1));
    let mut shares = |known: &KnownPods| {
        let mut counts = [0; 3];
        for _ in 0..61 {
            let pod = router.choose(Routing::OrcaLoadFactor, known, &mut random, |_| 0);
            counts[pod.unwrap()] += 1;
        }
        counts
    };
    known.weigh(Nanos(10), Nanos(9));
    assert_eq!(shares(&known), [21, 20, 20]);
    known.weigh(Nanos(10), Nanos(10));
    assert_eq!(shares(&known), [10, 31, 20]);
    known.notice(1, false);
    known.weigh(Nanos(10), Nanos(11));
    assert_eq!(shares(&known), [30, 0, 31]);
}
