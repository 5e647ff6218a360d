//! Checks a solution of the joint problem: whether it is feasible, and as good as its certificate
//! states. Shares no code with the solver.
//!
//! **Problem.** As in [`check`](crate::check()): a solver bug or a stale answer must not reach the
//! kernel. **Approach.** Count from the mappings alone: rules (1), (2), (3) per deployment,
//! distances pair by pair, mains and loads by their definitions. Loads are balanced if there is no
//! chain of threads, each movable to the next cpu, that would bring the loads at its ends closer
//! together (`balance`). A deployment that is alone on the machine is checked by the rules for one.
//! **Proof sketch.** Feasible loads are the integral points of a base polyhedron, on which a point
//! is lexicographically least (from the largest) if and only if it has no such chain (Frank and
//! Murota, decreasing minimality); for cores, the links of the chain may pass through cores. A
//! bound is rejected as *wrong* if the mappings exceed it, and as *unconfirmed* if it is to prove
//! optimality and recounting (`bound`) gives more. **Limits.** Searches are not repeated. Amounts
//! of relaxed rules are not checked to be the smallest possible.

use std::collections::BTreeMap;

use albacore_topology::CpuId;

use super::fill_levels::is_uniform;
use super::one::inconsistent_claim;
use super::placed::{Placed, value};
use super::{balance, bound, main_rules};
use crate::{
    Certificate, Mapping, MappingViolation, Proof, Relaxation, certificate_errors, check_proof,
    counting_bound,
};
use crate::{Deployment, JointProblem, JointSolution};

/// Result of [`report_joint`] for mappings that keep the rules that are never relaxed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JointReport {
    /// Objective of all deployments: clock cycles summed over pairs, higher is better.
    pub objective: i64,
    /// Every broken rule and how far its right-hand side would have to move.
    pub relaxed: Vec<Relaxation>,
    /// See [`JointSolution::gained`].
    pub gained: i64,
    /// See [`JointSolution::moved`].
    pub moved: u32,
}

/// Why mappings or a solution are rejected.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum JointViolation {
    /// The number of mappings is not the number of deployments.
    #[error("there are {mappings} mappings for {deployments} deployments")]
    OtherCount { mappings: usize, deployments: usize },
    /// A mapping is invalid for its deployment.
    #[error("deployment {deployment}: {violation}")]
    Deployment {
        deployment: usize,
        violation: MappingViolation,
    },
    /// Rule (8) or (8+): threads could move along a chain so that loads come closer together.
    #[error(
        "rule ({rule}): threads could move so that the load of cpu {from} falls and that of \
         cpu {to} rises, which is a better balance"
    )]
    Unbalanced {
        /// `8` for loads of cpus, `8+` for loads of cores.
        rule: &'static str,
        /// A cpu with too much load.
        from: CpuId,
        /// A cpu that could take more load.
        to: CpuId,
    },
    /// The solution states a wrong figure or proof.
    #[error(transparent)]
    Stated(MappingViolation),
    /// The stated gain is not that of the mappings.
    #[error("the solution states a gain of {stated}, but it is {actual}")]
    OtherGain { stated: i64, actual: i64 },
    /// Fewer threads moved than the stated minimum.
    #[error("the solution states that at least {least} threads move, but moves {moved}")]
    TooFewMoves { least: u32, moved: u32 },
    /// The stated number of moved threads is not that of the mappings.
    #[error("the solution states {stated} moved threads, but moves {actual}")]
    OtherMoves { stated: u32, actual: u32 },
}

/// Like [`report_joint`], and verifies what the solution states: no rule is broken by more than it
/// admits; objective, gain and moves are right; bound and `optimal` are consistent with them.
///
/// # Errors
/// All violations that were found.
pub fn check_joint(
    problem: &JointProblem,
    solution: &JointSolution,
) -> Result<JointReport, Vec<JointViolation>> {
    let report = report_joint(problem, &solution.mappings)?;
    let stated = &solution.certificate;
    let errors = certificate_errors(report.objective, &report.relaxed, stated);
    let errors = errors.into_iter().map(JointViolation::Stated);
    let mut violations: Vec<_> = errors.collect();
    let alone = only(problem).and_then(|one| problem.single_problem(one));
    let unproven = match alone {
        Some(alone) => check_proof(&alone, stated),
        None => {
            inconsistent_claim(stated).or_else(|| unconfirmed(problem, &solution.mappings, stated))
        }
    };
    violations.extend(unproven.map(JointViolation::Stated));
    if solution.gained != report.gained {
        let (stated, actual) = (solution.gained, report.gained);
        violations.push(JointViolation::OtherGain { stated, actual });
    }
    if solution.moved != report.moved {
        let (stated, actual) = (solution.moved, report.moved);
        violations.push(JointViolation::OtherMoves { stated, actual });
    }
    if solution.moved_least > report.moved {
        let (least, moved) = (solution.moved_least, report.moved);
        violations.push(JointViolation::TooFewMoves { least, moved });
    }
    if violations.is_empty() {
        Ok(report)
    } else {
        Err(violations)
    }
}

