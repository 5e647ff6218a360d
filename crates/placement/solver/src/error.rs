//! Why a problem cannot be solved as it was asked. A request that can be run never ends here.

use crate::limits::{CPUS_MAX, SLOTS_MAX, THREADS_MAX, WORKERS_MAX};
use albacore_topology::DistancesError;

use crate::Problem;

/// What is wrong with a [`Problem`]: names the field, its value and the way out.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemError {
    /// W is 0.
    #[error("workers is 0: a server needs at least 1 worker")]
    NoWorkers,
    /// T is 0.
    #[error("threads is 0: a worker needs at least 1 thread, its main thread")]
    NoThreads,
    /// W is beyond its limit.
    #[error("workers is {workers}, more than {WORKERS_MAX}: use fewer workers")]
    TooManyWorkers { workers: u16 },
    /// T is beyond its limit.
    #[error("threads is {threads}, more than {THREADS_MAX}: use fewer threads per worker")]
    TooManyThreads { threads: u16 },
    /// W x T is beyond its limit.
    #[error(
        "workers x threads is {workers} x {threads} = {slots}, more than {SLOTS_MAX}: \
         lower workers or threads"
    )]
    TooManySlots {
        workers: u16,
        threads: u16,
        slots: u32,
    },
    /// The topology has more cpus than the solver takes.
    #[error("the topology has {cpus} cpus, more than {CPUS_MAX}: restrict it to a smaller cpuset")]
    TooManyCpus {
        /// How many it has.
        cpus: usize,
    },
    /// The distances are no tree, or beyond their limit.
    #[error(transparent)]
    Distances(#[from] DistancesError),
}

/// Refuses what no solver of this crate takes.
///
/// # Errors
/// Says which count or distance, its value and its limit.
pub fn validate(problem: &Problem) -> Result<(), ProblemError> {
    validate_size(problem.workers, problem.threads)?;
    let cpus = problem.topology.cpus().len();
    if cpus > CPUS_MAX {
        return Err(ProblemError::TooManyCpus { cpus });
    }
    Ok(problem.distances.validate()?)
}

/// Refuses counts that are nothing or beyond the limits.
///
/// # Errors
/// Says which count, its value and its limit.
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
