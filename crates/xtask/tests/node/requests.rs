//! Requests at a constant mean rate during an event, and their outcomes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use albacore_load::{
    InferRequest, Load, Outcome, Request, Sample, Shape, WireFormat, drive, poisson,
};

use crate::rig::Rig;

/// Columns of examples/fraud.ubj.
const FEATURES: usize = 61;

/// Requests per second: a low load for three pods, so that no failure is caused by overload.
const RATE: f64 = 100.0;

/// The load is sent in parts of this length until the event is over.
const PART: Duration = Duration::from_secs(5);

/// More than the requests that arrive within the objective: with `IdleWorkers` a server may take
/// that long, and a request that waits for a connection would count as late.
const CONNECTIONS: usize = 256;

/// Failures that are printed one by one.
const FAILURES_MAX: usize = 10;

/// The objective of the deployment.
const OBJECTIVE: Duration = Duration::from_secs(1);

/// Requests to one of three pods within a second, the time that two health checks take.
pub(crate) const SENT_UNTIL_NOTICED: usize = 34;

/// Duration of the load without an event.
pub(crate) const SETTLE: Duration = Duration::from_secs(10);

pub(crate) struct Requests(Request);

/// Outcomes of the requests during an event.
pub(crate) struct Outcomes {
    what: String,
    samples: Vec<Sample>,
}

impl Requests {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let values: Vec<f32> = (0..FEATURES).map(|at| (at % 50) as f32).collect();
        let call = InferRequest {
            model: "fraud",
            input: "input",
            output: None,
            values: &values,
            features: FEATURES,
        };
        Self(call.request(WireFormat::Json, address))
    }

    /// Sends requests until `event` has returned.
    pub(crate) fn during(&self, rig: &Rig, what: &str, event: impl FnOnce()) -> Outcomes {
        let is_over = AtomicBool::new(false);
        let samples = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let (start, mut samples) = (Instant::now(), Vec::new());
                while !is_over.load(Ordering::Relaxed) {
                    let begin = start.elapsed();
                    let sent = self.send(rig, samples.len() as u64).into_iter();
                    samples.extend(sent.map(|sample| Sample {
                        intended: begin + sample.intended,
                        ..sample
                    }));
                }
                samples
            });
            let happened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(event));
            is_over.store(true, Ordering::Relaxed);
            let samples = sending.join().unwrap();
            match happened {
                Ok(()) => samples,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        let outcomes = Outcomes {
            what: what.to_owned(),
            samples,
        };
        println!("         {}", outcomes.line());
        outcomes.failures().take(FAILURES_MAX).for_each(|sample| {
            let (at, latency) = (sample.intended.as_secs_f64(), sample.latency.as_secs_f64());
            let status = sample.status;
            println!("         sent at {at:.3} s, failed after {latency:.3} s: status {status}");
        });
        outcomes
    }

    fn send(&self, rig: &Rig, seed: u64) -> Vec<Sample> {
        let load = Load {
            requests: vec![self.0.clone()],
            shape: Shape::Open(poisson(RATE, PART, seed)),
            connections: CONNECTIONS,
        };
        rig.node.within(|| drive(load)).unwrap().unwrap()
    }
}

impl Outcomes {
    fn count(&self, is_counted: impl Fn(Outcome) -> bool) -> usize {
        let outcomes = self.samples.iter().map(|of| Outcome::of(of, OBJECTIVE));
        outcomes.filter(|&outcome| is_counted(outcome)).count()
    }

    /// Number of requests that were sent.
    pub(crate) fn sent(&self) -> usize {
        self.samples.len()
    }

    fn failed(&self) -> usize {
        self.failures().count()
    }

    fn failures(&self) -> impl Iterator<Item = &Sample> {
        let is_answered = |of| matches!(of, Outcome::Good | Outcome::Late);
        let samples = self.samples.iter();
        samples.filter(move |&sample| !is_answered(Outcome::of(sample, OBJECTIVE)))
    }

    fn line(&self) -> String {
        let longest = self.samples.iter().map(|sample| sample.latency).max();
        let number = |wanted| self.count(|outcome| outcome == wanted);
        format!(
            "{}: {} requests, {} late, {} shed, {} unavailable, {} failed, {} unanswered, the longest {:.1} s",
            self.what,
            self.samples.len(),
            number(Outcome::Late),
            number(Outcome::Shed),
            number(Outcome::Unavailable),
            number(Outcome::Failed),
            number(Outcome::Unanswered),
            longest.unwrap_or_default().as_secs_f64(),
        )
    }

    #[track_caller]
    pub(crate) fn assert_none_failed(&self) {
        self.assert_failed_at_most(0);
    }

    #[track_caller]
    pub(crate) fn assert_failed_at_most(&self, most: usize) {
        assert!(!self.samples.is_empty(), "{}", self.what);
        assert!(self.failed() <= most, "{}, at most {most}", self.line());
    }
}
