//! What the front may know about a loaded model.

use super::{ElementType, Kind, KindSet};

/// A model's place in [`super::Engine::models`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelIndex(pub usize);

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
