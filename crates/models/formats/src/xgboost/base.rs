//! Base scores: a file stores them on the scale of the values, but trees are added to a margin.
//! Source: `ProbToMargin` of each objective, `src/objective/` of XGBoost.

use crate::error::{ModelError, ModelResult, excerpt};

/// Conversion of a base score to a base margin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum BaseScoreLink {
    Identity,
    /// ln(p / (1 - p)); p = 0 and p = 1 are rejected, as in XGBoost before 3.2.
    Logit,
    /// Like `Logit`, with the probability clamped to [1e-6, 1 - 1e-6].
    ClampedLogit,
    /// ln(x); minus infinity for 0 and NaN for negative scores, as in XGBoost.
    Log,
    /// Like `Log`; scores that are not positive are rejected.
    PositiveLog,
    /// The inverse of [`Transform::Steps`](crate::Transform::Steps).
    Steps,
}

/// XGBoost's `kRtEps`: bounds probabilities away from 0 and 1, and is added to the steps between
/// expectiles.
const EPSILON: f32 = 1e-6;

const PATH: &str = "learner.learner_model_param.base_score";

impl BaseScoreLink {
    fn margin(self, score: f32) -> Result<f32, &'static str> {
        if !score.is_finite() {
            return Err("not finite: train the model with another base_score");
        }
        let logit = |p: f32| -(f64::from(1.0 / p - 1.0).ln() as f32);
        match self {
            Self::Identity | Self::Steps => Ok(score),
            Self::Logit if score > 0.0 && score < 1.0 => Ok(logit(score)),
            Self::Logit => Err(
                "not between 0 and 1, which the version that wrote the file refuses: train or save \
                 the model with XGBoost 3.2 or newer",
            ),
            Self::ClampedLogit if (0.0..=1.0).contains(&score) => {
                Ok(logit(score.clamp(EPSILON, 1.0 - EPSILON)))
            }
            Self::ClampedLogit => Err("not within [0, 1]: train the model with another base_score"),
            Self::PositiveLog if score <= 0.0 => {
                Err("not positive: train the model with another base_score")
            }
            Self::Log | Self::PositiveLog => Ok(f64::from(score).ln() as f32),
        }
    }
}

/// Parses base margins from `5E-1`, `[5E-1]` or `[5E-1,2.5E-1]`, one per group.
pub(super) fn base_margins(
    text: &str,
    link: BaseScoreLink,
    groups: usize,
) -> ModelResult<Vec<f64>> {
    let list = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    let mut margins = Vec::new();
    for item in list.split(',').take(groups + 1) {
        let item = item.trim();
        let score: f32 = item.parse().map_err(|_| {
            let reason = format!("'{}' is not a number or a list of them", excerpt(text));
            ModelError::inconsistent(PATH, reason)
        })?;
        let margin = link.margin(score).map_err(|reason| {
            ModelError::inconsistent(PATH, format!("{} is {reason}", excerpt(item)))
        })?;
        margins.push(f64::from(margin));
    }
    if link == BaseScoreLink::Steps {
        // From last to first, because each is computed from the preceding score.
        for group in (1..margins.len()).rev() {
            let step = margins[group] as f32 - margins[group - 1] as f32 - EPSILON;
            let step = step.max(EPSILON);
            margins[group] = f64::from(step + (-(-step).exp_m1()).ln());
        }
    }
    if margins.len() == 1 {
        margins.resize(groups, margins[0]);
    }
    if margins.len() != groups {
        let reason = format!("{} scores for {groups} groups", list.split(',').count());
        return Err(ModelError::inconsistent(PATH, reason));
    }
    Ok(margins)
}
