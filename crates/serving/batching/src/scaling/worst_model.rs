//! The load of pods that serve several models: the worst model decides.
//!
//! Problem: judged by all requests together, a model with few requests can miss its objective
//! permanently, and so can the few explanations of a model with many predictions.
//!
//! Approach: the rule of the parent module is applied to all requests together, to those of each
//! model, and to those of each kind of output of each model; the largest factor decides. For one
//! model with one kind the three are equal.
//!
//! Limits: a model needs [`EVIDENCE_MIN`] bad requests to count, so a model with two requests per
//! minute never adds pods; whether it meets its objective is reported nevertheless.

use super::{Load, load_factor};

/// This many bad requests of a model or kind are unlikely to be chance: of 60 requests per minute
/// with half of the bad fraction that 99 % allow, 0.3 are bad on average, and three in one minute
/// of 300.
pub const EVIDENCE_MIN: u64 = 3;

/// Request counts of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    pub requests: u64,
    /// Of these: late, shed or failed.
    pub bad: u64,
    /// Requests of the newest part of the window, 15 to 20 s; 0 if it was not reported.
    pub recent_requests: u64,
    /// Of these: late, shed or failed.
    pub recent_bad: u64,
}

/// Reports of all pods on one model, together.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelLoad {
    /// Fraction of bad requests that the objective's percentile allows; `None` without an
    /// objective, in which case any fraction is allowed.
    pub bad_rate_allowed: Option<f64>,
    /// All requests of the model.
    pub all: RequestCounts,
    /// Requests by kind of output. Their sum may be less than `all`: the kind of a request that is
    /// rejected before its body is read is unknown.
    pub kinds: Vec<RequestCounts>,
}

/// Reports of all pods of a deployment, together.
#[derive(Clone, Debug, PartialEq)]
pub struct DeploymentLoad {
    all: Load,
    /// Per model, and per kind of output.
    parts: Vec<Load>,
}

impl RequestCounts {
    pub fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.bad = self.bad.saturating_add(other.bad);
        self.recent_requests = self.recent_requests.saturating_add(other.recent_requests);
        self.recent_bad = self.recent_bad.saturating_add(other.recent_bad);
    }

    /// Whether no more requests were bad than an objective allows; `None` without requests.
    #[must_use]
    pub fn is_objective_met(&self, bad_rate_allowed: f64) -> Option<bool> {
        // Without the margin, the rounding error of 1 - 99/100 would exclude the last allowed
        // request.
        let allowed = bad_rate_allowed * self.requests as f64 + 1e-6;
        (self.requests > 0).then_some(self.bad as f64 <= allowed)
    }

    /// The fraction of bad requests; 0 without requests.
    #[must_use]
    pub fn bad_rate(&self) -> f64 {
        self.bad.min(self.requests) as f64 / self.requests.max(1) as f64
    }
}

impl ModelLoad {
    /// Whether the model meets its objective with all requests and with those of each kind; `None`
    /// without an objective or a request.
    #[must_use]
    pub fn is_objective_met(&self) -> Option<bool> {
        let allowed = self.bad_rate_allowed?;
        let met = self.all.is_objective_met(allowed)?;
        let mut kinds = self.kinds.iter();
        Some(met && kinds.all(|kind| kind.is_objective_met(allowed) != Some(false)))
    }
}

impl DeploymentLoad {
    /// `all` counts all requests, including those of models that are not in `models`.
    #[must_use]
    pub fn new(pods: u32, idle_share: f64, all: RequestCounts, models: &[ModelLoad]) -> Self {
        let load = |counts: &RequestCounts, bad_rate_allowed| Load {
            pods,
            requests: counts.requests,
            bad: counts.bad,
            recent_requests: counts.recent_requests,
            recent_bad: counts.recent_bad,
            idle_share,
            bad_rate_allowed,
        };
        let parts = models.iter().flat_map(|model| {
            let allowed = model.bad_rate_allowed.unwrap_or(1.0);
            let counts = std::iter::once(&model.all).chain(&model.kinds);
            counts.map(move |counts| load(counts, allowed))
        });
        Self {
            all: load(&all, allowed_of_all(models)),
            parts: parts.collect(),
        }
    }

    /// The factor by which the load requires more (above 1) or fewer pods, before any damping.
    #[must_use]
    pub fn factor(&self) -> f64 {
        load_factor(&self.worst_of(|load| *load))
    }

    /// The load that [`super::Autoscaler::advise`] uses: the one that requires most pods, judged by
    /// the newest part of the window if that is sufficient evidence.
    #[must_use]
    pub fn worst(&self) -> Load {
        self.worst_of(Load::newest)
    }

    /// All requests together.
    #[must_use]
    pub fn all(&self) -> &Load {
        &self.all
    }

    fn worst_of(&self, judged_load: impl Fn(&Load) -> Load) -> Load {
        let mut worst = (self.all, load_factor(&judged_load(&self.all)));
        for part in &self.parts {
            let judged = judged_load(part);
            let factor = load_factor(&judged);
            if judged.bad >= EVIDENCE_MIN && factor > worst.1 {
                worst = (*part, factor);
            }
        }
        worst.0
    }
}

/// Fraction of bad requests that the objectives allow over all requests: the mean weighted by
/// requests; without requests, the smallest.
fn allowed_of_all(models: &[ModelLoad]) -> f64 {
    let allowed = |model: &ModelLoad| model.bad_rate_allowed.unwrap_or(1.0);
    let requests: f64 = models.iter().map(|model| model.all.requests as f64).sum();
    if requests == 0.0 {
        return models.iter().map(allowed).fold(1.0, f64::min);
    }
    let weighted = models
        .iter()
        .map(|model| allowed(model) * model.all.requests as f64);
    weighted.sum::<f64>() / requests
}

#[cfg(test)]
mod tests;
