//! Compares a live run with its simulation.
//!
//! **Problem.** The simulator is given arrivals, l(b) = alpha b + beta, an objective and the costs
//! of requests in the front end. Is that enough to predict the loss of a live server, its batch
//! sizes and the idle time of its workers?
//!
//! **Approach.** The cost of a request in the front end is measured per class before the run, over
//! one connection. After the run the costs of batches that the server has learned are read from it.
//! Then the requests are simulated at the times at which they were sent ([`simulate_server`]),
//! under the server's policy.
//!
//! **Limits.** All models have the objective of the benchmark. A simulated reply is complete when
//! it is written, a live one when the client has read it. The effect of CPUs that server and client
//! share is included in the measured costs, but not simulated.

mod learned_run;
mod print;
pub(crate) mod server_metrics;
mod simulated;

use std::time::Duration;

use albacore_load::{Report, WireFormat};
use albacore_simulator::{BatchCounts, simulate_server};

use crate::error::BenchError;
use crate::mix::Class;
use crate::probe::{Bench, Probe};
use crate::schedule::Schedule;
use server_metrics::ServerMetrics;

pub use learned_run::{LearnedRun, MeasuredRun, ServerUsage};
pub use print::{heading, json, table};
pub use simulated::Fault;

/// Figures of a live or simulated run: of all requests, or of one class.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub requests: usize,
    /// Share of requests that were refused or late.
    pub bad_rate: f64,
    /// Mean rows of the batches of the class's queue; for all requests, of every batch.
    pub batch_rows: f64,
    pub p50: Duration,
    pub p99: Duration,
}

/// A run and its simulation.
#[derive(Debug)]
pub struct Comparison {
    pub probe: Probe,
    pub workers: usize,
    /// Live and simulated.
    pub all: [Figures; 2],
    /// Share of the workers' time without a batch, live and simulated.
    pub idle_share: [f64; 2],
    /// Per class of the mix: its name, and its live and simulated figures.
    pub classes: Vec<(String, [Figures; 2])>,
}

/// A queue of the server: one per model and class of outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueueId {
    model: usize,
    /// The kind under which the costs of its batches are reported.
    kind: &'static str,
}

impl QueueId {
    fn of(class: &Class) -> Self {
        let kind = match class.output.as_deref() {
            Some("contribs") => "contribs",
            Some("interactions") => "interactions",
            _ => "value",
        };
        let model = class.model;
        Self { model, kind }
    }

    /// The kinds of batches that this queue may contain.
    fn kinds(self) -> &'static [&'static str] {
        match self.kind {
            "contribs" => &["contribs"],
            "interactions" => &["interactions"],
            _ => &["value", "margin", "leaf"],
        }
    }
}

impl Bench {
    /// Runs the load and simulates it.
    ///
    /// # Errors
    /// The run fails, or the server does not report its counters.
    pub fn compare(&self, schedule: &Schedule) -> Result<Comparison, BenchError> {
        Ok(self.compare_with_faults(schedule, &[])?.0)
    }

    /// As [`Bench::compare`]; also simulates the same run with each of these faults.
    ///
    /// # Errors
    /// As there.
    pub fn compare_with_faults(
        &self,
        schedule: &Schedule,
        faults: &[Fault],
    ) -> Result<(Comparison, Vec<Comparison>), BenchError> {
        if self.target.wire == WireFormat::Grpc {
            let what = "expected http://HOST:PORT, from which metrics are read";
            return Err(BenchError::Usage(format!("{}: {what}", self.spec.url)));
        }
        let lone = self.measure_lone()?;
        let before = self.server_metrics()?;
        let probe = self.probe(schedule)?;
        let after = self.server_metrics()?;
        let scenario = self.scenario(&probe, &lone, &before, &after)?;
        let compare = |probe: Probe, fault: Option<Fault>| {
            let mut scenario = scenario.clone();
            if let Some(fault) = fault {
                fault.apply(&mut scenario);
            }
            self.comparison(probe, &scenario, schedule.length, (&before, &after))
        };
        let faulty = faults
            .iter()
            .map(|&fault| compare(probe.clone(), Some(fault)));
        let faulty = faulty.collect();
        Ok((compare(probe, None), faulty))
    }

    fn comparison(
        &self,
        probe: Probe,
        scenario: &albacore_simulator::ServerScenario,
        length: Duration,
        (before, after): (&ServerMetrics, &ServerMetrics),
    ) -> Comparison {
        let run = simulate_server(scenario);
        let samples = simulated::samples(&probe.samples, &run);
        let (report, by_class) = self.reports(&samples, length);
        let queues = self.queues();
        let live = queues
            .iter()
            .map(|queue| self.live_batches(*queue, before, after));
        let live: Vec<BatchCounts> = live.collect();
        let busy = after.growth(before, "albacore_worker_busy_seconds_total", &[]);
        let sent = probe.samples.iter().map(|sample| sample.sent);
        let span = sent.clone().max().unwrap_or_default() - sent.min().unwrap_or_default();
        let worker_time = span.as_secs_f64() * scenario.workers as f64;
        let rows = |batches: &[BatchCounts]| {
            let (count, rows) = batches.iter().fold((0, 0), |(count, rows), of| {
                (count + of.batches, rows + of.rows)
            });
            rows as f64 / (count as f64).max(1.0)
        };
        let figures = |report: &Report, batches: &[BatchCounts]| Figures {
            requests: report.sent,
            bad_rate: report.bad_rate,
            batch_rows: rows(batches),
            p50: report.p50,
            p99: report.p99,
        };
        let classes = self.classes.iter().enumerate().map(|(index, class)| {
            let queue = QueueId::of(class);
            let at = queues
                .iter()
                .position(|it| *it == queue)
                .unwrap_or_default();
            let figures = [
                figures(&probe.by_class[index], &live[at..=at]),
                figures(&by_class[index], &run.batches[at..=at]),
            ];
            (class.name.clone(), figures)
        });
        Comparison {
            workers: scenario.workers,
            all: [
                figures(&probe.report, &live),
                figures(&report, &run.batches),
            ],
            idle_share: [1.0 - busy / worker_time.max(1e-9), run.idle_share],
            classes: classes.collect(),
            probe,
        }
    }

    /// The queues that the mix uses.
    fn queues(&self) -> Vec<QueueId> {
        let mut queues = Vec::new();
        for queue in self.classes.iter().map(QueueId::of) {
            if !queues.contains(&queue) {
                queues.push(queue);
            }
        }
        queues
    }

    fn live_batches(
        &self,
        queue: QueueId,
        before: &ServerMetrics,
        after: &ServerMetrics,
    ) -> BatchCounts {
        let model = self.spec.models[queue.model].as_str();
        let grown = |name: &str| {
            let of_kind =
                |&kind: &&str| after.growth(before, name, &[("model", model), ("kind", kind)]);
            queue.kinds().iter().map(of_kind).sum::<f64>()
        };
        BatchCounts {
            batches: grown("albacore_batch_rows_count") as u64,
            rows: grown("albacore_batch_rows_sum") as u64,
            ..BatchCounts::default()
        }
    }
}
