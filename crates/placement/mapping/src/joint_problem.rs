//! Types of the joint problem ([`JointProblem`]) and its solution ([`JointSolution`]).

use albacore_topology::{CpuId, CpuSet, Distances, Topology};

use crate::{Certificate, Mapping, Mode, Problem};

/// One of the servers that share the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deployment {
    /// W, at least 1.
    pub workers: u16,
    /// T per worker, at least 1.
    pub threads: u16,
    pub mode: Mode,
    /// The cpus that it may use; all of them are cpus of the machine.
    pub cpuset: CpuSet,
    /// The mapping in force, if the server is running; `None` if it is placed freely. May contain
    /// cpus that no longer exist and may be for another W or T: a thread without a valid cpu is
    /// placed anew.
    pub current: Option<Mapping>,
}

/// Load on a cpu that no deployment causes. The cpu need not be in any cpuset: on an SMT sibling
/// outside of the cpusets, it adds to the load of the core.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Obstacle {
    /// Any cpu of the machine.
    pub cpu: CpuId,
    /// Load as a number of threads.
    pub weight: u32,
}

/// Placement problem of all deployments of one machine together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JointProblem {
    pub topology: Topology,
    /// Distance table, clock cycles.
    pub distances: Distances,
    /// The servers, in any order.
    pub deployments: Vec<Deployment>,
    /// Other load on the machine; entries for the same cpu add up.
    pub obstacles: Vec<Obstacle>,
    /// Cost of moving one thread of a mapping in force, in cycles of the objective.
    pub move_cost: u32,
}

impl JointProblem {
    /// The joint problem of a deployment that is alone on the machine; moves cost nothing.
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

    /// The problem of one deployment without the others; `None` if its cpuset contains no cpu of
    /// the machine.
    pub fn single_problem(&self, deployment: &Deployment) -> Option<Problem> {
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
    /// One mapping per deployment, in their order.
    pub mappings: Vec<Mapping>,
    /// Quality of all mappings together.
    pub certificate: Certificate,
    /// Gain of the deployments that had a valid mapping in force (every thread on a cpu of the
    /// cpuset), counting only pairs among them, in cycles of the objective: 0 if no thread moved;
    /// negative if the rules or a new deployment made them worse.
    pub gained: i64,
    /// Number of threads of mappings in force whose cpu has changed.
    pub moved: u32,
    /// Lower bound on the moves of any equally good solution, so `moved` is minimal if both are
    /// equal. Counted from what the rules force or, for tiny problems, found by enumeration of all
    /// placements.
    pub moved_least: u32,
}
