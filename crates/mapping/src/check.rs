//! Is this mapping an answer, and is it as good as it is said to be? Judged by code that the solver
//! does not share.
//!
//! **Problem.** A mapping decides where a server runs; neither a solver's bug nor a stale answer
//! may reach a kernel. **Approach.** Count from the mapping alone, with the rules as they are
//! written in the source article (numbers in brackets): no tree, no reduction, distances pair by
//! pair. Every rule yields one figure: how far its right-hand side would have to move for the
//! mapping to keep it. [`check`] reports the figures, [`check_solution`] compares them with what a
//! [`Solution`] admits. **Proof sketch.** Each `fn` below is one constraint. **Limits.** Quadratic
//! in T and W. A bound that is said to be counted is counted again (`check_bound`) where it is to prove
//! something; one that was found by prices or by a search is compared with the value only.

use std::collections::BTreeMap;

use albacore_topology::{Cpu, CpuId, Topology};

use crate::{
    Certificate, Mapping, Mode, Problem, Proof, Relaxation, Slot, Solution, counted_bound,
};

/// What [`check`] found of a mapping that places every thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckReport {
    /// Its value: clock cycles summed over pairs, higher is better.
    pub objective: i64,
    /// Every rule that it does not keep and how far the right-hand side would have to move; empty:
    /// all are kept.
    pub relaxed: Vec<Relaxation>,
}

/// Why a mapping or a solution is refused.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Violation {
    /// The mapping has another T than the problem.
    #[error("the mapping is for {mapping} threads per worker, the problem has {problem}")]
    OtherThreads {
        /// T of the mapping.
        mapping: u16,
        /// T of the problem.
        problem: u16,
    },
    /// Rule (1): not every thread has a cpu, or there are threads too many.
    #[error("rule (1): the mapping places {placed} threads, the problem has {asked}")]
    OtherCount {
        /// Entries of the mapping.
        placed: usize,
        /// W x T.
        asked: usize,
    },
    /// Rule (1): a thread is on a cpu outside the cpuset.
    #[error(
        "rule (1): worker {} rank {} is on cpu {cpu}, outside the cpuset",
        slot.worker.0,
        slot.rank.0
    )]
    OutsideCpuset {
        /// The thread.
        slot: Slot,
        /// Where it was put.
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
    OtherObjective {
        /// As stated.
        stated: i64,
        /// Counted here.
        actual: i64,
    },
    /// The stated bound is below the value that was reached.
    #[error("the bound {bound} is below the objective {objective}")]
    BoundTooLow {
        /// As stated.
        bound: i64,
        /// As stated.
        objective: i64,
    },
    /// `optimal` is claimed although bound and objective differ.
    #[error("optimal is claimed, but the objective is {objective} and the bound {bound}")]
    NotProven {
        /// As stated.
        objective: i64,
        /// As stated.
        bound: i64,
    },
    /// `optimal` goes without a proof, or a proof without `optimal`.
    #[error(
        "optimal is {}, but the proof is {}",
        if *optimal { "claimed" } else { "not claimed" },
        proof.name()
    )]
    OtherProof {
        /// As stated.
        optimal: bool,
        /// As stated.
        proof: Proof,
    },
    /// The bound is said to be counted from the problem, and counting gives a greater one.
    #[error(
        "optimal is claimed by the counted bound {bound}, but counting gives no less than {counted}"
    )]
    Unconfirmed {
        /// As stated.
        bound: i64,
        /// Counted here.
        counted: i64,
    },
}

/// The value of a mapping: clock cycles summed over pairs of mains, plus (scatter) or minus
/// (compact) those over pairs of threads of one worker; higher is better.
///
/// # Errors
/// The mapping does not place exactly the problem's threads on the problem's cpus.
pub fn objective(problem: &Problem, mapping: &Mapping) -> Result<i64, Vec<Violation>> {
    Ok(value(problem, &placed(problem, mapping)?))
}

/// Counts every rule of the design, section 4, in `mapping`.
///
/// # Errors
/// The mapping does not place exactly the problem's threads on the problem's cpus (rule 1). Every
/// other rule that is broken is in [`CheckReport::relaxed`]; [`check_solution`] refuses what was
/// not admitted.
pub fn check(problem: &Problem, mapping: &Mapping) -> Result<CheckReport, Vec<Violation>> {
    Ok(count(problem, &placed(problem, mapping)?))
}

/// The report on a mapping made of the problem's own cpus, one for each thread.
pub(crate) fn report(problem: &Problem, mapping: &Mapping) -> CheckReport {
    let known = mapping
        .iter()
        .filter_map(|(slot, cpu)| Some((slot, problem.topology.cpu(cpu)?)));
    count(problem, &known.collect::<Vec<_>>())
}

