//! Metrics and state of a server, from `/metrics` and `/albacore/v1/state`.

use std::time::Duration;

use albacore_batching::deadlines::Cost;
use albacore_batching::{BatchingParams, DEFAULT_WEIGHT, Policy, Prefer};
use albacore_load::get;
use albacore_statistics::metric_sum;
use serde_json::Value;

use crate::error::BenchError;
use crate::probe::Bench;

/// The text of `/metrics`.
#[derive(Debug)]
pub(crate) struct ServerMetrics(String);

/// Scheduling settings of a server.
#[derive(Clone, Debug)]
pub(super) struct Scheduling {
    pub(super) workers: usize,
    pub(super) front_threads: usize,
    pub(super) batching: BatchingParams,
    /// Per model of the benchmark.
    pub(super) weights: Vec<u32>,
}

/// Cost of the batches of a queue, as learned by the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Learned {
    /// The fitted line, and the line with the safety margin.
    pub(super) line: Cost,
    pub(super) safe: Cost,
    /// Mean deviation from the line, relative to it.
    pub(super) error: f64,
}

impl ServerMetrics {
    /// Sum of a metric over the series that have all these labels; `None` if no series has them.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        metric_sum(&self.0, name, labels)
    }

    /// Increase of a counter since `before`.
    pub(super) fn growth(&self, before: &Self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let of = |metrics: &Self| metrics.sum(name, labels).unwrap_or(0.0);
        of(self) - of(before)
    }

    /// Learned cost of a model's batches of this kind.
    pub(super) fn learned(&self, model: &str, kind: &str) -> Option<Learned> {
        let of = |name: &str| self.sum(name, &[("model", model), ("kind", kind)]);
        let alpha = of("albacore_batch_alpha_seconds")? * 1e9;
        let beta = of("albacore_batch_beta_seconds")? * 1e9;
        let margin = of("albacore_batch_margin")?;
        Some(Learned {
            line: Cost::new(alpha, beta),
            safe: Cost::new(alpha * margin, beta * margin),
            error: of("albacore_batch_error")?,
        })
    }
}

impl Bench {
    fn fetch(&self, path: &str) -> Result<String, BenchError> {
        let url = format!("{}{path}", self.spec.url.trim_end_matches('/'));
        let asked = get(self.target.address, path);
        let (status, body) = asked.map_err(|source| BenchError::Fetch {
            url: url.clone(),
            source,
        })?;
        let body = String::from_utf8(body).ok().filter(|_| status == 200);
        body.ok_or_else(|| {
            BenchError::Failed(format!(
                "{url}: expected UTF-8 text with status 200, got status {status}"
            ))
        })
    }

    pub(super) fn server_metrics(&self) -> Result<ServerMetrics, BenchError> {
        Ok(ServerMetrics(self.fetch("/metrics")?))
    }

    pub(super) fn scheduling(&self) -> Result<Scheduling, BenchError> {
        let path = "/albacore/v1/state";
        let state: Value = serde_json::from_str(&self.fetch(path)?).unwrap_or_default();
        let batching = &state["batching"];
        let policy = match batching["policy"].as_str() {
            Some("deferred") => Some(Policy::Deferred),
            Some("eager") => Some(Policy::Eager),
            Some("auto") => batching["prefer"]
                .as_str()
                .and_then(Prefer::from_name)
                .map(Policy::Auto),
            Some("timeout") => batching["max_delay_us"].as_u64().map(|delay| {
                let delay = Duration::from_micros(delay);
                Policy::Timeout { delay }
            }),
            _ => None,
        };
        let number = |value: &Value| {
            let number = value.as_u64().filter(|&number| number > 0)?;
            usize::try_from(number).ok()
        };
        let model_state = |name: &String| {
            let models = state["models"].as_array();
            let mut models = models.into_iter().flatten();
            models.find(|model| model["name"] == **name)
        };
        for name in &self.spec.models {
            let own = model_state(name).map_or(&Value::Null, |model| &model["batching_params"]);
            if !own.is_null() && own != batching {
                let what = "it has batching parameters of its own, which are not simulated";
                return Err(BenchError::Failed(format!("model {name}: {what}")));
            }
        }
        let weights = self.spec.models.iter().map(|name| {
            let weight = model_state(name).and_then(|model| model["weight"].as_u64());
            let weight = weight.and_then(|weight| u32::try_from(weight).ok());
            weight.unwrap_or(DEFAULT_WEIGHT)
        });
        let scheduling = || {
            Some(Scheduling {
                workers: number(&state["workers"]["alive"])?,
                front_threads: number(&state["front"]["threads"])?,
                batching: BatchingParams {
                    policy: policy?,
                    batch_rows_max: number(&batching["max_rows"])?,
                    window: batching["window_us"].as_u64().map(Duration::from_micros),
                    queue_rows_max: number(&state["queue"]["max_rows"])?,
                },
                weights: weights.collect(),
            })
        };
        scheduling().ok_or_else(|| {
            let what = "it does not report all of workers, front-end threads, policy and bounds";
            BenchError::Failed(format!("{}{path}: {what}", self.spec.url))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_was_absent_grows_from_zero() {
        let metrics = ServerMetrics("albacore_y 0.5\n".to_owned());
        let before = ServerMetrics(String::new());
        assert_eq!(metrics.growth(&before, "albacore_y", &[]), 0.5);
    }
}
