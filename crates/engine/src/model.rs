//! What the front may know about a loaded model.

use std::time::Duration;

use albacore_os::SharedMemory;

use super::{ElementType, Kind, KindSet};
use crate::orders::EditionId;

/// One compiled state of a model: from its installation until no request needs it any more.
#[derive(Debug)]
pub struct Edition {
    pub(crate) id: EditionId,
    /// The model's place, and the number of its queue.
    pub(super) slot: usize,
    pub(super) info: ModelInfo,
    pub(super) image: SharedMemory,
}

impl Edition {
    /// What the front may know of it.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }
}

/// A latency objective: so many percent of the replies within so much time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// From the arrival of a request to its reply.
    pub latency: Duration,
    /// Percent of the requests that must keep it.
    pub percentile: f64,
}

/// One output that a model can give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputInfo {
    /// Which output.
    pub kind: Kind,
    /// Its element type.
    pub element: ElementType,
    /// The shape of one row's output; empty for a scalar.
    pub row_shape: Vec<usize>,
}

impl OutputInfo {
    /// Elements of one row's output.
    #[must_use]
    pub fn row_elements(&self) -> usize {
        self.row_shape.iter().product()
    }

    /// Bytes of one row's output.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.row_elements() * self.element.bytes()
    }
}

/// A loaded model as metadata replies describe it.
#[derive(Clone, Debug)]
pub struct ModelInfo {
    /// The name that requests use.
    pub name: String,
    /// Library and format, for example `xgboost_ubj`.
    pub platform: String,
    /// Columns of a row.
    pub features: usize,
    /// The outputs that this model gives; [`Kind::Value`] is first.
    pub outputs: Vec<OutputInfo>,
}

impl ModelInfo {
    /// The output of `kind`, if this model gives it.
    #[must_use]
    pub fn output(&self, kind: Kind) -> Option<&OutputInfo> {
        self.outputs.iter().find(|output| output.kind == kind)
    }

    /// The kinds of output that this model gives.
    #[must_use]
    pub fn kinds(&self) -> KindSet {
        self.outputs.iter().map(|output| output.kind).collect()
    }
}