/// Returns a violation if a counted bound is to prove optimality and recounting gives more.
pub(super) fn unconfirmed(
    problem: &JointProblem,
    mappings: &[Mapping],
    stated: &Certificate,
) -> Option<MappingViolation> {
    if stated.proof != Proof::Bound {
        return None;
    }
    let placed = placed(problem, mappings).ok()?;
    let (bound, counted) = (
        stated.bound,
        bound::counted(problem, &placed, &stated.relaxed),
    );
    (counted > bound).then_some(MappingViolation::Unconfirmed { bound, counted })
}

/// Upper bound of the objective of all mappings that relax no rule beyond what the solution admits,
/// counted from the problem and the loads that every balanced placement has. `None` if the mappings
/// are not placed on the cpusets. The solution's own bound may be lower if it rests on a search.
pub fn joint_counting_bound(problem: &JointProblem, solution: &JointSolution) -> Option<i64> {
    let admitted = &solution.certificate.relaxed;
    match only(problem).and_then(|one| problem.single_problem(one)) {
        Some(alone) => Some(counting_bound(&alone, admitted)),
        None => {
            let placed = placed(problem, &solution.mappings).ok()?;
            Some(bound::counted(problem, &placed, admitted))
        }
    }
}

/// Computes relaxed rules, objective, gain and moves of `mappings`, one per deployment.
///
/// # Errors
/// A mapping does not place exactly its deployment's threads on its cpuset, a mapping breaks rule
/// (2) or (3), or the loads are not balanced (8), (8+). These rules are never relaxed if there is
/// more than one deployment or an obstacle.
pub fn report_joint(
    problem: &JointProblem,
    mappings: &[Mapping],
) -> Result<JointReport, Vec<JointViolation>> {
    let (deployments, given) = (problem.deployments.len(), mappings.len());
    if deployments != given {
        return Err(vec![JointViolation::OtherCount {
            mappings: given,
            deployments,
        }]);
    }
    let placed = placed(problem, mappings)?;
    let relaxed = match only(problem) {
        Some(one) => rules_for_one(problem, one, &mappings[0])?,
        None => {
            rules_together(problem, &placed)?;
            main_rules::relaxed(problem, &placed)
        }
    };
    let modes = problem.deployments.iter().map(|deployment| deployment.mode);
    Ok(JointReport {
        objective: value(&problem.distances, modes.zip(&placed)),
        relaxed,
        gained: gained(problem, &placed),
        moved: moved(problem, mappings),
    })
}

/// Checks rule (1), deployment by deployment.
fn placed<'a>(
    problem: &'a JointProblem,
    mappings: &[Mapping],
) -> Result<Vec<Placed<'a>>, Vec<JointViolation>> {
    let mut violations = Vec::new();
    let mut all = Vec::with_capacity(mappings.len());
    for (index, (deployment, mapping)) in problem.deployments.iter().zip(mappings).enumerate() {
        match place(problem, deployment, mapping) {
            Ok(placed) => all.push(placed),
            Err(refused) => {
                violations.extend(
                    refused
                        .into_iter()
                        .map(|violation| JointViolation::Deployment {
                            deployment: index,
                            violation,
                        }),
                )
            }
        }
    }
    if violations.is_empty() {
        Ok(all)
    } else {
        Err(violations)
    }
}

/// Checks rule (1) for one deployment.
fn place<'a>(
    problem: &'a JointProblem,
    deployment: &Deployment,
    mapping: &Mapping,
) -> Result<Placed<'a>, Vec<MappingViolation>> {
    let size = (deployment.workers, deployment.threads);
    Placed::of(&problem.topology, Some(&deployment.cpuset), size, mapping)
}

