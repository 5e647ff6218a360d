//! Transient changes of the counts do not change a placement.

use std::time::Duration;

use albacore_api::PlaceAnnotation;
use proptest::prelude::*;

use super::*;
use crate::opted_in_pod::OptIn;
use crate::pods_for_tests::{opted_in_pod, place, policy};

/// A pod whose annotation omits the counts that are 0 here.
fn desired(workers: u16, threads: u16) -> DesiredPod {
    let mut pod = opted_in_pod("a", "u");
    pod.opt_in = OptIn::Annotation {
        annotation: PlaceAnnotation::read("{}"),
        omp_threads: None,
    };
    let source = |number: u16| match number {
        0 => CountSource::ProcessTree,
        _ => CountSource::Annotation,
    };
    let mut action = place(policy(workers.max(1), threads.max(1)));
    if let PodAction::Place { counts, .. } = &mut action {
        *counts = CountSources::Annotation {
            workers: source(workers),
            threads: source(threads),
            are_known: workers > 0 && threads > 0,
        };
    }
    DesiredPod { pod, action }
}

fn shape(workers: u16, threads: u16) -> ServerShape {
    ServerShape { workers, threads }
}

struct Node {
    counts: DetectedCounts,
    began: Instant,
    pod: DesiredPod,
}

impl Node {
    fn new(pod: DesiredPod) -> Self {
        Self {
            counts: DetectedCounts::default(),
            began: Instant::now(),
            pod,
        }
    }

    /// Records a shape at a second; returns the shape in force afterwards.
    fn observe(&mut self, second: u64, seen: ServerShape) -> Option<(u16, u16)> {
        let now = self.began + Duration::from_secs(second);
        let mut pods = [self.pod.clone()];
        self.counts.apply(&mut pods);
        self.counts.update(&pods, |_| Some(seen), now);
        self.in_force()
    }

    fn in_force(&self) -> Option<(u16, u16)> {
        let mut pods = [self.pod.clone()];
        self.counts.apply(&mut pods);
        match &pods[0].action {
            PodAction::Place { policy, .. } if policy.enforcement == Enforcement::Enforce => {
                Some((policy.workers, policy.threads))
            }
            _ => None,
        }
    }
}

#[test]
fn counts_come_into_force_once_they_are_stable() {
    let mut node = Node::new(desired(0, 0));
    assert_eq!(node.observe(0, shape(1, 1)), None, "observed until then");
    assert_eq!(node.observe(4, shape(4, 1)), None);
    assert_eq!(node.observe(13, shape(4, 1)), None);
    assert_eq!(node.observe(14, shape(4, 1)), Some((4, 1)));
    // The first requests spawn the pools.
    assert_eq!(node.observe(20, shape(4, 3)), Some((4, 1)));
    assert_eq!(node.observe(79, shape(4, 3)), Some((4, 1)));
    assert_eq!(node.observe(80, shape(4, 3)), Some((4, 3)));
    // A replaced worker computes with one thread for a long time.
    assert_eq!(node.observe(90, shape(3, 3)), Some((4, 3)));
    assert_eq!(node.observe(100, shape(4, 1)), Some((4, 3)));
    assert_eq!(node.observe(500, shape(4, 1)), Some((4, 3)), "threads stay");
    // Two workers fewer, permanently.
    assert_eq!(node.observe(510, shape(2, 3)), Some((4, 3)));
    assert_eq!(node.observe(570, shape(2, 3)), Some((2, 3)));
}

#[test]
fn requested_counts_are_never_replaced() {
    let mut node = Node::new(desired(2, 0));
    node.observe(0, shape(9, 5));
    assert_eq!(node.observe(10, shape(9, 5)), Some((2, 5)));
    let mut node = Node::new(desired(0, 7));
    node.observe(0, shape(9, 5));
    assert_eq!(
        node.observe(10, shape(9, 6)),
        Some((9, 7)),
        "threads are not counted"
    );
    let node = Node::new(desired(3, 4));
    assert_eq!(node.in_force(), Some((3, 4)));
}

#[test]
fn a_changed_container_or_annotation_restarts_detection() {
    for change in [
        |action: &mut PodAction| {
            if let PodAction::Place { container, .. } = action {
                *container = "other".to_owned();
            }
        },
        |action: &mut PodAction| {
            if let PodAction::Place { generation, .. } = action {
                *generation += 1;
            }
        },
    ] {
        let mut node = Node::new(desired(0, 0));
        node.observe(0, shape(2, 2));
        assert_eq!(node.observe(10, shape(2, 2)), Some((2, 2)));
        change(&mut node.pod.action);
        assert_eq!(node.observe(11, shape(2, 2)), None);
    }
}

#[test]
fn the_next_agent_adopts_the_reported_counts() {
    let report = |workers_from| PodPlacement {
        pod: "x/a".to_owned(),
        annotation: Some(AnnotatedPod {
            workers: Some(4),
            workers_from,
            threads: Some(2),
            threads_from: CountSource::ProcessTree,
            ..AnnotatedPod::default()
        }),
        ..PodPlacement::default()
    };
    let begin = |report| {
        let mut node = Node::new(desired(0, 0));
        node.counts.adopt_previous(&[report]);
        let pods = [node.pod.clone()];
        node.counts.update(&pods, |_| None, node.began);
        node.in_force()
    };
    assert_eq!(begin(report(CountSource::ProcessTree)), Some((4, 2)));
    let asked_then = begin(report(CountSource::Annotation));
    assert_eq!(asked_then, None, "another text of the annotation");
}

proptest! {
    #[test]
    fn counts_in_force_are_within_bounds_and_change_at_most_once_a_minute(
        requested in (0_u16..5, 0_u16..5),
        seen in proptest::collection::vec((1_u64..40, 1_u16..400, 1_u16..400), 1..40),
    ) {
        let (workers, threads) = requested;
        let mut node = Node::new(desired(workers, threads));
        let (mut second, mut before, mut changed_at) = (0, node.in_force(), None);
        for (pause, workers, threads) in seen {
            second += pause;
            let in_force = node.observe(second, shape(workers, threads));
            if in_force != before {
                let is_first = before.is_none();
                prop_assert!(is_first || changed_at.is_none_or(|at| second - at >= 60));
                (before, changed_at) = (in_force, Some(second));
            }
            if let Some((workers, threads)) = in_force {
                prop_assert!(workers <= WORKERS_MAX && threads <= THREADS_MAX);
                prop_assert!(u32::from(workers) * u32::from(threads) <= SLOTS_MAX);
                prop_assert!(requested.0 == 0 || requested.0 == workers);
                prop_assert!(requested.1 == 0 || requested.1 == threads);
            }
        }
    }
}
