//! Compares a live run with its simulation.
//!
//! **Problem.** The simulator knows only arrivals, l(b) = alpha b + beta and an objective. Is that
//! enough to predict what a live server loses, and how large its batches are?
//!
//! **Approach.** After each run the server is asked what it learned of l(b) and how many workers it
//! has. The same arrivals (process and rate, not the same times) are simulated under its policy,
//! and the bad share and the mean batch size of both are compared.
//!
//! **Limits.** One class of requests, because the mean of a mix is no model's. The simulated time
//! ends when a batch is done, the live one at the client; on one machine server and client compete
//! for cpus. The policy drops requests that would be late, the server runs them later: both count
//! as bad.

use albacore_batching::deadlines::{Cost, Delays};
use albacore_batching::{Nanos, Prefer};
use albacore_load::{WireFormat, get};
use albacore_simulator::{
    DropPolicy, Model, Policy, Popularity, Process, Scenario, Source, Target, Wait, run,
};
use serde_json::{Value, json};

use crate::error::BenchError;
use crate::mix::Class;
use crate::probe::{Bench, Probe};
use crate::schedule::{Arrivals, Schedule};

/// Requests of a simulation: a bad share of 1 % is then known to some hundredths.
const REQUESTS: u64 = 500_000;

/// How long before frontrun the window of `deferred` opens, as in the server.
const EARLY: f64 = 0.05;

/// Counters of a server and the costs that it has learned.
#[derive(Clone, Copy, Debug, Default)]
struct ServerCounters {
    batches: f64,
    rows: f64,
    alpha: f64,
    beta: f64,
}

/// Workers of a server and how it schedules, as its state reports them.
struct ServerScheduling {
    workers: u64,
    policy: Policy,
    drop: DropPolicy,
}

/// A run and its simulation.
#[derive(Debug)]
pub struct Comparison {
    pub probe: Probe,
    alpha: f64,
    beta: f64,
    workers: u64,
    /// Share of bad requests, live and simulated.
    bad: [f64; 2],
    /// Mean rows of a batch, live and simulated.
    rows: [f64; 2],
}

impl Bench {
    /// Runs the load and simulates it.
    ///
    /// # Errors
    /// The run fails, or the server does not report its counters.
    pub fn compare(&self, schedule: &Schedule) -> Result<Comparison, BenchError> {
        let [class] = &self.classes[..] else {
            let what = "--mix: one class of requests can be simulated: name one";
            return Err(BenchError::Usage(what.to_owned()));
        };
        if self.target.wire == WireFormat::Grpc {
            let what = "is asked for its metrics: http://HOST:PORT is due";
            return Err(BenchError::Usage(format!("{}: {what}", self.spec.url)));
        }
        let before = self.server_counters()?;
        let probe = self.probe(schedule)?;
        let after = self.server_counters()?;
        let scheduling = self.server_scheduling()?;
        let scenario = self.scenario(class, schedule.rate, after, &scheduling)?;
        let simulated = run(&scenario);
        let batches = (after.batches - before.batches).max(1.0);
        Ok(Comparison {
            alpha: after.alpha,
            beta: after.beta,
            workers: scheduling.workers,
            bad: [probe.report.bad_rate, simulated.bad_rate],
            rows: [
                (after.rows - before.rows) / batches,
                simulated.batch_mean * class.rows as f64,
            ],
            probe,
        })
    }

    fn scenario(
        &self,
        class: &Class,
        rate: f64,
        counters: ServerCounters,
        scheduling: &ServerScheduling,
    ) -> Result<Scenario, BenchError> {
        let process = match self.arrivals {
            Arrivals::Poisson => Process::Poisson,
            Arrivals::Gamma(shape) => Process::Gamma { shape },
            Arrivals::Recorded(_) => {
                let what = "--arrivals: recorded times are not simulated: poisson or gamma:SHAPE";
                return Err(BenchError::Usage(what.to_owned()));
            }
        };
        // A simulated request is one row with the cost of all rows of a live one.
        let cost = Cost::new(
            counters.alpha * 1e9 * class.rows as f64,
            counters.beta * 1e9,
        );
        let objective = Nanos(self.spec.objective.as_nanos() as u64);
        let model = Model {
            name: self.spec.model.clone(),
            cost,
            objective,
        };
        Ok(Scenario {
            workers: usize::try_from(scheduling.workers).unwrap_or(usize::MAX),
            models: vec![model],
            source: Source::Drawn {
                process,
                popularity: Popularity::Equal,
                rate,
                requests: REQUESTS,
            },
            seed: self.spec.seed,
            policy: scheduling.policy,
            drop: scheduling.drop,
            delays: Delays::default(),
            early: EARLY,
            eager_from: None,
        })
    }

