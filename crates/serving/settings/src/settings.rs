//! The content of a settings file.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use albacore_batching::{BatchingParams, ModelBatching, Slo};

use crate::digest::Digest;

/// The models that a server serves, and how it batches.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// The models; at least one, names unique.
    pub models: Vec<Model>,
    pub batching: BatchingParams,
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
    /// Most threads of a worker that compute one batch; `None` (auto): all that busy workers leave.
    pub threads: Option<u16>,
    /// Its share of the server while requests of several models have to be refused.
    pub weight: u32,
    /// How its batches are made; `None`: as [`Settings::batching`] says.
    pub batching: Option<ModelBatching>,
    /// What names in its requests and replies mean.
    pub naming: Naming,
}

/// What names in the requests and replies of a model mean.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Naming {
    /// What becomes of a column that a request with named columns lacks.
    pub missing: Missing,
    /// The names of its classes, by number; empty to give none.
    pub classes: Vec<String>,
    /// The texts of the categories of columns, by the name of the column and the number that the
    /// trees have for each; in place of those of the file.
    pub categories: BTreeMap<String, Vec<String>>,
}

/// What becomes of a column that a request with named columns lacks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Missing {
    /// The request is refused.
    #[default]
    Refuse,
    /// Its values are missing values.
    Nan,
}

impl Missing {
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
    /// The leaf of each tree.
    Leaf,
}

impl Output {
    /// The outputs in the order of their declaration, with the names of their tensors.
    const NAMES: [(Self, &'static str); 5] = [
        (Self::Output, "output"),
        (Self::Margin, "margin"),
        (Self::Contribs, "contribs"),
        (Self::Interactions, "interactions"),
        (Self::Leaf, "leaf"),
    ];

    /// The name of its tensor.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// The output with this tensor name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.into_iter().find(|(_, known)| *known == name);
        found.map(|(output, _)| output)
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
    /// `http://` or `https://`, an object: `s3://bucket/key`, `gs://` or `az://`; or
    /// an artifact of a registry: `oci://`.
    Url(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(text) | Self::Url(text) => f.write_str(text),
        }
    }
}

/// The latencies of single outputs by the names of their fields.
pub(crate) fn output_latencies(slo: &Slo) -> impl Iterator<Item = (&'static str, Duration)> {
    let named = [
        ("contribs", slo.contribs),
        ("interactions", slo.interactions),
    ];
    named
        .into_iter()
        .filter_map(|(name, span)| Some((name, span?)))
}
