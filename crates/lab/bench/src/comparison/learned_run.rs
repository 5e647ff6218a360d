//! A run whose costs are read from the server afterwards, to simulate the same server with other
//! settings and at other rates.

use albacore_simulator::ServerScenario;

use super::server_metrics::ServerMetrics;
use crate::error::BenchError;
use crate::probe::{Bench, Probe};
use crate::schedule::Schedule;

/// What a server did during a run, from its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerUsage {
    /// Cpu seconds of the front end.
    pub front_cpu: f64,
    /// Seconds in which workers had a batch, all together.
    pub busy: f64,
    pub batches: u64,
    pub rows: u64,
}

#[derive(Debug)]
pub struct MeasuredRun {
    pub probe: Probe,
    pub usage: ServerUsage,
}

/// A run and the server that it was on as a scenario of the simulator.
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

    /// Runs the load and learns what requests and batches cost.
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

    /// The event loops of the server.
    ///
    /// # Errors
    /// It does not report them.
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
