//! Checks the mapping of one deployment: whether it is feasible, and as good as its certificate
//! states. Shares no code with the solver.
//!
//! **Problem.** A mapping decides where a server runs; a solver bug or a stale answer must not
//! reach the kernel. **Approach.** Count from the mapping alone, with the rules as written in the
//! source article (numbers in brackets): pair by pair, without tree or reduction. Every rule yields
//! one figure: how far its right-hand side would have to move for the mapping to satisfy it.
//! [`check`] reports the figures, [`check_solution`] compares them with the relaxations that a
//! [`Solution`] admits. **Proof sketch.** Each `fn` below is one constraint. **Limits.** Quadratic
//! in T and W. A counted bound is recounted (`counting_bound`) if it is to prove optimality; a
//! bound from Lagrangian relaxation or from a search is only compared with the objective.

use albacore_topology::{Cpu, CpuId};

use super::fill_levels::cpu_volumes;
use super::placed::{Placed, value};
use super::{main_rules, several};
use crate::{
    Certificate, JointProblem, Mapping, Problem, Proof, Relaxation, Slot, Solution, counting_bound,
    relaxed_by,
};

/// Result of [`check`] for a mapping that places every thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckReport {
    /// Clock cycles summed over pairs; higher is better.
    pub objective: i64,
    /// Every broken rule and how far its right-hand side would have to move; empty if all hold.
    pub relaxed: Vec<Relaxation>,
}

/// Why a mapping or a solution is refused.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum MappingViolation {
    /// The mapping has another T than the problem.
    #[error("the mapping is for {mapping} threads per worker, the problem has {problem}")]
    OtherThreads {
        /// T of the mapping.
        mapping: u16,
        /// T of the problem.
        problem: u16,
    },
    /// Rule (1): the mapping has too few or too many threads.
    #[error("rule (1): the mapping places {placed} threads, the problem has {requested}")]
    OtherCount {
        /// Entries of the mapping.
        placed: usize,
        requested: usize,
    },
    /// Rule (1): a thread is on a cpu outside the cpuset.
    #[error(
        "rule (1): worker {} rank {} is on cpu {cpu}, outside the cpuset",
        slot.worker.0,
        slot.rank.0
    )]
    OutsideCpuset {
        slot: Slot,
        /// The cpu of the thread.
        cpu: CpuId,
    },
    /// A rule is broken by more than the solution admits.
    #[error("rule ({rule}) is broken by {amount}, the solution admits {admitted}")]
    Broken {
        /// Name of the rule.
        rule: &'static str,
        /// How far the right-hand side would have to move.
        amount: u32,
        /// How far the solution says that it moved.
        admitted: u32,
    },
    /// The stated objective is not that of the mapping.
    #[error("the solution states the objective {stated}, the mapping has {actual}")]
    OtherObjective { stated: i64, actual: i64 },
    /// The stated bound is below the value that was reached.
    #[error("the bound {bound} is below the objective {objective}")]
    BoundTooLow { bound: i64, objective: i64 },
    /// `optimal` is claimed although bound and objective differ.
    #[error("optimal is claimed, but the objective is {objective} and the bound {bound}")]
    NotProven { objective: i64, bound: i64 },
    /// `optimal` is stated without a proof, or a proof without `optimal`.
    #[error(
        "optimal is {}, but the proof is {}",
        if *optimal { "claimed" } else { "not claimed" },
        proof.name()
    )]
    OtherProof { optimal: bool, proof: Proof },
    /// The bound is stated to be counted from the problem, but counting gives a greater one.
    #[error(
        "optimal is claimed by the counted bound {bound}, but a recount gives the bound {counted}"
    )]
    Unconfirmed { bound: i64, counted: i64 },
}

/// The value of a mapping: clock cycles summed over pairs of mains, plus (scatter) or minus
/// (compact) those over pairs of threads of one worker; higher is better.
///
/// # Errors
/// The mapping does not place exactly the problem's threads on the problem's cpus.
pub fn objective(problem: &Problem, mapping: &Mapping) -> Result<i64, Vec<MappingViolation>> {
    Ok(value_of_one(problem, &placed(problem, mapping)?))
}

/// Computes by how much `mapping` breaks each rule of the design, section 4.
///
/// # Errors
/// The mapping does not place exactly the problem's threads on the problem's cpus (rule 1). Every
/// other broken rule is in [`CheckReport::relaxed`]; [`check_solution`] rejects relaxations that
/// were not admitted.
pub fn check(problem: &Problem, mapping: &Mapping) -> Result<CheckReport, Vec<MappingViolation>> {
    Ok(count(problem, &placed(problem, mapping)?))
}

/// Like [`check`], for a mapping that is known to keep rule (1).
pub fn report(problem: &Problem, mapping: &Mapping) -> CheckReport {
    count(problem, &Placed::known(&problem.topology, mapping))
}

/// The objective of the mapping of one deployment.
fn value_of_one(problem: &Problem, placed: &Placed<'_>) -> i64 {
    value(&problem.distances, std::iter::once((problem.mode, placed)))
}

