//! The partition problem.

use crate::limits::{CLUSTERS_MAX, MODELS_MAX};

#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub name: String,
    /// Requests a second, r.
    pub rate: f64,
    /// Memory while loaded, s.
    pub memory: f64,
    /// Additional memory while running, d; only the largest of a sub-cluster counts.
    pub running_memory: f64,
    /// Cost of one loading or one unloading, c.
    pub change_cost: f64,
}

/// Capacity of a sub-cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// R max: requests a second; infinite for none.
    pub rate: f64,
    /// S max: memory; infinite for none.
    pub memory: f64,
}

/// The partition in force, and a limit on changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Current {
    /// The sub-cluster of each model; `None` for a new one.
    pub clusters: Vec<Option<usize>>,
    /// C max: the cost of all loadings and unloadings together; infinite for none.
    pub cost_max: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub models: Vec<Model>,
    /// Number of sub-clusters.
    pub clusters: usize,
    /// Capacity of each sub-cluster.
    pub limits: Limits,
    /// w: weight of the imbalance of memory relative to the imbalance of the rate, both as shares
    /// of their means.
    pub weight: f64,
    /// The partition in force.
    pub current: Option<Current>,
}

/// Errors of validation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProblemError {
    /// A count is out of bounds.
    #[error("{what}: {count} is not between 1 and {most}")]
    Count {
        what: &'static str,
        count: usize,
        most: usize,
    },
    /// A quantity is negative or NaN.
    #[error("model {model}: {what} {value} is not a number of at least 0")]
    Quantity {
        model: String,
        what: &'static str,
        value: f64,
    },
    /// A limit is negative or NaN.
    #[error("{what} {value} is not a number of at least 0")]
    Limit { what: &'static str, value: f64 },
    /// The partition in force does not match the problem.
    #[error("current: {0}")]
    Current(String),
    /// A model that fits into no sub-cluster, or a total that exceeds the total capacity.
    #[error("{0}")]
    Impossible(String),
}

impl Problem {
    /// Checks the input of the methods.
    ///
    /// # Errors
    /// The first error that is found.
    pub fn validate(&self) -> Result<(), ProblemError> {
        let counts = [
            ("models", self.models.len(), MODELS_MAX),
            ("clusters", self.clusters, CLUSTERS_MAX),
        ];
        for (what, count, most) in counts {
            if count == 0 || count > most {
                return Err(ProblemError::Count { what, count, most });
            }
        }
        for model in &self.models {
            let quantities = [
                ("rate", model.rate),
                ("memory", model.memory),
                ("running memory", model.running_memory),
                ("change cost", model.change_cost),
            ];
            if let Some((what, value)) = quantities.into_iter().find(|q| !is_quantity(q.1)) {
                let model = model.name.clone();
                return Err(ProblemError::Quantity { model, what, value });
            }
        }
        let cost_max = self
            .current
            .as_ref()
            .map_or(0.0, |current| current.cost_max);
        let limits = [
            ("rate limit", self.limits.rate),
            ("memory limit", self.limits.memory),
            ("weight", self.weight),
            ("cost limit", cost_max),
        ];
        if let Some((what, value)) = limits.into_iter().find(|l| l.1.is_nan() || l.1 < 0.0) {
            return Err(ProblemError::Limit { what, value });
        }
        self.validate_current()?;
        self.validate_sums()
    }

    fn validate_current(&self) -> Result<(), ProblemError> {
        let Some(current) = &self.current else {
            return Ok(());
        };
        if current.clusters.len() != self.models.len() {
            let (n, m) = (current.clusters.len(), self.models.len());
            return Err(ProblemError::Current(format!("{n} places for {m} models")));
        }
        let outside = |place: &&Option<usize>| place.is_some_and(|at| at >= self.clusters);
        match current.clusters.iter().find(outside) {
            Some(Some(at)) => Err(ProblemError::Current(format!(
                "sub-cluster {at} is out of range: there are {}, counted from 0",
                self.clusters
            ))),
            _ => Ok(()),
        }
    }

    fn validate_sums(&self) -> Result<(), ProblemError> {
        let Limits { rate, memory } = self.limits;
        for model in &self.models {
            let name = &model.name;
            if model.rate > rate {
                let what = format!(
                    "model {name}: its rate {} is above the limit {rate}",
                    model.rate
                );
                return Err(ProblemError::Impossible(what));
            }
            let needed = model.memory + model.running_memory;
            if needed > memory {
                let what = format!("model {name}: its memory {needed} is above the limit {memory}");
                return Err(ProblemError::Impossible(what));
            }
        }
        let clusters = self.clusters as f64;
        let sums = [
            ("rates", self.total(|m| m.rate), rate),
            ("memory", self.total(|m| m.memory), memory),
        ];
        for (what, sum, limit) in sums {
            if sum > limit * clusters {
                let all = limit * clusters;
                let text = format!("the {what} of all models sum up to {sum}, the limits to {all}");
                return Err(ProblemError::Impossible(text));
            }
        }
        Ok(())
    }

    pub(crate) fn total(&self, of: impl Fn(&Model) -> f64) -> f64 {
        self.models.iter().map(of).sum()
    }

    /// Mean rate and memory per sub-cluster; 1 instead of 0, so that shares are 0.
    pub(crate) fn means(&self) -> (f64, f64) {
        let mean = |sum: f64| {
            if sum > 0.0 {
                sum / self.clusters as f64
            } else {
                1.0
            }
        };
        (mean(self.total(|m| m.rate)), mean(self.total(|m| m.memory)))
    }
}

fn is_quantity(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}
