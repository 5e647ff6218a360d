//! Errors of problems outside the limits. A request that can be run is never rejected.

use crate::limits::{CPUS_MAX, SLOTS_MAX, THREADS_MAX, WORKERS_MAX};
use albacore_topology::DistancesError;

use crate::Problem;

/// Error in a [`Problem`]: names the field, its value and a remedy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemError {
    /// W is 0.
    #[error("workers is 0: a server needs at least 1 worker")]
    NoWorkers,
    /// T is 0.
    #[error("threads is 0: a worker needs at least 1 thread, its main thread")]
    NoThreads,
    /// W is above its limit.
    #[error("workers is {workers}, more than {WORKERS_MAX}: use fewer workers")]
    TooManyWorkers { workers: u16 },
    /// T is above its limit.
    #[error("threads is {threads}, more than {THREADS_MAX}: use fewer threads per worker")]
    TooManyThreads { threads: u16 },
    /// W x T is above its limit.
    #[error(
        "workers x threads is {workers} x {threads} = {slots}, more than {SLOTS_MAX}: \
         lower workers or threads"
    )]
    TooManySlots {
        workers: u16,
        threads: u16,
        slots: u32,
    },
    /// The topology has more cpus than the solver accepts.
    #[error("the topology has {cpus} cpus, more than {CPUS_MAX}: restrict it to a smaller cpuset")]
    TooManyCpus {
        /// Number of cpus of the topology.
        cpus: usize,
    },
    /// The distances do not form a tree, or exceed their limit.
    #[error(transparent)]
    Distances(#[from] DistancesError),
}

/// Rejects a problem that no solver of this crate accepts.
///
/// # Errors
/// Names the count or distance, its value and its limit.
pub fn validate(problem: &Problem) -> Result<(), ProblemError> {
    validate_size(problem.workers, problem.threads)?;
    let cpus = problem.topology.cpus().len();
    if cpus > CPUS_MAX {
        return Err(ProblemError::TooManyCpus { cpus });
    }
    Ok(problem.distances.validate()?)
}

/// Rejects counts that are 0 or above the limits.
///
/// # Errors
/// Names the count, its value and its limit.
pub fn validate_size(workers: u16, threads: u16) -> Result<(), ProblemError> {
    if workers == 0 {
        return Err(ProblemError::NoWorkers);
    }
    if threads == 0 {
        return Err(ProblemError::NoThreads);
    }
    if workers > WORKERS_MAX {
        return Err(ProblemError::TooManyWorkers { workers });
    }
    if threads > THREADS_MAX {
        return Err(ProblemError::TooManyThreads { threads });
    }
    let slots = u32::from(workers) * u32::from(threads);
    if slots > SLOTS_MAX {
        return Err(ProblemError::TooManySlots {
            workers,
            threads,
            slots,
        });
    }
    Ok(())
}