    fn ask(&self, path: &str) -> Result<String, BenchError> {
        let url = format!("{}{path}", self.spec.url.trim_end_matches('/'));
        let asked = get(self.target.address, path);
        let (status, body) = asked.map_err(|source| BenchError::Look {
            url: url.clone(),
            source,
        })?;
        let body = String::from_utf8(body).ok().filter(|_| status == 200);
        body.ok_or_else(|| BenchError::Failed(format!("{url}: it answers {status}, no text")))
    }

    /// Reads the model's counters from `/metrics`. Of several kinds of outputs the costliest
    /// counts, which is the only one where one class is asked for.
    fn server_counters(&self) -> Result<ServerCounters, BenchError> {
        let text = self.ask("/metrics")?;
        let of_model = format!("model=\"{}\"", self.spec.model);
        let value = |name: &str| {
            let lines = text.lines().filter(|line| {
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with('{')) && line.contains(&of_model)
            });
            let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            values.reduce(f64::max)
        };
        let due = |name: &str| {
            value(name).ok_or_else(|| {
                let what = "the server has no such metric: is it albacore, and warm?";
                BenchError::Failed(format!("{}/metrics: {name}: {what}", self.spec.url))
            })
        };
        Ok(ServerCounters {
            batches: due("albacore_batch_rows_count")?,
            rows: due("albacore_batch_rows_sum")?,
            alpha: due("albacore_batch_alpha_seconds")?,
            beta: due("albacore_batch_beta_seconds")?,
        })
    }

    fn server_scheduling(&self) -> Result<ServerScheduling, BenchError> {
        let path = "/albacore/v1/state";
        let state: Value = serde_json::from_str(&self.ask(path)?).unwrap_or_default();
        let batching = &state["batching"];
        let policy = match batching["policy"].as_str() {
            Some("deferred") => Some(Policy::Deferred),
            Some("eager") => Some(Policy::Eager),
            Some("auto") => batching["prefer"]
                .as_str()
                .and_then(Prefer::from_name)
                .map(Policy::Auto),
            Some("timeout") => batching["max_delay_us"].as_u64().map(|delay| {
                let wait = Wait::Fixed(Nanos(delay.saturating_mul(1000)));
                Policy::Timeout(wait)
            }),
            _ => None,
        };
        let workers = state["workers"]["alive"].as_u64().filter(|&n| n > 0);
        let (Some(workers), Some(policy)) = (workers, policy) else {
            let what = "it reports no workers or no policy";
            return Err(BenchError::Failed(format!(
                "{}{path}: {what}",
                self.spec.url
            )));
        };
        let drop = match policy {
            Policy::Auto(_) => DropPolicy::Auto,
            _ => DropPolicy::window(Target::Half),
        };
        Ok(ServerScheduling {
            workers,
            policy,
            drop,
        })
    }
}

/// The header of the table.
pub fn heading() -> String {
    format!(
        "{:>10} {:>8} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7}\n",
        "offered/s",
        "workers",
        "alpha us",
        "beta us",
        "bad % l.",
        "bad % s.",
        "points",
        "rows l.",
        "rows s.",
        "error"
    )
}

/// A row of the table: live (l.), simulated (s.), and their difference.
pub fn row(comparison: &Comparison) -> String {
    let [bad, simulated_bad] = comparison.bad.map(|bad| bad * 100.0);
    let [rows, simulated_rows] = comparison.rows;
    let mark = match comparison.probe.is_behind {
        true => "  the generator was behind",
        false => "",
    };
    format!(
        "{:>10.0} {:>8} {:>10.3} {:>10.1} {bad:>9.3} {simulated_bad:>9.3} {:>+9.3} {rows:>9.2} \
         {simulated_rows:>9.2} {:>+6.1}%{mark}\n",
        comparison.probe.rate,
        comparison.workers,
        comparison.alpha * 1e6,
        comparison.beta * 1e6,
        simulated_bad - bad,
        (simulated_rows / rows.max(1e-9) - 1.0) * 100.0
    )
}

/// The comparison as JSON.
pub fn json(all: &[Comparison]) -> Value {
    let runs = all.iter().map(|comparison| {
        json!({
            "rate": comparison.probe.rate,
            "workers": comparison.workers,
            "alpha_us": comparison.alpha * 1e6,
            "beta_us": comparison.beta * 1e6,
            "bad_rate": comparison.bad[0],
            "simulated_bad_rate": comparison.bad[1],
            "batch_rows": comparison.rows[0],
            "simulated_batch_rows": comparison.rows[1],
            "is_behind": comparison.probe.is_behind,
        })
    });
    json!({ "runs": runs.collect::<Vec<_>>() })
}
