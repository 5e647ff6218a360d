//! The file of an experiment.
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
//! With `template` the server is the user's own: `command`, `args` and the values of `env` may
//! contain `{workers}`, `{threads}`, `{port}`, `{model}` and `{folder}`, which is that of the file;
//! and each request names a `path` to which its rows are sent as little-endian float32.

mod check;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ExperimentError;

/// Bytes of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Nesting of a file; a valid one has three levels.
const DEPTH_MAX: usize = 16;

/// What is compared, on what, and how long.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Spec {
    pub name: String,
    /// The folder of the file.
    #[serde(default)]
    pub folder: PathBuf,
    /// Equal seeds give the same order of windows, arrivals and rows.
    #[serde(default = "seed")]
    pub seed: u64,
    /// W, one server for each with each of `threads`.
    pub workers: Vec<u16>,
    /// T per worker.
    pub threads: Vec<u16>,
    pub policies: Vec<Policy>,
    pub models: Vec<Model>,
    pub requests: Vec<RequestKind>,
    pub load: LoadSpec,
    /// Windows of each setting.
    pub trials: u32,
    /// Length of a window.
    pub window: Length,
    /// Load before each window that is not measured.
    #[serde(default = "settle")]
    pub settle: Length,
    /// The time that policies are compared by.
    #[serde(default)]
    pub time: ComparedTime,
    /// Answers later than this are not counted in goodput; without it all answers are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<Length>,
    /// The user's own server in place of the built-in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    /// What `--quick` replaces.
    #[serde(default, skip_serializing)]
    pub quick: Option<Quick>,
}

/// Who decides where threads run.
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
    /// `OMP_PROC_BIND=spread`, of the user's own server.
    BindSpread,
    /// `OMP_PROC_BIND=close`, of the user's own server.
    BindClose,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub name: String,
    /// Relative to the folder of the experiment's file.
    pub file: PathBuf,
    /// Values of a row.
    pub features: usize,
}

/// What clients send.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestKind {
    /// Rows of a request.
    pub rows: usize,
    /// Of the built-in server: the output asked for; without it the model's value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Of the user's own server: where rows are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl RequestKind {
    /// The name in results: rows and what is asked for.
    #[must_use]
    pub fn name(&self) -> String {
        let path = self.path.as_deref().map(|path| path.trim_matches('/'));
        let what = path.or(self.output.as_deref()).unwrap_or("output");
        format!("{} {what}", self.rows)
    }
}

/// When requests are sent: exactly one is set.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct LoadSpec {
    /// Closed loop: so many clients for each worker, each sends after its previous answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients_per_worker: Option<u16>,
    /// Closed loop: so many clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<u16>,
    /// Open loop: requests a second, whatever the server does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

/// The time that policies are compared by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComparedTime {
    /// From the intended send time to the last byte of the answer.
    #[default]
    Latency,
    /// The metric `run` of the server's `Server-Timing` header: without queues in front of it.
    Server,
}

/// A server of the user's own.
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

/// Replacements for a run that takes minutes instead of hours.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quick {
    pub workers: Option<Vec<u16>>,
    pub threads: Option<Vec<u16>>,
    pub policies: Option<Vec<Policy>>,
    /// Names of models that are kept.
    pub models: Option<Vec<String>>,
    pub requests: Option<Vec<RequestKind>>,
    pub trials: Option<u32>,
    pub window: Option<Length>,
}

/// A length of time, written as `500ms`, `4s` or `1m`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Length(pub Duration);

impl<'de> Deserialize<'de> for Length {
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
            serde::de::Error::custom(format!("{text:?} is no time: write 500ms, 4s or 1m"))
        })
    }
}

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}ms", self.0.as_millis()))
    }
}

fn seed() -> u64 {
    1
}

fn settle() -> Length {
    Length(Duration::from_millis(300))
}

impl Spec {
    /// Reads and checks a file; with `is_quick` as its `quick` says.
    ///
    /// # Errors
    /// The file cannot be read, is no YAML, or a field is missing, unknown or has a bad value.
    pub fn read(file: &Path, is_quick: bool) -> Result<Self, ExperimentError> {
        let failed = |source| ExperimentError::File {
            path: file.to_owned(),
            source,
        };
        let bytes = std::fs::metadata(file).map_err(failed)?.len();
        if bytes > FILE_BYTES_MAX {
            let what = format!("it has {bytes} bytes: {FILE_BYTES_MAX} are taken");
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
            let what = "folder: it is that of the file: leave it out".to_owned();
            return Err(Self::invalid(file, what));
        }
        spec.folder = folder.to_owned();
        for model in &mut spec.models {
            model.file = folder.join(&model.file);
        }
        let quick = spec.quick.take();
        if is_quick {
            let quick = quick.ok_or_else(|| {
                Self::invalid(file, "--quick: the file has no quick: add one".to_owned())
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
