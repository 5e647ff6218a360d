//! Hysteresis: whether a better mapping is worth the moves that it requires.
//!
//! **Problem.** A changed cpuset results in another problem, whose optimal mapping may be entirely
//! different; but a thread that is moved finds cold caches, and one that is moved to another NUMA
//! node permanently leaves its memory behind (P26: no component migrates pages). **Approach.** As
//! for deployments that share cpus: a change whose gain is below the cost of its moves is not made.
//! Once the server is warm, moving a thread costs [`MOVE_COST`], or [`NUMA_MOVE_COST`] if it leaves
//! its NUMA node; before, its memory is not populated, and moves are free. Rules have priority: if
//! the mapping in force violates one by more than the new solution, it is replaced. **Limits.** All
//! or nothing: moves with and without gain are weighed together.

use albacore_os::Micros;
use albacore_solver::{
    Certificate, Mapping, Problem, Proof, ProvenBound, Solution, check, relaxed_by,
};
use albacore_topology::CpuId;

use crate::limits::{MOVE_COST, NUMA_MOVE_COST, WARM_UP_TIME};

/// True if a server that started at or after `not_before` has had time to touch its memory.
pub(crate) fn is_warm(not_before: Micros, now: Micros) -> bool {
    now.0.saturating_sub(not_before.0) >= WARM_UP_TIME.as_micros() as u64
}

/// Returns `found`, or the mapping in force if changing to `found` gains less than it costs.
pub(crate) fn apply_move_hysteresis(problem: &Problem, found: Solution, is_warm: bool) -> Solution {
    let Some(current) = &problem.current else {
        return found;
    };
    // The mapping in force has another size, or uses cpus that are offline.
    let Ok(report) = check(problem, current) else {
        return found;
    };
    let admitted = &found.certificate.relaxed;
    if report
        .relaxed
        .iter()
        .any(|r| r.amount > relaxed_by(admitted, r.rule))
    {
        return found;
    }
    let gain = found.certificate.objective - report.objective;
    if gain >= cost(problem, current, &found.mapping, is_warm) {
        return found;
    }
    let bound = found.certificate.bound;
    Solution {
        mapping: current.clone(),
        certificate: Certificate::of(
            report.objective,
            ProvenBound {
                bound,
                proof: Proof::None,
            },
            report.relaxed,
        ),
    }
}

/// Cost of changing from one mapping to another.
fn cost(problem: &Problem, from: &Mapping, to: &Mapping, is_warm: bool) -> i64 {
    let cpus = problem.topology.cpus();
    let numa = |id: CpuId| {
        let at = cpus.binary_search_by_key(&id, |cpu| cpu.id).ok();
        at.and_then(|at| cpus.get(at)).map(|cpu| cpu.numa)
    };
    let moves = from.cpus.iter().zip(&to.cpus).filter(|(a, b)| a != b);
    if !is_warm {
        return 0;
    }
    let costs = moves.map(|(&a, &b)| match numa(a) == numa(b) {
        true => MOVE_COST,
        false => NUMA_MOVE_COST,
    });
    costs.map(i64::from).sum()
}

#[cfg(test)]
mod tests {
    use albacore_solver::{Mode, WorkBudget, solve};
    use albacore_topology::{Distances, Topology, parse_synthetic};

    use super::*;

    /// Two NUMA nodes of four cores with one L3 each.
    fn machine() -> Topology {
        parse_synthetic("pack:2 [numa] l3:1 core:4 pu:1").unwrap()
    }

    /// Workers with one thread each, currently on these cpus.
    fn problem(current: &[u16]) -> Problem {
        Problem {
            workers: current.len() as u16,
            threads: 1,
            mode: Mode::Scatter,
            topology: machine(),
            distances: Distances::default(),
            current: Some(Mapping {
                threads: 1,
                cpus: current.iter().copied().map(CpuId).collect(),
            }),
        }
    }

    fn answer(problem: &Problem, is_warm: bool) -> Solution {
        let found = solve(problem, &mut WorkBudget::unlimited()).unwrap();
        apply_move_hysteresis(problem, found, is_warm)
    }

    #[test]
    fn a_warm_server_stays_with_its_memory_unless_the_rules_force_it() {
        // A distance of 200 instead of 50 cycles gains less than the cost of a move, which is free
        // for a young server.
        let two = problem(&[0, 1]);
        assert_eq!(crossings(&two, &answer(&two, false)), 1);
        let stays = answer(&two, true);
        assert_eq!(Some(&stays.mapping), two.current.as_ref());
        assert!(
            !stays.certificate.optimal && stays.certificate.bound > stays.certificate.objective
        );
        // Moving two of four workers gains 4 x 150: a young server spreads, a warm one stays with
        // its memory.
        let four = problem(&[0, 1, 2, 3]);
        let young = answer(&four, false);
        assert_eq!(crossings(&four, &young), 2);
        let warm = answer(&four, true);
        assert_eq!(Some(&warm.mapping), four.current.as_ref());
        // Two threads on one cpu while others are free: the rules have priority.
        let crowded = problem(&[0, 0]);
        let spread = answer(&crowded, true);
        assert_ne!(spread.mapping.cpus[0], spread.mapping.cpus[1]);
    }

    fn crossings(problem: &Problem, solution: &Solution) -> usize {
        let numa = |id: CpuId| {
            let mut cpus = problem.topology.cpus().iter();
            cpus.find(|cpu| cpu.id == id).unwrap().numa
        };
        let before = problem.current.as_ref().unwrap().cpus.iter();
        let both = before.zip(&solution.mapping.cpus);
        both.filter(|(a, b)| numa(**a) != numa(**b)).count()
    }

    #[test]
    fn ended_subjects_and_other_sizes_are_not_considered() {
        let mut gone = problem(&[0, 1]);
        gone.current.as_mut().unwrap().cpus[0] = CpuId(99);
        assert!(answer(&gone, true).mapping.cpus.iter().all(|cpu| cpu.0 < 8));
        let mut other = problem(&[0, 1]);
        other.workers = 3;
        assert_eq!(answer(&other, true).mapping.cpus.len(), 3);
    }
}
