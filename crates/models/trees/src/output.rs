//! Kinds of predictions, and their element types.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The margin transformed by the objective: probabilities, counts, a class.
    Value,
    /// The raw score: XGBoost's `output_margin`, LightGBM's `raw_score`.
    #[doc(alias = "output_margin")]
    Margin,
    /// SHAP values: the contribution of each feature to the margin; the last column is the bias.
    /// XGBoost's `pred_contribs`; its `approx_contribs` are
    /// [`Predictor::predict_approx`](crate::Predictor::predict_approx).
    #[doc(alias = "pred_contribs")]
    Contribs,
    /// SHAP interaction values of each pair of features; last row and column are the bias.
    /// XGBoost's `pred_interactions`.
    #[doc(alias = "pred_interactions")]
    Interactions,
    /// The leaf that a row reaches in each tree: XGBoost's and LightGBM's `pred_leaf`.
    #[doc(alias = "pred_leaf")]
    Leaf,
}

impl Kind {
    pub const ALL: [Self; 5] = [
        Self::Value,
        Self::Margin,
        Self::Contribs,
        Self::Interactions,
        Self::Leaf,
    ];

    /// Returns the name used on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Margin => "margin",
            Self::Contribs => "contribs",
            Self::Interactions => "interactions",
            Self::Leaf => "leaf",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Element type of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementType {
    /// 4-byte float.
    F32,
    /// 8-byte float.
    F64,
    /// 4-byte signed integer.
    I32,
}

impl ElementType {
    /// Returns the size of an element in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F64 => 8,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::I32 => "int32",
        })
    }
}

/// Output buffer: rows x [`Predictor::output_width`](crate::Predictor::output_width).
#[derive(Debug)]
pub enum OutputMut<'a> {
    F32(&'a mut [f32]),
    F64(&'a mut [f64]),
    I32(&'a mut [i32]),
}

impl OutputMut<'_> {
    pub(crate) fn element(&self) -> ElementType {
        match self {
            Self::F32(_) => ElementType::F32,
            Self::F64(_) => ElementType::F64,
            Self::I32(_) => ElementType::I32,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
            Self::I32(values) => values.len(),
        }
    }
}
