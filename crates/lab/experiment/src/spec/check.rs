//! Validation beyond field types: an error names field, value and a remedy.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Policy, Spec};

/// Maximum number of workers, and of threads per worker.
const COUNT_MAX: u16 = 256;

/// Maximum number of threads of a server.
const THREADS_MAX: u32 = 4_096;

const TRIALS_MAX: u32 = 1_000;

const ROWS_MAX: usize = 1 << 20;

/// Maximum number of values of a request: 256 MiB.
const VALUES_MAX: usize = 1 << 26;

const RATE_MAX: f64 = 1e6;

const CLIENTS_MAX: u16 = 1_024;

const WINDOW_MIN: Duration = Duration::from_millis(100);

const WINDOW_MAX: Duration = Duration::from_secs(600);

impl Spec {
    /// Validates the experiment.
    pub(super) fn check(&self) -> Result<(), String> {
        check_name("name", &self.name)?;
        check_counts("workers", &self.workers)?;
        check_counts("threads", &self.threads)?;
        let workers = self.workers.iter().max().copied().unwrap_or_default();
        let threads = self.threads.iter().max().copied().unwrap_or_default();
        if u32::from(workers) * u32::from(threads) > THREADS_MAX {
            return Err(format!(
                "workers and threads: {workers} x {threads} threads are more than {THREADS_MAX}"
            ));
        }
        self.check_policies()?;
        self.check_models()?;
        self.check_requests()?;
        self.check_load()?;
        if !(2..=TRIALS_MAX).contains(&self.trials) {
            return Err(format!(
                "trials: {} is out of range: write 2 to {TRIALS_MAX}; an interval needs two",
                self.trials
            ));
        }
        let window = self.window.0;
        if !(WINDOW_MIN..=WINDOW_MAX).contains(&window) {
            return Err(format!(
                "window: {window:?} is out of range: write 100ms to 10m"
            ));
        }
        if self.settle.0 > WINDOW_MAX {
            return Err(format!(
                "settle: {:?} is out of range: write at most 10m",
                self.settle.0
            ));
        }
        Ok(())
    }

    fn check_policies(&self) -> Result<(), String> {
        check_distinct("policies", &self.policies, |policy| format!("{policy:?}"))?;
        if self.policies.len() < 2 {
            return Err("policies: write at least two, or there is nothing to compare".to_owned());
        }
        let bound = [Policy::BindSpread, Policy::BindClose];
        if self.template.is_none() && self.policies.iter().any(|policy| bound.contains(policy)) {
            return Err(
                "policies: bind-spread and bind-close are for OpenMP servers: set template, or \
                 remove them"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn check_models(&self) -> Result<(), String> {
        check_distinct("models", &self.models, |model| model.name.clone())?;
        for (index, model) in self.models.iter().enumerate() {
            check_name(&format!("models[{index}].name"), &model.name)?;
            if model.features == 0 {
                return Err(format!(
                    "models[{index}].features: 0: write the number of values of a row"
                ));
            }
        }
        Ok(())
    }

    fn check_requests(&self) -> Result<(), String> {
        check_distinct("requests", &self.requests, super::RequestKind::name)?;
        let features = self.models.iter().map(|model| model.features).max();
        for (index, request) in self.requests.iter().enumerate() {
            let field = |name: &str| format!("requests[{index}].{name}");
            let rows = request.rows;
            let values = rows.saturating_mul(features.unwrap_or_default());
            if !(1..=ROWS_MAX).contains(&rows) || values > VALUES_MAX {
                return Err(format!(
                    "{}: {rows} is out of range: write 1 to {ROWS_MAX} rows, of at most \
                     {VALUES_MAX} values together",
                    field("rows")
                ));
            }
            match (&self.template, &request.path, &request.output) {
                (Some(_), Some(path), None) if path.starts_with('/') => {}
                (None, None, _) => {}
                (Some(_), ..) => {
                    return Err(format!(
                        "{}: a server of your own needs a path such as /predict, and no output",
                        field("path")
                    ));
                }
                (None, ..) => {
                    return Err(format!(
                        "{}: the built-in server has no path: write output instead",
                        field("path")
                    ));
                }
            }
        }
        Ok(())
    }

    fn check_load(&self) -> Result<(), String> {
        let load = &self.load;
        let set = [
            load.clients_per_worker.is_some(),
            load.clients.is_some(),
            load.rate.is_some(),
        ];
        if set.into_iter().filter(|&is_set| is_set).count() != 1 {
            return Err("load: write exactly one of clientsPerWorker, clients and rate".to_owned());
        }
        let clients = load.clients_per_worker.or(load.clients).unwrap_or(1);
        if !(1..=CLIENTS_MAX).contains(&clients) {
            return Err(format!("load: {clients} clients: write 1 to {CLIENTS_MAX}"));
        }
        let rate = load.rate.unwrap_or(1.0);
        if !(rate > 0.0 && rate <= RATE_MAX) {
            return Err(format!(
                "load.rate: {rate} is out of range: write more than 0 and at most {RATE_MAX} \
                 requests per second"
            ));
        }
        Ok(())
    }
}

fn check_name(field: &str, name: &str) -> Result<(), String> {
    let is_usual = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    match (1..=63).contains(&name.len()) && name.chars().all(is_usual) {
        true => Ok(()),
        false => Err(format!(
            "{field}: {name:?} is not a valid name: write 1 to 63 of a-z, 0-9, '-', '_' and '.'"
        )),
    }
}

fn check_counts(field: &str, counts: &[u16]) -> Result<(), String> {
    check_distinct(field, counts, u16::to_string)?;
    match counts.iter().find(|count| !(1..=COUNT_MAX).contains(count)) {
        Some(count) => Err(format!(
            "{field}: {count} is out of range: write 1 to {COUNT_MAX}"
        )),
        None => Ok(()),
    }
}

/// Rejects empty lists and duplicates.
fn check_distinct<T>(field: &str, list: &[T], name: impl Fn(&T) -> String) -> Result<(), String> {
    if list.is_empty() {
        return Err(format!(
            "{field}: the list is empty: write at least one item"
        ));
    }
    let mut seen = BTreeSet::new();
    match list
        .iter()
        .map(name)
        .find(|name| !seen.insert(name.clone()))
    {
        Some(name) => Err(format!("{field}: {name} appears twice: write it once")),
        None => Ok(()),
    }
}