fn count(problem: &Problem, placed: &[Placed<'_>]) -> CheckReport {
    let size = Size::of(problem);
    let excesses = [
        ("2", equal_ranks_apart(&size, placed)),
        ("3", worker_apart(&size, placed)),
        (
            "8",
            volume(&size, size.cpus, problem, placed, |cpu| u32::from(cpu.id.0)),
        ),
        (
            "12",
            overloaded_mains(&size, size.cpus, placed, |cpu| u32::from(cpu.id.0)),
        ),
        (
            "8+",
            volume(&size, size.cores, problem, placed, |cpu| cpu.core),
        ),
        ("mains-per-core", mains_per_core(&size, placed)),
        (
            "12+",
            overloaded_mains(&size, size.cores, placed, |cpu| cpu.core),
        ),
    ];
    let relaxed = excesses
        .into_iter()
        .filter(|&(_, amount)| amount > 0)
        .map(|(rule, amount)| Relaxation { rule, amount })
        .collect();
    CheckReport {
        objective: value(problem, placed),
        relaxed,
    }
}

/// [`check`], and the mapping keeps what its certificate says: no rule is broken by more than it
/// admits, the objective is right, bound, `optimal` and proof do not contradict it, and a counted bound
/// that is to prove the mapping best is confirmed by counting.
///
/// # Errors
/// Everything that is not so.
pub fn check_solution(
    problem: &Problem,
    solution: &Solution,
) -> Result<CheckReport, Vec<Violation>> {
    let report = check(problem, &solution.mapping)?;
    let stated = &solution.certificate;
    let mut violations = Vec::new();
    for &Relaxation { rule, amount } in &report.relaxed {
        let admitted = stated
            .relaxed
            .iter()
            .find(|r| r.rule == rule)
            .map_or(0, |relaxed| relaxed.amount);
        if amount > admitted {
            violations.push(Violation::Broken {
                rule,
                amount,
                admitted,
            });
        }
    }
    let (objective, bound) = (stated.objective, stated.bound);
    if objective != report.objective {
        violations.push(Violation::OtherObjective {
            stated: objective,
            actual: report.objective,
        });
    }
    if bound < objective {
        violations.push(Violation::BoundTooLow { bound, objective });
    }
    violations.extend(unproven(problem, stated));
    if violations.is_empty() {
        Ok(report)
    } else {
        Err(violations)
    }
}

/// What is wrong with what a certificate says of its proof, for any mapping: [`check_solution`] asks
/// it too. A counted bound that is to prove something is counted again.
pub fn unproven(problem: &Problem, stated: &Certificate) -> Option<Violation> {
    let contradiction = contradiction(stated);
    if contradiction.is_some() || stated.proof != Proof::Bound {
        return contradiction;
    }
    let (bound, counted) = (stated.bound, counted_bound(problem, &stated.relaxed));
    (counted > bound).then_some(Violation::Unconfirmed { bound, counted })
}

/// Where `optimal`, bound and proof of a certificate contradict each other.
pub fn contradiction(stated: &Certificate) -> Option<Violation> {
    let &Certificate {
        objective,
        bound,
        optimal,
        proof,
        ..
    } = stated;
    if optimal && bound != objective {
        return Some(Violation::NotProven { objective, bound });
    }
    let contradicts = optimal == (proof == Proof::None);
    contradicts.then_some(Violation::OtherProof { optimal, proof })
}

/// W, T and how many cpus and cores there are to share.
struct Size {
    workers: u32,
    threads: u32,
    cpus: u32,
    cores: u32,
}

impl Size {
    fn of(problem: &Problem) -> Self {
        Self {
            workers: problem.workers.into(),
            threads: problem.threads.into(),
            cpus: problem.topology.cpus().len() as u32,
            cores: problem.topology.core_count() as u32,
        }
    }
}

/// A thread and its cpu.
type Placed<'a> = (Slot, &'a Cpu);

/// Rule (1): every thread of the problem on exactly one of its cpus.
fn placed<'a>(problem: &'a Problem, mapping: &Mapping) -> Result<Vec<Placed<'a>>, Vec<Violation>> {
    if mapping.threads != problem.threads {
        let (mapping, problem) = (mapping.threads, problem.threads);
        return Err(vec![Violation::OtherThreads { mapping, problem }]);
    }
    let asked = usize::from(problem.workers) * usize::from(problem.threads);
    if mapping.cpus.len() != asked {
        return Err(vec![Violation::OtherCount {
            placed: mapping.cpus.len(),
            asked,
        }]);
    }
    let mut placed = Vec::with_capacity(asked);
    let mut violations = Vec::new();
    for (slot, cpu) in mapping.iter() {
        match problem.topology.cpu(cpu) {
            Some(cpu) => placed.push((slot, cpu)),
            None => violations.push(Violation::OutsideCpuset { slot, cpu }),
        }
    }
    if violations.is_empty() {
        Ok(placed)
    } else {
        Err(violations)
    }
}

