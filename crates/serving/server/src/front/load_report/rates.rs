//! Rates between two snapshots of the engine, and the load report computed from them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use albacore_engine::{LoadTotals, ModelLoadTotals};
use albacore_proto::orca::OrcaLoadReport;

/// Rates of one model, or of all models.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ModelRates {
    /// Empty for all models.
    pub(super) name: String,
    /// Work divided by the capacity of the ready workers, see
    /// [`albacore_engine::ModelLoadTotals::work`].
    pub(super) utilization: f64,
    pub(super) requests_per_second: f64,
    /// Late, refused and failed requests.
    pub(super) errors_per_second: f64,
    /// Mean time of the answered requests in the queue, milliseconds; `None` without such requests.
    pub(super) queue_wait_ms: Option<f64>,
}

/// Rates of all models of a server, and its load factor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rates {
    all: ModelRates,
    pub(super) models: Vec<ModelRates>,
    /// Load factor of the last minute, see [`albacore_batching::DeploymentLoad::factor`].
    load_factor: f64,
}

impl Rates {
    pub(super) fn between(old: &LoadTotals, new: &LoadTotals, load_factor: f64) -> Self {
        let old_models: HashMap<&str, &ModelLoadTotals> = old
            .models
            .iter()
            .map(|model| (model.name.as_str(), model))
            .collect();
        let none = ModelLoadTotals::default();
        let changes = new.models.iter().map(|model| {
            let before = old_models.get(model.name.as_str()).copied();
            change(before.unwrap_or(&none), model)
        });
        let changes: Vec<ModelLoadTotals> = changes.collect();
        let seconds = new.at.saturating_sub(old.at).as_secs_f64();
        let capacity = seconds * new.workers_ready.max(1) as f64;
        Self {
            all: ModelRates::new(&sum(&changes), seconds, capacity),
            models: changes
                .iter()
                .map(|model| ModelRates::new(model, seconds, capacity))
                .collect(),
            load_factor,
        }
    }

    /// Builds the report of the server, with named metrics for `models`.
    pub(super) fn report(&self, models: &[ModelRates]) -> OrcaLoadReport {
        let mut named = BTreeMap::from([("load_factor".to_owned(), rounded(self.load_factor))]);
        if let Some(wait) = self.all.queue_wait_ms {
            named.insert("queue_wait_ms".to_owned(), rounded(wait));
        }
        for model in models {
            let name = &model.name;
            named.insert(format!("{name}.utilization"), rounded(model.utilization));
            named.insert(format!("{name}.rps"), rounded(model.requests_per_second));
            named.insert(format!("{name}.eps"), rounded(model.errors_per_second));
            if let Some(wait) = model.queue_wait_ms {
                named.insert(format!("{name}.queue_wait_ms"), rounded(wait));
            }
        }
        OrcaLoadReport {
            application_utilization: rounded(self.all.utilization),
            rps_fractional: rounded(self.all.requests_per_second),
            eps: rounded(self.all.errors_per_second),
            named_metrics: named,
            ..OrcaLoadReport::default()
        }
    }
}

impl ModelRates {
    /// `capacity` is the time of all workers within `seconds`.
    fn new(change: &ModelLoadTotals, seconds: f64, capacity: f64) -> Self {
        let per = |count: f64, time: f64| match time > 0.0 {
            true => count / time,
            false => 0.0,
        };
        let wait = change.queue_wait.as_secs_f64() * 1e3;
        Self {
            name: change.name.clone(),
            utilization: per(change.work.as_secs_f64(), capacity),
            requests_per_second: per(change.requests as f64, seconds),
            errors_per_second: per(change.bad as f64, seconds),
            queue_wait_ms: (change.answered > 0).then(|| wait / change.answered as f64),
        }
    }
}

/// Difference between two snapshots of a model. The counters of a model that was removed and
/// declared again start at zero.
fn change(old: &ModelLoadTotals, new: &ModelLoadTotals) -> ModelLoadTotals {
    ModelLoadTotals {
        name: new.name.clone(),
        requests: new.requests.saturating_sub(old.requests),
        bad: new.bad.saturating_sub(old.bad),
        answered: new.answered.saturating_sub(old.answered),
        queue_wait: new.queue_wait.saturating_sub(old.queue_wait),
        work: new.work.saturating_sub(old.work),
    }
}

fn sum(models: &[ModelLoadTotals]) -> ModelLoadTotals {
    let count = |of: fn(&ModelLoadTotals) -> u64| models.iter().map(of).sum();
    let time = |of: fn(&ModelLoadTotals) -> Duration| models.iter().map(of).sum();
    ModelLoadTotals {
        name: String::new(),
        requests: count(|model| model.requests),
        bad: count(|model| model.bad),
        answered: count(|model| model.answered),
        queue_wait: time(|model| model.queue_wait),
        work: time(|model| model.work),
    }
}

/// Rounds to millionths, for short headers. Parsers reject a whole report that contains a number
/// that is not finite.
fn rounded(value: f64) -> f64 {
    match value.is_finite() {
        true => (value * 1e6).round() / 1e6,
        false => 0.0,
    }
}