/// Evaluates the rules for a deployment that is alone on the machine.
fn rules_for_one(
    problem: &JointProblem,
    deployment: &Deployment,
    mapping: &Mapping,
) -> Result<Vec<Relaxation>, Vec<JointViolation>> {
    let of_first = |violation| JointViolation::Deployment {
        deployment: 0,
        violation,
    };
    // rule (1) has already rejected an empty cpuset
    let Some(alone) = problem.single_problem(deployment) else {
        return Ok(Vec::new());
    };
    match crate::check(&alone, mapping) {
        Ok(report) => Ok(report.relaxed),
        Err(violations) => Err(violations.into_iter().map(of_first).collect()),
    }
}

/// The only deployment, if there is one, no obstacle, and all its cores are equally fast.
fn only(problem: &JointProblem) -> Option<&Deployment> {
    let is_free = problem.obstacles.iter().all(|o| o.weight == 0);
    match &problem.deployments[..] {
        [one] if is_free && is_uniform(problem) => Some(one),
        _ => None,
    }
}

/// Rules (2), (3), (8) and (8+).
fn rules_together(
    problem: &JointProblem,
    placed: &[Placed<'_>],
) -> Result<(), Vec<JointViolation>> {
    let mut violations = Vec::new();
    for (index, (deployment, own)) in problem.deployments.iter().zip(placed).enumerate() {
        let cpus = deployment.cpuset.len() as u32;
        let mut refuse = |rule, most: u32, limit: u32| {
            if most > limit {
                let (amount, admitted) = (most - limit, 0);
                violations.push(JointViolation::Deployment {
                    deployment: index,
                    violation: MappingViolation::Broken {
                        rule,
                        amount,
                        admitted,
                    },
                });
            }
        };
        let ranks = most_alike(own.slots().map(|(_, rank, cpu)| (rank, cpu.id)));
        refuse("2", ranks, u32::from(deployment.workers).div_ceil(cpus));
        let workers = most_alike(own.slots().map(|(worker, _, cpu)| (worker, cpu.id)));
        refuse("3", workers, u32::from(deployment.threads).div_ceil(cpus));
    }
    if violations.is_empty() {
        violations.extend(balance::unbalanced(problem, placed));
    }
    if violations.is_empty() {
        Ok(())
    } else {
        Err(violations)
    }
}

/// How often the most frequent key occurs.
fn most_alike<K: Ord>(keys: impl Iterator<Item = K>) -> u32 {
    let mut keys: Vec<K> = keys.collect();
    keys.sort_unstable();
    let counts = keys.chunk_by(|a, b| a == b).map(|alike| alike.len() as u32);
    counts.max().unwrap_or(0)
}

/// Loads of cpus by id: threads plus weights of obstacles.
pub(super) fn loads(problem: &JointProblem, placed: &[Placed<'_>]) -> BTreeMap<CpuId, u32> {
    let mut loads: BTreeMap<CpuId, u32> =
        problem.topology.cpus().iter().map(|c| (c.id, 0)).collect();
    for obstacle in &problem.obstacles {
        *loads.entry(obstacle.cpu).or_insert(0) += obstacle.weight;
    }
    for cpu in placed.iter().flat_map(Placed::cpus) {
        *loads.entry(cpu.id).or_insert(0) += 1;
    }
    loads
}

/// Gain of the deployments that have a valid mapping in force.
fn gained(problem: &JointProblem, after: &[Placed<'_>]) -> i64 {
    let (mut before, mut now) = (Vec::new(), Vec::new());
    for (deployment, after) in problem.deployments.iter().zip(after) {
        let current = deployment.current.as_ref();
        let valid = current.and_then(|current| place(problem, deployment, current).ok());
        if let Some(valid) = valid {
            before.push((deployment.mode, valid));
            now.push((deployment.mode, after));
        }
    }
    let before = before.iter().map(|(mode, placed)| (*mode, placed));
    value(&problem.distances, now.into_iter()) - value(&problem.distances, before)
}

/// Threads of a mapping in force whose cpu has changed.
fn moved(problem: &JointProblem, mappings: &[Mapping]) -> u32 {
    let mut moved = 0;
    for (deployment, mapping) in problem.deployments.iter().zip(mappings) {
        let Some(current) = &deployment.current else {
            continue;
        };
        for (slot, cpu) in mapping.iter() {
            moved += u32::from(current.cpu(slot).is_some_and(|before| before != cpu));
        }
    }
    moved
}
