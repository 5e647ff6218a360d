//! Which report a sample takes, and the trial of a pod without reports.

use std::time::Duration;

use super::*;
use crate::pods_for_tests::{labeled_pod, place, policy};
use crate::trial::LatencyHistogram;

const WINDOW: Duration = Duration::from_secs(10);

fn desired() -> DesiredPod {
    let mut action = place(policy(1, 1));
    if let PodAction::Place { trial, .. } = &mut action {
        *trial = Some(TrialSpec {
            window: WINDOW,
            pairs: 8,
        });
    }
    DesiredPod {
        pod: labeled_pod("a", "u"),
        action,
    }
}

/// A node of one pod on trial whose server answers 1,000 requests between two reports.
struct Node {
    trials: Trials,
    desired: Vec<DesiredPod>,
    now: Instant,
    answered: [u64; 2],
}

impl Node {
    fn new() -> Self {
        let mut node = Self {
            trials: Trials::default(),
            desired: vec![desired()],
            now: Instant::now(),
            answered: [0; 2],
        };
        node.trials.apply(&mut node.desired, node.now);
        node
    }

    fn has_plan(&mut self) -> bool {
        let mut desired = vec![desired()];
        self.trials.apply(&mut desired, self.now);
        let PodAction::Place { policy, .. } = &desired[0].action else {
            panic!("{desired:?}")
        };
        policy.placement != PlacementMethod::None
    }

    fn advance(&mut self, latency: Option<LatencyHistogram>) -> bool {
        let latest = latency.map(|latency| ("u".to_owned(), latency));
        let latest: LatestLatency = latest.into_iter().collect();
        let usage = PodUsage {
            processes: vec![1],
            ..PodUsage::default()
        };
        let usage = |_: &DesiredPod| Some(usage.clone());
        self.trials.advance(&self.desired, &latest, usage, self.now)
    }

    /// Advances to the next sample and reports.
    fn report(&mut self, is_fast: bool) {
        self.now = self.trials.next().unwrap();
        assert!(!self.advance(None), "a report is waited for");
        self.answered[usize::from(!is_fast)] += 1000;
        let [fast, slow] = self.answered;
        let all = fast + slow;
        let latency = vec![(0.001, fast), (0.004, all), (f64::INFINITY, all)];
        assert!(self.advance(Some(latency)));
    }
}

#[test]
fn the_reported_latency_decides_a_trial() {
    for is_faster_with_plan in [true, false] {
        let mut node = Node::new();
        while node.trials.progress("u").is_some() {
            let is_fast = node.has_plan() == is_faster_with_plan;
            node.report(is_fast);
        }
        assert_eq!(node.has_plan(), is_faster_with_plan);
        let withdrawn = node.trials.withdrawn("u");
        assert_eq!(withdrawn.is_none(), is_faster_with_plan, "{withdrawn:?}");
    }
}

#[test]
fn a_report_from_before_a_sample_is_due_does_not_count() {
    let mut node = Node::new();
    let early = || Some(vec![(f64::INFINITY, 7)]);
    assert!(!node.advance(early()) && !node.trials.is_waiting());
    node.now = node.trials.next().unwrap();
    assert!(!node.advance(early()), "it lay in the pipe");
    assert!(node.trials.is_waiting() && node.trials.next().is_none());
    assert!(node.advance(early()));
    let due = node.trials.next().unwrap();
    assert_eq!(due, node.now + WINDOW, "a whole window after it");
}

#[test]
fn without_reports_the_plan_stays_and_that_is_reported() {
    let mut node = Node::new();
    // Two windows; the third is the second one without the plan.
    for _ in 0..4 {
        node.report(true);
    }
    assert!(!node.has_plan());
    for _ in 0..3 {
        if let Some(due) = node.trials.next() {
            node.now = due;
        }
        assert!(!node.advance(None));
        node.now += REPORT_WAIT_MAX;
        assert!(node.advance(None));
        assert!(node.has_plan());
        assert!(node.trials.lacks_reports("u"));
        assert_eq!(node.trials.withdrawn("u"), None);
    }
    node.report(true);
    assert!(!node.trials.lacks_reports("u"));
}
