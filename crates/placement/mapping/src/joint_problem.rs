//! The nouns of joint problems: what is asked ([`JointProblem`]) and what is answered
//! ([`JointSolution`]).

use albacore_topology::{CpuId, CpuSet, Distances, Topology};

use crate::{Certificate, Mapping, Mode, Problem};

/// One server among those that share the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deployment {
    /// W, at least 1.
    pub workers: u16,
    /// T per worker, at least 1.
    pub threads: u16,
    pub mode: Mode,
    /// The cpus that it may use; all of them are cpus of the machine.
    pub cpuset: CpuSet,
    /// The mapping in force, if it runs already; `None`: it is placed freely. May hold cpus that
    /// are gone and may be for another W or T: a thread without a valid cpu is placed anew.
    pub current: Option<Mapping>,
}

/// Load on a cpu that no deployment causes. The cpu need not be in any cpuset: on a sibling
/// outside, it weighs on the core.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Obstacle {
    /// Where, any cpu of the machine.
    pub cpu: CpuId,
    /// As much as so many threads.
    pub weight: u32,
}

/// What is asked: all deployments of one machine, placed together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JointProblem {
    pub topology: Topology,
    /// Distance table, clock cycles.
    pub distances: Distances,
    /// The servers, in any order.
    pub deployments: Vec<Deployment>,
    /// What else runs; entries for the same cpu add up.
    pub obstacles: Vec<Obstacle>,
    /// What moving one thread of a mapping in force costs, in cycles of the objective.
    pub move_cost: u32,
}

impl JointProblem {
    /// A deployment that has the machine to itself; moves cost nothing.
    pub fn of_one(problem: &Problem) -> Self {
        Self {
            topology: problem.topology.clone(),
            distances: problem.distances,
            deployments: vec![Deployment {
                workers: problem.workers,
                threads: problem.threads,
                mode: problem.mode,
                cpuset: problem.topology.cpuset(),
                current: problem.current.clone(),
            }],
            obstacles: Vec::new(),
            move_cost: 0,
        }
    }

    /// The problem of one of its deployments without the others; `None` if its cpuset has no cpu of
    /// the machine.
    pub fn alone(&self, deployment: &Deployment) -> Option<Problem> {
        Some(Problem {
            workers: deployment.workers,
            threads: deployment.threads,
            mode: deployment.mode,
            topology: self.topology.restrict(&deployment.cpuset).ok()?,
            distances: self.distances,
            current: deployment.current.clone(),
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JointSolution {
    /// Where each thread goes; one mapping a deployment, in their order.
    pub mappings: Vec<Mapping>,
    /// How good that is, all together.
    pub certificate: Certificate,
    /// What the deployments that had a valid mapping in force (every thread on a cpu of the cpuset)
    /// gain among themselves, in cycles of the objective: 0 if no thread moved; below 0 where the
    /// rules or a newcomer made them worse.
    pub gained: i64,
    /// Threads of deployments with a mapping in force whose cpu is another one now.
    pub moved: u32,
    /// No answer as good moves fewer, so `moved` is the fewest where both are the same: counted
    /// from what the rules force or, for tiny problems, known because every placement was
    /// enumerated.
    pub moved_least: u32,
}
