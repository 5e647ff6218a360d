//! How many workers a process tree has, and how many threads of each compute.
//!
//! For pods whose owner states neither: the number of workers is that of the tree, the number of
//! threads that of the threads which used cpu time. Idle threads of libraries (numpy's pool, a
//! logger) do not count, so a server that has answered no request yet has one thread per worker.

use crate::limits::{BUSY_RATIO, BUSY_TICKS};
use crate::{Observation, Process, Role, Roles, ServerKind, parse_thread_name};

/// Workers, and compute threads of each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ServerShape {
    /// At least 1.
    pub workers: u16,
    /// What at least half of the workers have; at least 1.
    pub threads: u16,
}

/// The shape of the tree; `None` without a worker. `ranks` threads of a worker are taken for
/// compute threads without a look at their cpu times, which are not read then.
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

/// One more than the highest rank that a thread names.
fn named_threads(process: &Process) -> u16 {
    let names = process.threads.iter();
    let ranks = names.filter_map(|thread| Some(parse_thread_name(&thread.comm)?.rank.0));
    ranks.max().map_or(1, |rank| rank.saturating_add(1))
}

/// The main thread, and those that used no less than a tenth of the cpu time of the busiest other.
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
