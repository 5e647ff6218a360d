//! Content of a settings file.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use albacore_batching::{BatchingParams, ModelBatching, Slo};

use crate::digest::Digest;

/// The models of a server and its batching.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// At least one model; names are unique.
    pub models: Vec<ModelSettings>,
    pub batching: BatchingParams,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ModelSettings {
    /// Name in request paths and metrics.
    pub name: String,
    pub source: Source,
    /// Expected digest of the model file; `None`: any file is accepted.
    pub sha256: Option<Digest>,
    /// Boosting iterations used for prediction; `None`: the default of the library object that
    /// saved the file.
    pub iterations: Option<IterationsSetting>,
    /// Latency objective. Without one, no request counts as late.
    pub slo: Option<Slo>,
    /// Outputs advertised in the metadata, each once; empty: the value alone.
    pub outputs: Vec<Output>,
    /// Maximum threads of a worker per batch; `None` (auto): all threads that busy workers do not
    /// use.
    pub threads: Option<u16>,
    /// Share of the server when requests of several models must be rejected.
    pub weight: u32,
    /// Batching of this model; `None`: [`Settings::batching`].
    pub batching: Option<ModelBatching>,
    /// Names of columns, classes and categories in requests and replies.
    pub schema_names: SchemaNames,
}

/// Names of columns, classes and categories in the requests and replies of a model.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SchemaNames {
    /// Handling of columns that are missing from a request with named columns.
    pub missing: MissingColumnPolicy,
    /// Names of the classes, in order of class number; empty: replies contain no class names.
    pub classes: Vec<String>,
    /// Category names by column name, in the order of the category numbers in the trees; they
    /// replace the categories of the model file.
    pub categories: BTreeMap<String, Vec<String>>,
}

/// Handling of columns that are missing from a request with named columns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum MissingColumnPolicy {
    /// Rejects the request.
    #[default]
    Refuse,
    /// Uses NaN for all values of the column.
    Nan,
}

impl MissingColumnPolicy {
    const NAMES: [(Self, &'static str); 2] = [(Self::Refuse, "refuse"), (Self::Nan, "nan")];

    pub(crate) const fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.into_iter().find(|(_, known)| *known == name);
        found.map(|(missing, _)| missing)
    }
}

/// An output of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    Output,
    Margin,
    Contribs,
    Interactions,
    /// The leaf index of each tree.
    Leaf,
}

impl Output {
    /// The outputs in declaration order, with the names of their tensors.
    const NAMES: [(Self, &'static str); 5] = [
        (Self::Output, "output"),
        (Self::Margin, "margin"),
        (Self::Contribs, "contribs"),
        (Self::Interactions, "interactions"),
        (Self::Leaf, "leaf"),
    ];

    /// Returns the tensor name of the output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// Returns the output with this tensor name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.into_iter().find(|(_, known)| *known == name);
        found.map(|(output, _)| output)
    }
}

/// Boosting iterations of a model file used for prediction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IterationsSetting {
    All,
    /// Up to the best iteration recorded in the file.
    Best,
    /// From `begin` to `end` (exclusive); `begin` is below `end`.
    Range {
        /// The first iteration, from 0.
        begin: u32,
        /// One past the last iteration.
        end: u32,
    },
}

/// Location of a model file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// An absolute path in the server's file system.
    Path(String),
    /// A web URL (`http://`, `https://`), an object of a store (`s3://bucket/key`, `gs://`,
    /// `az://`) or an artifact of a registry (`oci://`).
    Url(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(text) | Self::Url(text) => f.write_str(text),
        }
    }
}

/// Returns the latencies of single outputs with the names of their fields.
pub(crate) fn output_latencies(slo: &Slo) -> impl Iterator<Item = (&'static str, Duration)> {
    let named = [
        ("contribs", slo.contribs),
        ("interactions", slo.interactions),
    ];
    named
        .into_iter()
        .filter_map(|(name, span)| Some((name, span?)))
}
