//! Solves a subject's problem when it changes, within a work budget.

use std::time::{Duration, Instant};

use albacore_plan::{Observation, PlacementMethod, SubjectPolicy, problem};
use albacore_solver::{Mapping, Problem, ProblemError, Solution};
use albacore_topology::{Cpu, Distances};

use crate::limits::JOINT_PERIOD;
use crate::move_hysteresis::{apply_move_hysteresis, is_warm};
use crate::node_problem::place_single;
use crate::solve_rate::SolveRate;

/// The mapping in force, and the problem that it solves.
#[derive(Debug, Default)]
pub(crate) struct SubjectSolver {
    answer: Option<(PlacementMethod, Problem, Solution)>,
    /// The mapping found before the first solution.
    found: Option<Mapping>,
    rate: SolveRate,
    /// Set if the subject is a member of a joint problem: solutions come from `joint_solve`, for
    /// these distances.
    joined: Option<Distances>,
    /// The solution belongs to a joint problem that no longer exists; it is only the start of the
    /// next one.
    is_stale: bool,
    /// The solution is not proven optimal, and no longer search was made for its problem.
    is_improvable: bool,
}

/// Outcome of a request for a mapping.
pub(crate) enum SolveOutcome {
    /// There is nothing to solve: the kernel places the threads, or there is no cpu.
    NotNeeded,
    /// The mapping in force still solves the problem.
    Unchanged,
    /// There is a new mapping, found in this time.
    Solved(Duration),
    /// The problem changed, but solving is rate-limited: try again after this time.
    Deferred(Duration),
}

impl SubjectSolver {
    /// The problem and the mapping in force.
    pub(crate) fn pair(&self) -> Option<(&Problem, &Mapping)> {
        self.answer
            .as_ref()
            .map(|(_, problem, solution)| (problem, &solution.mapping))
    }

    /// Number of main threads on cores slower than the fastest of the cpuset.
    pub(crate) fn slow_mains(&self) -> usize {
        let Some((problem, mapping)) = self.pair() else {
            return 0;
        };
        let cpus = problem.topology.cpus();
        let fastest = cpus.iter().map(|cpu| cpu.capacity).max();
        let is_slow = |cpu: &Cpu| Some(cpu.capacity) < fastest;
        let mains = mapping.iter().filter(|(slot, _)| slot.rank.0 == 0);
        mains
            .filter(|&(_, id)| problem.topology.cpu(id).is_some_and(is_slow))
            .count()
    }

    /// The solution in force.
    pub(crate) fn solution(&self) -> Option<&Solution> {
        self.answer.as_ref().map(|(_, _, solution)| solution)
    }

    /// Sets the mapping from which the first solve starts.
    pub(crate) fn start_from(&mut self, found: Mapping) {
        self.found = Some(found);
    }

    /// The mapping to start from: the one in force, or the one found before the first solution.
    pub(crate) fn current(&self, policy: &SubjectPolicy) -> Option<Mapping> {
        let in_force = self
            .answer
            .as_ref()
            .map(|(_, _, solution)| &solution.mapping);
        let size = usize::from(policy.workers) * usize::from(policy.threads);
        let fits = |found: &&Mapping| found.threads == policy.threads && found.cpus.len() == size;
        in_force.or(self.found.as_ref().filter(fits)).cloned()
    }

    /// Adopts the solution of a joint problem. True if the mapping or the problem changed.
    pub(crate) fn adopt(&mut self, problem: Problem, solution: Solution) -> bool {
        let is_known = self
            .answer
            .as_ref()
            .is_some_and(|(placement, before, known)| {
                *placement == PlacementMethod::Tuna
                    && is_same(before, &problem)
                    && known.mapping == solution.mapping
            });
        self.is_stale = false;
        self.is_improvable = false;
        self.answer = Some((PlacementMethod::Tuna, problem, solution));
        !is_known
    }

    /// The problem whose solution may be improved by a longer search, with that solution as the
    /// current mapping; returned once per solution.
    pub(crate) fn take_improvable(&mut self) -> Option<Problem> {
        if !std::mem::take(&mut self.is_improvable) {
            return None;
        }
        let (_, problem, solution) = self.answer.as_ref()?;
        Some(Problem {
            current: Some(solution.mapping.clone()),
            ..problem.clone()
        })
    }

    /// Adopts the result of a longer search for a problem of [`Self::take_improvable`]. True if the
    /// mapping changed because it was worth its moves.
    pub(crate) fn take_improvement(
        &mut self,
        problem: &Problem,
        found: Solution,
        is_warm: bool,
    ) -> bool {
        let Some((PlacementMethod::Tuna, known, solution)) = &mut self.answer else {
            return false;
        };
        let is_in_force = problem.current.as_ref() == Some(&solution.mapping);
        if !is_in_force || !is_same(known, problem) {
            return false;
        }
        let kept = apply_move_hysteresis(problem, found, is_warm);
        let is_other = kept.mapping != solution.mapping;
        *solution = kept;
        is_other
    }

    /// Replaces the mapping in force by an equally good one in which workers have exchanged their
    /// cpus.
    pub(crate) fn reorder(&mut self, mapping: Mapping) {
        if let Some((_, _, solution)) = &mut self.answer {
            solution.mapping = mapping;
        }
    }

    /// From now on, solutions come from [`SubjectSolver::adopt`], for these distances.
    pub(crate) fn join(&mut self, distances: Distances) {
        self.joined = Some(distances);
    }

    /// From now on, the subject is solved alone. True if it was a member of a joint problem.
    pub(crate) fn leave(&mut self) -> bool {
        let was_joined = self.joined.take().is_some();
        self.is_stale |= was_joined;
        was_joined
    }

