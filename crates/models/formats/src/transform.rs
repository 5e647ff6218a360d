//! Transformation of margins by an objective; the engine computes it.

/// Transformation of margins into values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Transform {
    /// The margin is the value.
    Identity,
    /// 1 / (1 + exp(-k x)), each group separately.
    Sigmoid(f64),
    /// exp(x).
    Exp,
    /// exp(x), normalized over the groups.
    Softmax,
    /// The group with the largest margin.
    Argmax,
    /// 1 if the margin is positive.
    Step,
    /// ln(1 + exp(x)).
    Softplus,
    /// sign(x) x^2.
    SignedSquare,
    /// The groups of a row in ascending order, so that quantiles do not cross (XGBoost 3.4).
    Ascending,
    /// The first group unchanged; every other group is its predecessor plus a positive step, ln(1 +
    /// exp(x)) plus an epsilon, so that expectiles do not cross (XGBoost 3.3).
    Steps,
}

impl Transform {
    /// Returns whether a row has one value regardless of the number of groups.
    #[must_use]
    pub fn is_single(self) -> bool {
        self == Self::Argmax
    }
}
