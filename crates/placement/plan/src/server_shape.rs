//! Infers the number of workers of a process tree, and the number of compute threads per worker.
//!
//! For pods whose owner specifies neither: the workers are those of the tree, and the compute
//! threads are those that used CPU time. Idle threads of libraries (numpy's pool, a logger) are
//! ignored, so a server that has not answered a request yet has one thread per worker.

use crate::limits::{BUSY_RATIO, BUSY_TICKS};
use crate::{Observation, Process, Role, Roles, ServerKind, parse_thread_name};

/// Number of workers, and of compute threads per worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerShape {
    /// At least 1.
    pub workers: u16,
    /// The number that at least half of the workers reach; at least 1.
    pub threads: u16,
}

/// The shape of the tree; `None` without workers. Up to `ranks` threads of a worker count as
/// compute threads regardless of their CPU time, which is not read in that case.
pub(crate) fn server_shape(
    observation: &Observation,
    roles: &Roles,
    ranks: u16,
) -> Option<ServerShape> {
    let workers = observation.processes.iter();
    let mut threads: Vec<u16> = workers
        .filter(|process| roles.of(process) == Role::Worker)
        .map(|process| match observation.server_kind {
            ServerKind::Named => named_threads(process),
            ServerKind::PreFork => computing_threads(process, ranks),
        })
        .collect();
    threads.sort_unstable_by_key(|&count| std::cmp::Reverse(count));
    let middle = threads.len().checked_sub(1)? / 2;
    Some(ServerShape {
        workers: u16::try_from(threads.len()).unwrap_or(u16::MAX),
        threads: *threads.get(middle)?,
    })
}

/// The highest rank in the thread names, plus one.
fn named_threads(process: &Process) -> u16 {
    let names = process.threads.iter();
    let ranks = names.filter_map(|thread| Some(parse_thread_name(&thread.comm)?.rank.0));
    ranks.max().map_or(1, |rank| rank.saturating_add(1))
}

/// Counts the main thread, and those with at least a tenth of the CPU time of the busiest other
/// thread.
fn computing_threads(process: &Process, ranks: u16) -> u16 {
    let count = |threads: usize| u16::try_from(threads).unwrap_or(u16::MAX).max(1);
    if process.threads.len() <= usize::from(ranks) {
        return count(process.threads.len());
    }
    let main = process.id.pid.0;
    let peers = || process.threads.iter().filter(|t| t.id.tid.0 != main);
    let most = peers().map(|thread| thread.cpu_ticks).max().unwrap_or(0);
    let least = BUSY_TICKS.max(most / BUSY_RATIO);
    count(1 + peers().filter(|thread| thread.cpu_ticks >= least).count())
}

#[cfg(test)]
mod tests;