    /// Updates the mapping for the policy and the observation.
    pub(crate) fn update(
        &mut self,
        policy: &SubjectPolicy,
        observation: &Observation,
    ) -> Result<SolveOutcome, ProblemError> {
        let current = self.current(policy);
        let Some(mut wanted) = problem(policy, observation, current.as_ref()) else {
            // An empty cpuset is transient: the mapping is the start of the next solve.
            if policy.placement == PlacementMethod::None {
                self.answer = None;
            }
            return Ok(SolveOutcome::NotNeeded);
        };
        if let Some(distances) = self.joined {
            wanted.distances = distances;
        }
        if let Some((placement, problem, _)) = &self.answer
            && *placement == policy.placement
            && is_same(problem, &wanted)
            && !self.is_stale
        {
            return Ok(SolveOutcome::Unchanged);
        }
        if self.joined.is_some() {
            return Ok(SolveOutcome::Deferred(JOINT_PERIOD));
        }
        let start = Instant::now();
        let wait = self.rate.wait(start);
        if !wait.is_zero() {
            return Ok(SolveOutcome::Deferred(wait));
        }
        let solution = place_single(policy.placement, &wanted, is_server_warm(observation))?;
        let took = start.elapsed();
        self.rate.spend(took);
        self.is_stale = false;
        self.is_improvable =
            policy.placement == PlacementMethod::Tuna && !solution.certificate.optimal;
        self.answer = Some((policy.placement, wanted, solution));
        Ok(SolveOutcome::Solved(took))
    }
}

/// True if the server's root process has had time to touch its memory.
fn is_server_warm(observation: &Observation) -> bool {
    let root = observation.processes.first();
    root.is_some_and(|root| is_warm(root.not_before, observation.at))
}

/// True if two problems are equal, except for their current mapping.
fn is_same(a: &Problem, b: &Problem) -> bool {
    let Problem {
        workers,
        threads,
        mode,
        topology,
        distances,
        current: _,
    } = a;
    (*workers, *threads, *mode) == (b.workers, b.threads, b.mode)
        && *topology == b.topology
        && *distances == b.distances
}

#[cfg(test)]
mod tests {
    use albacore_os::Micros;
    use albacore_plan::{Enforcement, MainThread, ServerKind};
    use albacore_solver::{Mode, WorkBudget, improve};
    use albacore_topology::{Topology, parse_synthetic};

    use super::*;
    use crate::limits::IMPROVEMENT_BUDGET;

    fn policy(workers: u16, threads: u16, mode: Mode) -> SubjectPolicy {
        SubjectPolicy {
            workers,
            threads,
            mode,
            placement: PlacementMethod::Tuna,
            enforcement: Enforcement::Enforce,
            main_thread: MainThread::Pinned,
            distances: Default::default(),
            is_pool_size_known: true,
        }
    }

    fn observation(machine: Topology) -> Observation {
        Observation {
            at: Micros(0),
            cpuset: machine.cpuset(),
            machine,
            cpuset_changes: 0,
            server_kind: ServerKind::Named,
            processes: Vec::new(),
        }
    }

    #[test]
    fn main_threads_on_slow_cores_are_counted() {
        let machine = parse_synthetic("pack:1 l3:1 core:4 pu:1").unwrap();
        let slow_from = |first: usize| {
            let mut cpus = machine.cpus().to_vec();
            cpus[first..].iter_mut().for_each(|cpu| cpu.capacity = 500);
            Topology::new(cpus).unwrap()
        };
        let count = |machine: Topology| {
            let policy = policy(3, 1, Mode::Scatter);
            let observation = observation(machine);
            let mut solver = SubjectSolver::default();
            assert_eq!(solver.slow_mains(), 0, "nothing is planned");
            solver.update(&policy, &observation).unwrap();
            solver.slow_mains()
        };
        assert_eq!(count(slow_from(3)), 0);
        assert_eq!(count(slow_from(2)), 1);
        assert_eq!(count(slow_from(0)), 0, "all are equally fast");
    }

    #[test]
    fn an_unproven_answer_is_improved_once_and_adopted_where_that_is_worth_its_moves() {
        let machine = parse_synthetic("pack:1 l3:3 l2:4 core:2 pu:1").unwrap();
        let policy = policy(8, 11, Mode::Compact);
        let observation = observation(machine);
        let solved = || {
            let mut solver = SubjectSolver::default();
            solver.update(&policy, &observation).unwrap();
            let problem = solver.take_improvable().unwrap();
            (solver, problem)
        };
        let (mut young, problem) = solved();
        let value = |solver: &SubjectSolver| solver.solution().unwrap().certificate.objective;
        let before = value(&young);
        assert!(young.take_improvable().is_none(), "one search a problem");
        let mut budget = WorkBudget::of_time(IMPROVEMENT_BUDGET);
        let found = improve(&problem, &mut budget).unwrap();
        assert!(found.certificate.objective > before);
        assert!(young.take_improvement(&problem, found.clone(), false));
        assert_eq!(value(&young), found.certificate.objective);
        let again = young.take_improvement(&problem, found.clone(), false);
        assert!(!again, "another mapping is in force");

        let (mut warm, problem) = solved();
        assert!(!warm.take_improvement(&problem, found.clone(), true));
        assert_eq!(value(&warm), before, "the gain is less than the moves");

        let (mut joined, problem) = solved();
        joined.join(problem.distances);
        let wider = Problem {
            threads: 12,
            ..problem.clone()
        };
        assert!(!joined.take_improvement(&wider, found, false));
    }
}
