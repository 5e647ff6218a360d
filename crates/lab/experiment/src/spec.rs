//! File format of an experiment.
//!
//! ```yaml
//! name: article
//! workers: [2, 4, 6, 8, 12, 16]
//! threads: [2, 4, 6, 8, 12, 16]
//! policies: [kernel, round-robin, scatter, compact]
//! models:
//! - {name: small, file: small.ubj, features: 29}
//! requests:
//! - {rows: 500}
//! - {rows: 100, output: contribs}
//! load: {clientsPerWorker: 2}       # or {clients: 8}, or {rate: 1000}
//! trials: 5
//! window: 4s
//! quick: {workers: [2, 4], threads: [2, 4], trials: 3, window: 1s}
//! ```
//!
//! With `template` the server is a custom one: `command`, `args` and the values of `env` may
//! contain `{workers}`, `{threads}`, `{port}`, `{model}` and `{folder}`, the folder of the file;
//! and each request has a `path` to which its rows are sent as little-endian float32.

mod check;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ExperimentError;

/// Maximum size of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Maximum nesting depth of a file; a valid one has three levels.
const DEPTH_MAX: usize = 16;

/// An experiment: arms, settings and durations.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Spec {
    pub name: String,
    /// Folder of the file.
    #[serde(default)]
    pub folder: PathBuf,
    /// Equal seeds produce the same order of windows, arrivals and rows.
    #[serde(default = "seed")]
    pub seed: u64,
    /// Values of W; each is combined with each of `threads`.
    pub workers: Vec<u16>,
    /// Values of T, threads per worker.
    pub threads: Vec<u16>,
    pub policies: Vec<Policy>,
    pub models: Vec<Model>,
    pub requests: Vec<RequestKind>,
    pub load: LoadSpec,
    /// Windows per setting and arm.
    pub trials: u32,
    /// Length of a window.
    pub window: TimeSpan,
    /// Unmeasured load before each window.
    #[serde(default = "settle")]
    pub settle: TimeSpan,
    /// The time by which policies are compared.
    #[serde(default)]
    pub time: ComparedTime,
    /// Answers later than this do not count in goodput; `None`: all answers count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<TimeSpan>,
    /// A custom server instead of the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// Overrides for `--quick`.
    #[serde(default, skip_serializing)]
    pub quick: Option<Quick>,
}

/// Placement policy of threads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The kernel schedules freely.
    Kernel,
    RoundRobin,
    /// Albacore's plan, threads of a worker far apart.
    Scatter,
    /// Albacore's plan, threads of a worker close together.
    Compact,
    /// `OMP_PROC_BIND=spread`, with a custom server.
    BindSpread,
    /// `OMP_PROC_BIND=close`, with a custom server.
    BindClose,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub name: String,
    /// Relative to the folder of the experiment's file.
    pub file: PathBuf,
    /// Features per row.
    pub features: usize,
}

/// A kind of request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestKind {
    /// Rows per request.
    pub rows: usize,
    /// For the built-in server: the requested output; `None`: the model's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// For a custom server: the path to which rows are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl RequestKind {
    /// Name in results: rows and output or path.
    #[must_use]
    pub fn name(&self) -> String {
        let path = self.path.as_deref().map(|path| path.trim_matches('/'));
        let what = path.or(self.output.as_deref()).unwrap_or("output");
        format!("{} {what}", self.rows)
    }
}

/// Load of a window: exactly one field is set.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct LoadSpec {
    /// Closed loop: number of clients per worker, each of which sends after its previous answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients_per_worker: Option<u16>,
    /// Closed loop: total number of clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<u16>,
    /// Open loop: requests per second, independent of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

/// The time by which policies are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComparedTime {
    /// From the intended send time to the last byte of the answer.
    #[default]
    Latency,
    /// The metric `run` of the server's `Server-Timing` header: excludes queueing in front of it.
    Server,
}

/// A custom server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    pub command: Vec<String>,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: Vec<Variable>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    pub name: String,
    pub value: String,
}

