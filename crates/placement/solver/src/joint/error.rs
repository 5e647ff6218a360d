//! Errors of joint problems outside the limits.

use std::collections::BTreeSet;

use albacore_topology::{CpuId, CpuSet};

use crate::limits::CPUS_MAX;
use crate::{Deployment, JointProblem};

use crate::limits::{CELLS_MAX, DEPLOYMENTS_MAX, JOINT_SLOTS_MAX, WEIGHT_MAX};
use crate::{ProblemError, validate_size};

/// Error in a [`JointProblem`]: names the deployment (by its index, from 0), the field, its value
/// and a remedy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum JointError {
    /// A deployment is invalid by itself.
    #[error("deployment {deployment}: {error}")]
    Deployment {
        deployment: usize,
        error: ProblemError,
    },
    /// The machine or the distances are invalid for every deployment.
    #[error(transparent)]
    Machine(ProblemError),
    /// A deployment has no cpu.
    #[error("deployment {deployment}: the cpuset is empty: give it at least one cpu")]
    EmptyCpuset { deployment: usize },
    /// A cpuset contains cpus that the machine does not have.
    #[error(
        "deployment {deployment}: the cpuset contains {outside}, which the machine does not \
         have (it has {machine}): remove them"
    )]
    OutsideMachine {
        deployment: usize,
        /// The cpus in question.
        outside: CpuSet,
        machine: CpuSet,
    },
    /// An obstacle is on a cpu that the machine does not have.
    #[error(
        "obstacle {obstacle}: cpu {cpu} is not a cpu of the machine (it has {machine}): \
         remove the obstacle or give the cpu that it runs on"
    )]
    ObstacleOutside {
        /// Index of the obstacle.
        obstacle: usize,
        /// The cpu in question.
        cpu: CpuId,
        machine: CpuSet,
    },
    /// The obstacles of a cpu weigh too much.
    #[error(
        "the obstacles on cpu {cpu} weigh {weight} threads, more than {WEIGHT_MAX}: \
         remove the cpu from the cpusets instead"
    )]
    TooHeavy {
        /// The cpu in question.
        cpu: CpuId,
        /// The sum of their weights.
        weight: u64,
    },
    /// There are too many deployments.
    #[error(
        "there are {deployments} deployments, more than {DEPLOYMENTS_MAX}: place fewer at once"
    )]
    TooManyDeployments { deployments: usize },
    /// All deployments together have too many threads.
    #[error(
        "all deployments together have {slots} threads, more than {JOINT_SLOTS_MAX}: \
         lower workers or threads of some"
    )]
    TooManySlots { slots: u64 },
    /// All deployments together have too many workers for a machine of this size.
    #[error(
        "all deployments together have {workers} workers on {cpus} cpus: the product is more than \
         {CELLS_MAX}: lower workers of some"
    )]
    TooManyWorkers { workers: u64, cpus: usize },
}

/// Rejects problems that the joint solver does not accept.
pub(super) fn validate(problem: &JointProblem) -> Result<(), JointError> {
    let cpus = problem.topology.cpus().len();
    if cpus > CPUS_MAX {
        return Err(JointError::Machine(ProblemError::TooManyCpus { cpus }));
    }
    let distances = problem.distances.validate();
    distances.map_err(|error| JointError::Machine(error.into()))?;
    let deployments = problem.deployments.len();
    if deployments > DEPLOYMENTS_MAX {
        return Err(JointError::TooManyDeployments { deployments });
    }
    let machine = problem.topology.cpuset();
    let (mut slots, mut workers) = (0u64, 0u64);
    for (index, deployment) in problem.deployments.iter().enumerate() {
        validate_one(index, deployment, &machine)?;
        slots += u64::from(deployment.workers) * u64::from(deployment.threads);
        workers += u64::from(deployment.workers);
    }
    if slots > u64::from(JOINT_SLOTS_MAX) {
        return Err(JointError::TooManySlots { slots });
    }
    if workers * cpus as u64 > CELLS_MAX as u64 {
        return Err(JointError::TooManyWorkers { workers, cpus });
    }
    validate_obstacles(problem, &machine)
}

fn validate_one(deployment: usize, spec: &Deployment, machine: &CpuSet) -> Result<(), JointError> {
    validate_size(spec.workers, spec.threads)
        .map_err(|error| JointError::Deployment { deployment, error })?;
    if spec.cpuset.is_empty() {
        return Err(JointError::EmptyCpuset { deployment });
    }
    let outside = spec.cpuset.difference(machine);
    if !outside.is_empty() {
        return Err(JointError::OutsideMachine {
            deployment,
            outside,
            machine: machine.clone(),
        });
    }
    Ok(())
}

fn validate_obstacles(problem: &JointProblem, machine: &CpuSet) -> Result<(), JointError> {
    let mut seen = BTreeSet::new();
    for (index, obstacle) in problem.obstacles.iter().enumerate() {
        let cpu = obstacle.cpu;
        if !machine.contains(cpu) {
            return Err(JointError::ObstacleOutside {
                obstacle: index,
                cpu,
                machine: machine.clone(),
            });
        }
        if seen.insert(cpu) {
            let here = problem.obstacles.iter().filter(|other| other.cpu == cpu);
            let weight: u64 = here.map(|other| u64::from(other.weight)).sum();
            if weight > u64::from(WEIGHT_MAX) {
                return Err(JointError::TooHeavy { cpu, weight });
            }
        }
    }
    Ok(())
}
