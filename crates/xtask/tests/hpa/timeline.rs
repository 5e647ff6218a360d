//! The HPA's desired replicas over time, compared with the reported metrics and with the scaling
//! rule.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::adapter::Answer;
use crate::manifests::PODS_MAX;
use crate::rig::Rig;

/// Sync period of the HPA; 15 s by default.
pub(crate) const SYNC_PERIOD: Duration = Duration::from_secs(5);

/// Tolerance of the HPA for its ratio.
const TOLERANCE: f64 = 0.1;

/// Polling interval of the HPA.
const PERIOD: Duration = Duration::from_millis(500);

/// An observation of the HPA that differs from the previous one.
#[derive(Clone, Debug)]
struct Observation {
    at: Instant,
    desired: i64,
    /// Ready and desired pods, in the format of `kubectl get infd`.
    ready: String,
}

pub(crate) struct Timeline {
    start: Instant,
    observations: Vec<Observation>,
}

impl Timeline {
    /// Observes the HPA until `is_over`.
    pub(crate) fn watch(rig: &Rig, is_over: impl Fn() -> bool) -> Self {
        let start = Instant::now();
        let mut observations: Vec<Observation> = Vec::new();
        while !is_over() {
            let found = rig.kubectl(&["get", "hpa/fraud", "infd/fraud", "-o", "json"]);
            let at = Instant::now();
            let found: Value = serde_json::from_str(&found).unwrap();
            let hpa = &found["items"][0]["status"];
            let ready = found["items"][1]["status"]["ready"].as_str();
            observations.push(Observation {
                at,
                desired: hpa["desiredReplicas"].as_i64().unwrap(),
                ready: ready.unwrap_or_default().to_owned(),
            });
            std::thread::sleep(PERIOD);
        }
        Self {
            start,
            observations,
        }
    }

    /// A table of the adapter's answers during the run, each with the HPA's desired replicas and
    /// ready pods at that time.
    pub(crate) fn table(&self, answers: &[Answer]) -> String {
        let mut text = String::from(
            "| s | pods' factors | r | f | N/(1-r) | N(1-f) | sum of factors | desired | ready |\n\
             |---:|---|---:|---:|---:|---:|---:|---:|---|\n",
        );
        for answer in answers.iter().filter(|answer| answer.at >= self.start) {
            // The HPA has written its decision before it queries again.
            let until = answer.at + SYNC_PERIOD / 2;
            let Some(then) = self
                .observations
                .iter()
                .rfind(|observation| observation.at <= until)
            else {
                continue;
            };
            let advice = Advice::of(answer);
            let factors = answer.pods.iter().map(|pod| format!("{:.2}", pod.factor));
            let _ = writeln!(
                text,
                "| {:.0} | {} | {:.3} | {:.2} | {:.2} | {:.2} | {:.2} | {} | {} |",
                (answer.at - self.start).as_secs_f64(),
                factors.collect::<Vec<_>>().join(" "),
                advice.bad_rate,
                advice.idle_share,
                advice.more,
                advice.less,
                advice.sum,
                then.desired,
                then.ready,
            );
        }
        text
    }

    /// Asserts more pods at the peak, which remain while it lasts, and the minimum afterwards.
    pub(crate) fn assert_grows_and_shrinks(&self, peak: Duration) {
        let end_of_peak = self.start + peak;
        let at_peak = || {
            self.observations
                .iter()
                .filter(|observation| observation.at < end_of_peak)
        };
        let most = at_peak()
            .map(|observation| observation.desired)
            .max()
            .unwrap();
        assert!(most > 1, "no pod was added");
        let last = at_peak().next_back().unwrap();
        assert!(last.desired > 1, "{last:?}");
        assert!(
            last.ready.starts_with(&format!("{}/", last.desired)),
            "{last:?}"
        );
        let is_least =
            |observation: &Observation| observation.desired == 1 && observation.ready == "1/1";
        let mut after = self
            .observations
            .iter()
            .filter(|observation| observation.at >= end_of_peak);
        assert!(after.any(is_least), "{:?}", self.observations.last());
    }

    /// Asserts that each change of the replicas follows from the reported metrics, and is within
    /// the limits of the scaling rule for the counts of all pods: an increase up to N/(1-r),
    /// rounded up and with the HPA's tolerance, a decrease not below N(1-f).
    pub(crate) fn assert_within_advice(&self, answers: &[Answer]) {
        for (before, observation) in self
            .observations
            .iter()
            .zip(self.observations.iter().skip(1))
        {
            if observation.desired == before.desired {
                continue;
            }
            // The HPA queries, decides and writes; then an observation finds the change.
            let since = before.at - SYNC_PERIOD;
            let reported = answers
                .iter()
                .filter(|a| (since..observation.at).contains(&a.at));
            let reported: Vec<Advice> = reported.map(Advice::of).collect();
            let change = format!(
                "{} -> {}: {reported:?}",
                before.desired, observation.desired
            );
            let wanted = |sum: f64| ((sum - 1e-6).ceil() as i64).clamp(1, PODS_MAX);
            match observation.desired > before.desired {
                true => {
                    let follows = |a: &Advice| wanted(a.sum) == observation.desired;
                    assert!(reported.iter().any(follows), "{change}");
                    let is_within =
                        |a: &Advice| observation.desired <= wanted(a.more * (1.0 + TOLERANCE));
                    assert!(reported.iter().any(is_within), "{change}");
                }
                false => {
                    let is_within = |a: &Advice| observation.desired >= wanted(a.less);
                    assert!(
                        !reported.is_empty() && reported.iter().all(is_within),
                        "{change}"
                    );
                }
            }
        }
    }
}

/// The limits of the scaling rule, from the counts of all pods together.
#[derive(Debug)]
struct Advice {
    /// r: share of bad requests.
    bad_rate: f64,
    /// f: mean share of time in which workers are idle.
    idle_share: f64,
    /// N + N r/(1-r) = N/(1-r).
    more: f64,
    /// N - N f.
    less: f64,
    /// The sum of the pods' own factors, which the HPA computes from its average.
    sum: f64,
}

impl Advice {
    fn of(Answer { pods, .. }: &Answer) -> Self {
        let count = pods.len() as f64;
        let requests: u64 = pods.iter().map(|pod| pod.requests).sum();
        let bad: u64 = pods.iter().map(|pod| pod.bad).sum();
        let bad_rate = bad as f64 / requests.max(1) as f64;
        let idle_share = pods.iter().map(|pod| pod.idle_share).sum::<f64>() / count.max(1.0);
        Self {
            bad_rate,
            idle_share,
            more: count / (1.0 - bad_rate),
            less: count * (1.0 - idle_share),
            sum: pods.iter().map(|pod| pod.factor).sum(),
        }
    }
}
