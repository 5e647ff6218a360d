//! Tests of which report a sample uses, of a pod without reports, and of a user's own server.

use std::time::Duration;

use albacore_trial::{
    Arm, LOAD_REPORT_PERIOD, LatencyHistogram, PodUsage, REPORT_PERIOD, REPORT_WAIT_MAX,
    TrialMetric,
};

use super::*;
use crate::pods_for_tests::{opted_in_pod, place, policy};

const WINDOW: Duration = Duration::from_secs(10);

fn desired(metric: TrialMetric) -> DesiredPod {
    let mut action = place(policy(1, 2));
    if let PodAction::Place { trial, .. } = &mut action {
        *trial = Some(TrialSpec {
            window: WINDOW,
            rounds: 8,
            arms: vec![Arm::Compact, Arm::None],
            metric,
        });
    }
    DesiredPod {
        pod: opted_in_pod("a", "u"),
        action,
    }
}

/// A node with one pod on trial whose server answers 1,000 requests between two reports.
struct Node {
    trials: Trials,
    metric: TrialMetric,
    now: Instant,
    answered: [u64; 2],
    usage: PodUsage,
}

impl Node {
    fn new(metric: TrialMetric) -> Self {
        let mut node = Self {
            trials: Trials::default(),
            metric,
            now: Instant::now(),
            answered: [0; 2],
            usage: PodUsage {
                processes: vec![1],
                ..PodUsage::default()
            },
        };
        node.arm();
        node
    }

    fn arm(&mut self) -> Arm {
        let mut desired = vec![desired(self.metric)];
        self.trials.apply(&mut desired, self.now);
        let PodAction::Place { policy, .. } = &desired[0].action else {
            panic!("{desired:?}")
        };
        Arm::of(policy)
    }

    fn advance(&mut self, latency: Option<LatencyHistogram>) -> bool {
        let latest = latency.map(|latency| ("u".to_owned(), latency));
        let latest: LatestLatency = latest.into_iter().collect();
        let reading = SubjectSnapshot {
            usage: self.usage.clone(),
            mapping: None,
        };
        let read = |_: &DesiredPod| Some(reading.clone());
        let desired = [desired(self.metric)];
        self.trials.advance(&desired, &latest, read, self.now)
    }

    /// Advances to the next sample and sends a report.
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
    for winner in [Arm::Scatter, Arm::Compact, Arm::None] {
        let mut node = Node::new(TrialMetric::Latency);
        while node.trials.facts("u").progress.is_some() {
            let period = node.trials.facts("u").report_period;
            assert_eq!(period, Some(REPORT_PERIOD));
            let is_fast = node.arm() == winner;
            node.report(is_fast);
        }
        assert_eq!(node.arm(), winner);
        let facts = node.trials.facts("u");
        assert_eq!(facts.withdrawn.is_some(), winner == Arm::None, "{facts:?}");
        assert_eq!(facts.decided.is_none(), winner == Arm::None, "{facts:?}");
        // From then on the load is observed, which no iteration of the loop waits for.
        assert_eq!(facts.report_period, Some(LOAD_REPORT_PERIOD));
        node.now = node.trials.next().unwrap();
        assert!(!node.advance(None) && !node.trials.is_waiting());
    }
}

#[test]
fn a_custom_server_is_judged_by_the_wait_time_of_its_threads() {
    let mut node = Node::new(TrialMetric::RunDelay);
    assert_eq!(node.trials.facts("u").report_period, None);
    while node.trials.facts("u").progress.is_some() {
        node.now = node.trials.next().unwrap();
        node.usage.cpu_micros += 1_000_000;
        node.usage.waiting_micros += match node.arm() {
            Arm::Compact => 10_000,
            _ => 200_000,
        };
        assert!(node.advance(None), "nothing is waited for");
    }
    assert_eq!(node.arm(), Arm::Compact);
    let text = node.trials.facts("u").decided.unwrap();
    let head = "trial: Compact instead of Scatter; time waited for a cpu (no latency) relative to";
    assert!(text.starts_with(head), "{text}");
}

#[test]
fn a_report_from_before_a_sample_is_due_does_not_count() {
    let mut node = Node::new(TrialMetric::Latency);
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
    let mut node = Node::new(TrialMetric::Latency);
    // bound: the arms of the first round
    while node.arm() != Arm::None {
        node.report(true);
    }
    for _ in 0..3 {
        if let Some(due) = node.trials.next() {
            node.now = due;
        }
        assert!(!node.advance(None));
        node.now += REPORT_WAIT_MAX;
        assert!(node.advance(None));
        assert_eq!(node.arm(), Arm::Scatter);
        let facts = node.trials.facts("u");
        assert!(facts.is_missing_reports && facts.withdrawn.is_none());
    }
    node.report(true);
    assert!(!node.trials.facts("u").is_missing_reports);
}

#[test]
fn a_node_that_only_observes_measures_nothing() {
    let mut node = Node::new(TrialMetric::Latency);
    node.report(true);
    let mut desired = vec![desired(TrialMetric::Latency)];
    if let PodAction::Place { policy, .. } = &mut desired[0].action {
        policy.enforcement = Enforcement::Observe;
    }
    node.trials.apply(&mut desired, node.now);
    assert_eq!(node.trials.facts("u"), TrialFacts::default());
    assert_eq!(node.trials.next(), None);
}