fn count(problem: &Problem, placed: &Placed<'_>) -> CheckReport {
    let threads = PlacedThreads::of(problem, placed);
    let (cpus, cores) = (threads.cpus(), threads.cores());
    let ranks_and_workers = [
        ("2", threads.equal_ranks_apart()),
        ("3", threads.worker_apart()),
    ];
    if !problem.topology.is_uniform() {
        let joint = JointProblem::of_one(problem);
        let uneven = ("8", cpus.beyond(&cpu_volumes(problem)));
        let mut relaxed = relaxations(ranks_and_workers.into_iter().chain([uneven]));
        relaxed.extend(main_rules::relaxed(&joint, std::slice::from_ref(placed)));
        return CheckReport {
            objective: value_of_one(problem, placed),
            relaxed,
        };
    }
    let excesses = [
        ("8", cpus.uneven()),
        ("12", cpus.overloaded_mains()),
        ("8+", cores.uneven()),
        ("mains-per-core", cores.crowded_mains()),
        ("12+", cores.overloaded_mains()),
    ];
    CheckReport {
        objective: value_of_one(problem, placed),
        relaxed: relaxations(ranks_and_workers.into_iter().chain(excesses)),
    }
}

fn relaxations(excesses: impl Iterator<Item = (&'static str, u32)>) -> Vec<Relaxation> {
    excesses
        .filter(|&(_, amount)| amount > 0)
        .map(|(rule, amount)| Relaxation { rule, amount })
        .collect()
}

/// Like [`check`], and verifies the certificate: no rule is broken by more than it admits, the
/// objective is right, bound, `optimal` and proof are consistent with it, and a counted bound that
/// is to prove optimality is confirmed by recounting.
///
/// # Errors
/// All violations that were found.
pub fn check_solution(
    problem: &Problem,
    solution: &Solution,
) -> Result<CheckReport, Vec<MappingViolation>> {
    let report = check(problem, &solution.mapping)?;
    let stated = &solution.certificate;
    let mut violations = certificate_errors(report.objective, &report.relaxed, stated);
    violations.extend(match problem.topology.is_uniform() {
        true => check_proof(problem, stated),
        false => inconsistent_claim(stated)
            .or_else(|| unconfirmed_where_speeds_differ(problem, solution)),
    });
    if violations.is_empty() {
        Ok(report)
    } else {
        Err(violations)
    }
}

/// Returns a violation if a counted bound is to prove optimality and recounting gives more.
fn unconfirmed_where_speeds_differ(
    problem: &Problem,
    solution: &Solution,
) -> Option<MappingViolation> {
    let joint = JointProblem::of_one(problem);
    let mappings = std::slice::from_ref(&solution.mapping);
    several::unconfirmed(&joint, mappings, &solution.certificate)
}

/// Differences between a certificate and the counted figures: relaxations that it does not admit, a
/// wrong objective or a wrong bound.
pub fn certificate_errors(
    actual: i64,
    relaxed: &[Relaxation],
    stated: &Certificate,
) -> Vec<MappingViolation> {
    let mut violations = Vec::new();
    for &Relaxation { rule, amount } in relaxed {
        let admitted = relaxed_by(&stated.relaxed, rule);
        if amount > admitted {
            violations.push(MappingViolation::Broken {
                rule,
                amount,
                admitted,
            });
        }
    }
    let (objective, bound) = (stated.objective, stated.bound);
    if objective != actual {
        let stated = objective;
        violations.push(MappingViolation::OtherObjective { stated, actual });
    }
    if bound < objective {
        violations.push(MappingViolation::BoundTooLow { bound, objective });
    }
    violations
}

/// Returns a violation if the proof that a certificate states does not hold, for any mapping on
/// cores that are equally fast; used by [`check_solution`]. A counted bound that is to prove
/// optimality is recounted.
pub fn check_proof(problem: &Problem, stated: &Certificate) -> Option<MappingViolation> {
    let inconsistent = inconsistent_claim(stated);
    if inconsistent.is_some() || stated.proof != Proof::Bound {
        return inconsistent;
    }
    let (bound, counted) = (stated.bound, counting_bound(problem, &stated.relaxed));
    (counted > bound).then_some(MappingViolation::Unconfirmed { bound, counted })
}

/// Returns a violation if `optimal`, bound and proof of a certificate contradict each other.
pub(super) fn inconsistent_claim(stated: &Certificate) -> Option<MappingViolation> {
    let &Certificate {
        objective,
        bound,
        optimal,
        proof,
        ..
    } = stated;
    if optimal && bound != objective {
        return Some(MappingViolation::NotProven { objective, bound });
    }
    let contradicts = optimal == (proof == Proof::None);
    contradicts.then_some(MappingViolation::OtherProof { optimal, proof })
}

/// Rule (1) for the problem of one deployment.
fn placed<'a>(
    problem: &'a Problem,
    mapping: &Mapping,
) -> Result<Placed<'a>, Vec<MappingViolation>> {
    let size = (problem.workers, problem.threads);
    Placed::of(&problem.topology, None, size, mapping)
}

