//! The values of the file.

use std::fmt;
use std::time::Duration;

use crate::digest::Digest;
use crate::limits::{BATCH_ROWS_DEFAULT, QUEUE_ROWS_DEFAULT};

/// What a server serves and how it batches.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The models; at least one, names unique.
    pub models: Vec<Model>,
    /// When waiting rows are released to a worker.
    pub batching: Batching,
    /// How much may wait.
    pub queue: Queue,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    /// Its name in request paths and metrics.
    pub name: String,
    /// Where its file is.
    pub source: Source,
    /// What its file must be, if that is known.
    pub sha256: Option<Digest>,
    /// Boosting iterations that predict; `None`: as the object predicts that saved the file.
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

    /// The output whose tensor has this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|output| output.name() == name)
    }
}

/// Boosting iterations of a model's file that predict.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Iterations {
    All,
    /// Up to the best one by the file's own word.
    Best,
    /// Those from `begin` up to `end`, exclusive; `begin` is below `end`.
    Range {
        /// The first one, counted from 0.
        begin: u32,
        /// One beyond the last.
        end: u32,
    },
}

/// Where the file of a model is.
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

/// A latency objective: so many percent of the replies within so much time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Slo {
    /// From the arrival of a request to its reply; whole microseconds.
    pub latency: Duration,
    /// Percent of the requests that must keep it.
    pub percentile: f64,
    /// The same as `latency`, of requests for contributions; `None`: as for values.
    pub contribs: Option<Duration>,
    /// The same, of requests for interactions.
    pub interactions: Option<Duration>,
}

impl Slo {
    /// The same time for all requests.
    #[must_use]
    pub fn of_all(latency: Duration, percentile: f64) -> Self {
        Self {
            latency,
            percentile,
            contribs: None,
            interactions: None,
        }
    }

    /// The times of costlier outputs, by the names of their fields.
    pub(crate) fn costlier(&self) -> impl Iterator<Item = (&'static str, Duration)> {
        let named = [
            ("contribs", self.contribs),
            ("interactions", self.interactions),
        ];
        named
            .into_iter()
            .filter_map(|(name, span)| Some((name, span?)))
    }
}

/// When waiting rows are released to a worker.
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
    /// As the server thinks best.
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
    /// As files and lines write it.
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

/// How much may wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queue {
    /// Most rows that wait; not below the most rows of a batch.
    pub max_rows: u32,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            max_rows: QUEUE_ROWS_DEFAULT,
        }
    }
}