/// Overrides for a run of minutes instead of hours.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quick {
    pub workers: Option<Vec<u16>>,
    pub threads: Option<Vec<u16>>,
    pub policies: Option<Vec<Policy>>,
    /// Names of the selected models.
    pub models: Option<Vec<String>>,
    pub requests: Option<Vec<RequestKind>>,
    pub trials: Option<u32>,
    pub window: Option<TimeSpan>,
}

/// A duration, written as `500ms`, `4s` or `1m`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeSpan(pub Duration);

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let end = text
            .find(|c: char| c.is_ascii_alphabetic())
            .unwrap_or(text.len());
        let factor = match &text[end..] {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            _ => f64::NAN,
        };
        let seconds = text[..end].trim().parse::<f64>().unwrap_or(f64::NAN) * factor;
        let length = Duration::try_from_secs_f64(seconds).ok();
        length.map(Self).ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?} is not a time: write 500ms, 4s or 1m"))
        })
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}ms", self.0.as_millis()))
    }
}

fn seed() -> u64 {
    1
}

fn settle() -> TimeSpan {
    TimeSpan(Duration::from_millis(300))
}

impl Spec {
    /// Reads and validates a file; applies its `quick` if `is_quick`.
    ///
    /// # Errors
    /// The file cannot be read, is not YAML, or a field is missing, unknown or has an invalid
    /// value.
    pub fn read(file: &Path, is_quick: bool) -> Result<Self, ExperimentError> {
        let failed = |source| ExperimentError::File {
            path: file.to_owned(),
            source,
        };
        let bytes = std::fs::metadata(file).map_err(failed)?.len();
        if bytes > FILE_BYTES_MAX {
            let what = format!("it has {bytes} bytes, more than {FILE_BYTES_MAX}");
            return Err(Self::invalid(file, what));
        }
        let text = std::fs::read_to_string(file).map_err(failed)?;
        let budget = serde_saphyr::budget! { max_depth: DEPTH_MAX };
        let options = serde_saphyr::options! { budget: budget, with_snippet: false };
        let mut spec: Self =
            serde_saphyr::from_str_with_options(&text, options).map_err(|error| {
                let error = error.without_snippet();
                let line = error.location().map_or(1, |place| place.line());
                let what = error.to_string();
                let what = what.lines().next().unwrap_or_default().to_owned();
                Self::invalid(file, format!("line {line}: {what}"))
            })?;
        let whole = std::path::absolute(file).map_err(failed)?;
        let folder = whole.parent().unwrap_or(Path::new("/"));
        if !spec.folder.as_os_str().is_empty() {
            let what = "folder: it is always that of the file: remove it".to_owned();
            return Err(Self::invalid(file, what));
        }
        spec.folder = folder.to_owned();
        for model in &mut spec.models {
            model.file = folder.join(&model.file);
        }
        let quick = spec.quick.take();
        if is_quick {
            let quick = quick.ok_or_else(|| {
                Self::invalid(
                    file,
                    "--quick: the file has no field quick: add it".to_owned(),
                )
            })?;
            spec.apply(quick);
        }
        spec.check().map_err(|what| Self::invalid(file, what))?;
        Ok(spec)
    }

    fn invalid(file: &Path, what: String) -> ExperimentError {
        ExperimentError::Spec {
            path: file.to_owned(),
            what,
        }
    }

    fn apply(&mut self, quick: Quick) {
        let Quick {
            workers,
            threads,
            policies,
            models,
            requests,
            trials,
            window,
        } = quick;
        self.workers = workers.unwrap_or_else(|| std::mem::take(&mut self.workers));
        self.threads = threads.unwrap_or_else(|| std::mem::take(&mut self.threads));
        self.policies = policies.unwrap_or_else(|| std::mem::take(&mut self.policies));
        self.requests = requests.unwrap_or_else(|| std::mem::take(&mut self.requests));
        self.trials = trials.unwrap_or(self.trials);
        self.window = window.unwrap_or(self.window);
        if let Some(kept) = models {
            self.models.retain(|model| kept.contains(&model.name));
        }
    }
}

#[cfg(test)]
mod tests;
