//! The content of a settings file.

use std::fmt;
use std::time::Duration;

use crate::digest::Digest;
use crate::limits::{BATCH_ROWS_DEFAULT, QUEUE_ROWS_DEFAULT};

/// The models that a server serves, and how it batches.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The models; at least one, names unique.
    pub models: Vec<Model>,
    pub batching: Batching,
    pub queue: Queue,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// Its name in request paths and metrics.
    pub name: String,
    pub source: Source,
    /// The expected digest of its file; `None`: any file is accepted.
    pub sha256: Option<Digest>,
    /// Boosting iterations that predict; `None`: those of the object that saved the file.
    pub iterations: Option<Iterations>,
    /// Its latency objective. Without one, nothing counts as late.
    pub slo: Option<Slo>,
    /// The outputs that its metadata advertises, each once; empty for the value alone.
    pub outputs: Vec<Output>,
}

/// An output of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    Output,
    Margin,
    Contribs,
    Interactions,
    /// The leaf of each tree.
    Leaf,
}

impl Output {
    const ALL: [Self; 5] = [
        Self::Output,
        Self::Margin,
        Self::Contribs,
        Self::Interactions,
        Self::Leaf,
    ];

    /// The name of its tensor.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Margin => "margin",
            Self::Contribs => "contribs",
            Self::Interactions => "interactions",
            Self::Leaf => "leaf",
        }
    }

    /// The output with this tensor name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|output| output.name() == name)
    }
}

/// Boosting iterations of a model's file that predict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Iterations {
    All,
    /// Up to the best iteration that the file records.
    Best,
    /// Those from `begin` up to `end`, exclusive; `begin` is below `end`.
    Range {
        /// The first one, counted from 0.
        begin: u32,
        /// One beyond the last.
        end: u32,
    },
}

/// Location of a model file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// An absolute path where the server runs.
    Path(String),
    /// An http or https URL.
    Url(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(text) | Self::Url(text) => f.write_str(text),
        }
    }
}

/// A latency objective: `percentile` percent of the replies within `latency`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Slo {
    /// From the arrival of a request to its reply; whole microseconds.
    pub latency: Duration,
    /// Percent of the requests that must keep it.
    pub percentile: f64,
    /// The latency of requests for contributions; `None`: `latency`.
    pub contribs: Option<Duration>,
    /// The latency of requests for interactions; `None`: `latency`.
    pub interactions: Option<Duration>,
}

impl Slo {
    /// One latency for all kinds of output.
    #[must_use]
    pub fn uniform(latency: Duration, percentile: f64) -> Self {
        Self {
            latency,
            percentile,
            contribs: None,
            interactions: None,
        }
    }

    /// The latencies of single outputs by the names of their fields.
    pub(crate) fn output_latencies(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let named = [
            ("contribs", self.contribs),
            ("interactions", self.interactions),
        ];
        named
            .into_iter()
            .filter_map(|(name, span)| Some((name, span?)))
    }
}

/// When waiting rows are dispatched to a worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batching {
    pub policy: Policy,
    /// Most rows of one batch.
    pub max_rows: u32,
}

impl Default for Batching {
    fn default() -> Self {
        Self {
            policy: Policy::Auto,
            max_rows: BATCH_ROWS_DEFAULT,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Policy {
    /// The server chooses.
    #[default]
    Auto,
    /// As late as the objective allows.
    Deferred,
    /// When the oldest row has waited so long, or the batch is full.
    Timeout {
        /// How long; whole microseconds, shorter than every objective. `max_delay` in the file.
        delay: Duration,
    },
    /// As soon as a worker is free.
    Eager,
}

impl Policy {
    /// The name in files and lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Deferred => "deferred",
            Self::Timeout { .. } => "timeout",
            Self::Eager => "eager",
        }
    }
}

/// Bounds of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Most rows that wait; at least `Batching::max_rows`.
    pub max_rows: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            max_rows: QUEUE_ROWS_DEFAULT,
        }
    }
}