/// How many times each key occurs.
fn tally<K: Ord>(keys: impl Iterator<Item = K>) -> BTreeMap<K, u32> {
    let mut counts = BTreeMap::new();
    for key in keys {
        *counts.entry(key).or_insert(0) += 1;
    }
    counts
}

/// The most above `limit` among `counts`.
fn excess<K: Ord>(counts: &BTreeMap<K, u32>, limit: u32) -> u32 {
    counts
        .values()
        .map(|count| count.saturating_sub(limit))
        .max()
        .unwrap_or(0)
}

/// Rule (2): equal ranks of different workers on distinct cpus; at most ceil(W/C) together where W
/// > C.
fn equal_ranks_apart(size: &Size, placed: &[Placed<'_>]) -> u32 {
    let counts = tally(placed.iter().map(|(slot, cpu)| (slot.rank, cpu.id)));
    excess(&counts, size.workers.div_ceil(size.cpus))
}

/// Rule (3): threads of one worker on distinct cpus; at most ceil(T/C) together where T > C.
fn worker_apart(size: &Size, placed: &[Placed<'_>]) -> u32 {
    let counts = tally(placed.iter().map(|(slot, cpu)| (slot.worker, cpu.id)));
    excess(&counts, size.threads.div_ceil(size.cpus))
}

/// Rules (8) and (8+): every unit (cpu or core) holds floor(WT/units) to ceil(WT/units) threads.
fn volume(
    size: &Size,
    units: u32,
    problem: &Problem,
    placed: &[Placed<'_>],
    unit: fn(&Cpu) -> u32,
) -> u32 {
    let threads = size.workers * size.threads;
    let (lower, upper) = (threads / units, threads.div_ceil(units));
    let counts = tally(placed.iter().map(|(_, cpu)| unit(cpu)));
    let of = |cpu: &Cpu| counts.get(&unit(cpu)).copied().unwrap_or(0);
    let off = |count: u32| lower.saturating_sub(count).max(count.saturating_sub(upper));
    problem
        .topology
        .cpus()
        .iter()
        .map(|cpu| off(of(cpu)))
        .max()
        .unwrap_or(0)
}

/// At most ceil(W/P) mains on one core.
fn mains_per_core(size: &Size, placed: &[Placed<'_>]) -> u32 {
    let mains = placed.iter().filter(|(slot, _)| slot.rank.0 == 0);
    excess(
        &tally(mains.map(|(_, cpu)| cpu.core)),
        size.workers.div_ceil(size.cores),
    )
}

/// Rules (9)-(12) and (12+): where the threads exceed the units and leave a remainder r, at most
/// max(0, W - units + r) units hold both ceil(WT/units) threads and a main. For cores (fewer units
/// than cpus, or as many) the rule is stated for W <= P; for cpus with W > C its right-hand side is
/// at least r and it holds of itself.
fn overloaded_mains(size: &Size, units: u32, placed: &[Placed<'_>], unit: fn(&Cpu) -> u32) -> u32 {
    let threads = size.workers * size.threads;
    let rest = threads % units;
    if rest == 0 || threads < units || size.workers > units {
        return 0;
    }
    let counts = tally(placed.iter().map(|(_, cpu)| unit(cpu)));
    let mains = placed.iter().filter(|(slot, _)| slot.rank.0 == 0);
    let holds_main = tally(mains.map(|(_, cpu)| unit(cpu)));
    let full = threads.div_ceil(units);
    let both = holds_main
        .keys()
        .filter(|unit| counts.get(unit).copied() >= Some(full))
        .count();
    (both as u32).saturating_sub((size.workers + rest).saturating_sub(units))
}

/// The objective, pair by pair.
fn value(problem: &Problem, placed: &[Placed<'_>]) -> i64 {
    let mains: Vec<&Cpu> = placed
        .iter()
        .filter(|(slot, _)| slot.rank.0 == 0)
        .map(|&(_, cpu)| cpu)
        .collect();
    let within: i64 = placed
        .chunks(usize::from(problem.threads).max(1))
        .map(|worker| {
            let cpus: Vec<&Cpu> = worker.iter().map(|&(_, cpu)| cpu).collect();
            pair_distances(problem, &cpus)
        })
        .sum();
    pair_distances(problem, &mains)
        + match problem.mode {
            Mode::Scatter => within,
            Mode::Compact => -within,
        }
}

fn pair_distances(problem: &Problem, cpus: &[&Cpu]) -> i64 {
    let mut sum = 0;
    for (i, a) in cpus.iter().enumerate() {
        for b in &cpus[i + 1..] {
            sum += i64::from(Topology::distance(a, b, &problem.distances));
        }
    }
    sum
}