/// The W x T threads on their cpus.
struct PlacedThreads<'a> {
    workers: u32,
    placed: &'a Placed<'a>,
    /// Number of the core of each cpu.
    core_of: Vec<usize>,
}

impl<'a> PlacedThreads<'a> {
    fn of(problem: &Problem, placed: &'a Placed<'a>) -> Self {
        let cpus = problem.topology.cpus();
        let mut cores: Vec<u32> = cpus.iter().map(|cpu| cpu.core).collect();
        cores.sort_unstable();
        cores.dedup();
        let number = |cpu: &Cpu| cores.partition_point(|&core| core < cpu.core);
        Self {
            workers: problem.workers.into(),
            placed,
            core_of: cpus.iter().map(number).collect(),
        }
    }

    fn cpus(&self) -> Units {
        self.units(self.core_of.len(), |cpu| cpu)
    }

    fn cores(&self) -> Units {
        let count = self.core_of.iter().max().map_or(0, |last| last + 1);
        self.units(count, |cpu| self.core_of[cpu])
    }

    fn units(&self, count: usize, unit: impl Fn(usize) -> usize) -> Units {
        let mut units = Units {
            workers: self.workers,
            threads: self.placed.at.len() as u32,
            volume: vec![0; count],
            mains: vec![0; count],
        };
        for worker in self.placed.workers() {
            units.mains[unit(worker[0])] += 1;
            worker.iter().for_each(|&cpu| units.volume[unit(cpu)] += 1);
        }
        units
    }

    /// Rule (2): equal ranks of different workers are on distinct cpus; where W > C, at most
    /// ceil(W/C) share a cpu.
    fn equal_ranks_apart(&self) -> u32 {
        let ranks = 0..self.placed.threads();
        let limit = self.workers.div_ceil(self.core_of.len() as u32);
        let most = self.most_on_a_cpu(ranks.map(|rank| self.placed.of_rank(rank)));
        most.saturating_sub(limit)
    }

    /// Rule (3): threads of one worker are on distinct cpus; where T > C, at most ceil(T/C) share a
    /// cpu.
    fn worker_apart(&self) -> u32 {
        let workers = self.placed.workers().map(|worker| worker.iter());
        let limit = self.placed.threads().div_ceil(self.core_of.len()) as u32;
        self.most_on_a_cpu(workers).saturating_sub(limit)
    }

    /// The most threads of one group on one cpu.
    fn most_on_a_cpu<'t, G>(&self, groups: impl Iterator<Item = G>) -> u32
    where
        G: Iterator<Item = &'t usize> + Clone,
    {
        let mut held = vec![0; self.core_of.len()];
        let mut most = 0;
        for group in groups {
            for &cpu in group.clone() {
                held[cpu] += 1;
                most = most.max(held[cpu]);
            }
            group.for_each(|&cpu| held[cpu] = 0);
        }
        most
    }
}

/// The units among which threads are divided: cpus or cores.
struct Units {
    workers: u32,
    threads: u32,
    volume: Vec<u32>,
    mains: Vec<u32>,
}

impl Units {
    fn count(&self) -> u32 {
        self.volume.len() as u32
    }

    /// Rules (8) and (8+): every unit holds floor(WT/units) to ceil(WT/units) threads.
    fn uneven(&self) -> u32 {
        let lower = self.threads / self.count();
        let upper = self.threads.div_ceil(self.count());
        let off = |&held: &u32| lower.saturating_sub(held).max(held.saturating_sub(upper));
        self.volume.iter().map(off).max().unwrap_or(0)
    }

    /// Greatest deviation of a unit from its range of threads (fewest, most).
    fn beyond(&self, ranges: &[(u32, u32)]) -> u32 {
        let held = self.volume.iter().zip(ranges);
        let off = held.map(|(&held, &(least, most))| {
            least.saturating_sub(held).max(held.saturating_sub(most))
        });
        off.max().unwrap_or(0)
    }

    /// At most ceil(W/units) mains on one unit; applies to cores only.
    fn crowded_mains(&self) -> u32 {
        let most = self.mains.iter().copied().max().unwrap_or(0);
        most.saturating_sub(self.workers.div_ceil(self.count()))
    }

    /// Rules (9)-(12) and (12+): where the threads exceed the units and leave a remainder r, at
    /// most max(0, W - units + r) units hold both ceil(WT/units) threads and a main. For cores (at
    /// most as many units as cpus) the rule is stated for W <= P; for cpus with W > C its
    /// right-hand side is at least r, so it always holds.
    fn overloaded_mains(&self) -> u32 {
        let rest = self.threads % self.count();
        if rest == 0 || self.threads < self.count() || self.workers > self.count() {
            return 0;
        }
        let full = self.threads.div_ceil(self.count());
        let both = self.volume.iter().zip(&self.mains);
        let both = both.filter(|&(&held, &mains)| held >= full && mains > 0);
        (both.count() as u32).saturating_sub((self.workers + rest).saturating_sub(self.count()))
    }
}
