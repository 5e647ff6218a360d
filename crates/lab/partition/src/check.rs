//! Validates a partition: recomputes everything from the problem, shares no code with the methods
//! that find one.

use crate::problem::Problem;

/// Relative tolerance for rounding in sums.
const ROUNDING: f64 = 1e-9;

/// Measures of a partition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measure {
    /// (max - min) / mean of the sub-clusters' rates.
    pub rate_imbalance: f64,
    /// The same for memory.
    pub memory_imbalance: f64,
    /// Largest deviation from the mean rate, as a share of it, plus weight times that of memory.
    pub objective: f64,
    /// Cost of loading and unloading relative to the partition in force.
    pub change_cost: f64,
    /// Number of models that change their sub-cluster.
    pub moved: usize,
}

/// A violated rule.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Violation {
    /// Rule (8): each model is assigned to one of the sub-clusters.
    #[error("{places} places for {models} models, the largest {largest} of {clusters}")]
    Places {
        places: usize,
        models: usize,
        largest: usize,
        clusters: usize,
    },
    /// Rule (4).
    #[error("sub-cluster {cluster}: rate {rate} is above the limit {limit}")]
    Rate {
        cluster: usize,
        rate: f64,
        limit: f64,
    },
    /// Rule (5).
    #[error("sub-cluster {cluster}: memory {memory} is above the limit {limit}")]
    Memory {
        cluster: usize,
        /// Including the largest running memory.
        memory: f64,
        limit: f64,
    },
    /// Rule (10).
    #[error("changes cost {cost}, above the limit {limit}")]
    Change { cost: f64, limit: f64 },
}

/// Checks every rule and computes the measures.
///
/// # Errors
/// The first violated rule.
pub fn check(problem: &Problem, assignment: &[usize]) -> Result<Measure, Violation> {
    let largest = assignment.iter().copied().max().unwrap_or(0);
    if assignment.len() != problem.models.len() || largest >= problem.clusters {
        return Err(Violation::Places {
            places: assignment.len(),
            models: problem.models.len(),
            largest,
            clusters: problem.clusters,
        });
    }
    let (mut rates, mut memories) = (Vec::new(), Vec::new());
    for cluster in 0..problem.clusters {
        let here = || {
            let models = problem.models.iter().zip(assignment);
            models
                .filter(|(_, place)| **place == cluster)
                .map(|(model, _)| model)
        };
        let rate: f64 = here().map(|model| model.rate).sum();
        let memory: f64 = here().map(|model| model.memory).sum();
        let running = here().map(|model| model.running_memory).fold(0.0, f64::max);
        if rate > problem.limits.rate * (1.0 + ROUNDING) {
            let limit = problem.limits.rate;
            return Err(Violation::Rate {
                cluster,
                rate,
                limit,
            });
        }
        if memory + running > problem.limits.memory * (1.0 + ROUNDING) {
            return Err(Violation::Memory {
                cluster,
                memory: memory + running,
                limit: problem.limits.memory,
            });
        }
        rates.push(rate);
        memories.push(memory);
    }
    let (change_cost, moved) = changes(problem, assignment);
    let limit = problem
        .current
        .as_ref()
        .map_or(f64::INFINITY, |c| c.cost_max);
    if change_cost > limit * (1.0 + ROUNDING) {
        let cost = change_cost;
        return Err(Violation::Change { cost, limit });
    }
    let ((rate_imbalance, rate_off), (memory_imbalance, memory_off)) =
        (spread(&rates), spread(&memories));
    Ok(Measure {
        rate_imbalance,
        memory_imbalance,
        objective: rate_off + problem.weight * memory_off,
        change_cost,
        moved,
    })
}

/// Cost and number of changes. Each change of a model's sub-cluster costs one unloading and one
/// loading.
fn changes(problem: &Problem, assignment: &[usize]) -> (f64, usize) {
    let Some(current) = &problem.current else {
        return (0.0, 0);
    };
    let (mut cost, mut moved) = (0.0, 0);
    for ((model, place), before) in problem.models.iter().zip(assignment).zip(&current.clusters) {
        match before {
            Some(before) if before == place => {}
            Some(_) => {
                cost += 2.0 * model.change_cost;
                moved += 1;
            }
            None => cost += model.change_cost,
        }
    }
    (cost, moved)
}

/// (max - min) / mean, and the largest deviation from the mean relative to it.
fn spread(sums: &[f64]) -> (f64, f64) {
    let mean = sums.iter().sum::<f64>() / sums.len() as f64;
    if mean <= 0.0 {
        return (0.0, 0.0);
    }
    let max = sums.iter().copied().fold(f64::MIN, f64::max);
    let min = sums.iter().copied().fold(f64::MAX, f64::min);
    ((max - min) / mean, (max - mean).max(mean - min) / mean)
}
