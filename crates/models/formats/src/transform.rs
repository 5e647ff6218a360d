//! The transformation of margins by an objective; the engine computes it.

/// The transformation of margins into values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Transform {
    /// The margin is the value.
    Identity,
    /// 1 / (1 + exp(-k x)), each group by itself.
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
    /// The groups of a row in ascending order: quantiles that do not cross (XGBoost 3.4).
    Ascending,
    /// The first group, and for each other one its predecessor and a positive step, ln(1 + exp(x))
    /// and a little: expectiles that do not cross (XGBoost 3.3).
    Steps,
}

impl Transform {
    /// Whether a row has one value however many groups it has.
    #[must_use]
    pub fn is_single(self) -> bool {
        self == Self::Argmax
    }
}
