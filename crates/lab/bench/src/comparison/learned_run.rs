//! A run after which costs are read from the server, so that the same server can be simulated with
//! other settings and at other rates.

use albacore_simulator::ServerScenario;

use super::server_metrics::ServerMetrics;
use crate::error::BenchError;
use crate::probe::{Bench, Probe};
use crate::schedule::Schedule;

/// Resource usage of a server during a run, from its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerUsage {
    /// CPU seconds of the front end.
    pub front_cpu: f64,
    /// Seconds in which workers had a batch, summed over workers.
    pub busy: f64,
    pub batches: u64,
    pub rows: u64,
}

#[derive(Debug)]
pub struct MeasuredRun {
    pub probe: Probe,
    pub usage: ServerUsage,
}

/// A run, and the scenario of the simulator that reproduces its server.
#[derive(Debug)]
pub struct LearnedRun {
    pub run: MeasuredRun,
    /// Its requests are those of the run.
    pub scenario: ServerScenario,
}

impl Bench {
    /// Runs the load; reads the server's counters before and after it.
    ///
    /// # Errors
    /// The run fails, or the server does not report its counters.
    pub fn probe_usage(&self, schedule: &Schedule) -> Result<MeasuredRun, BenchError> {
        let before = self.server_metrics()?;
        let probe = self.probe(schedule)?;
        let after = self.server_metrics()?;
        let usage = self.usage(&before, &after);
        Ok(MeasuredRun { probe, usage })
    }

    /// Runs the load and derives the costs of requests and batches.
    ///
    /// # Errors
    /// As [`Bench::compare`].
    pub fn learn(&self, schedule: &Schedule) -> Result<LearnedRun, BenchError> {
        let lone = self.measure_lone()?;
        let before = self.server_metrics()?;
        let probe = self.probe(schedule)?;
        let after = self.server_metrics()?;
        let scenario = self.scenario(&probe, &lone, &before, &after)?;
        let usage = self.usage(&before, &after);
        Ok(LearnedRun {
            run: MeasuredRun { probe, usage },
            scenario,
        })
    }

    /// Number of event loops of the server.
    ///
    /// # Errors
    /// The server does not report it.
    pub fn front_threads(&self) -> Result<usize, BenchError> {
        Ok(self.scheduling()?.front_threads)
    }

    fn usage(&self, before: &ServerMetrics, after: &ServerMetrics) -> ServerUsage {
        let queues = self.queues();
        let batches = queues
            .iter()
            .map(|queue| self.live_batches(*queue, before, after));
        let (batches, rows) = batches.fold((0, 0), |(batches, rows), of| {
            (batches + of.batches, rows + of.rows)
        });
        ServerUsage {
            front_cpu: after.growth(before, "process_cpu_seconds_total", &[]),
            busy: after.growth(before, "albacore_worker_busy_seconds_total", &[]),
            batches,
            rows,
        }
    }
}
