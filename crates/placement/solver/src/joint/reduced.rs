//! The integer program of small problems of several deployments.
//!
//! **Problem.** Search and counted bound do not meet, and there are too many placements to
//! enumerate. **Approach.** As for one deployment (`single::reduced`): `x[w,c]` threads of a worker
//! on a cpu of its cpuset and `m[w,c]` its main. Rules: (3) bounds x[w,c], (2) is the condition of
//! `rank_coloring` for each deployment, (8) and (8+) are ranges and sums of loads (`load_ranges`),
//! and those on mains are relaxed as far as the start breaks them. Symmetry is broken by ordering
//! the workers of one deployment by their mains, and interchangeable domains by their loads
//! (`symmetry`). Workers of one thread are counted by cpu. Domains with the same cpus of a worker
//! are counted once. **Proof sketch.** Every balanced placement, once ordered, gives such x and m
//! with the same value, and conversely. microlp computes in floating point: its answer is accepted
//! only if counting confirms it, and its proof only together with that answer. **Limits.** Only if
//! nothing runs yet, so that moves do not count, and cores are equally fast; up to
//! [`REDUCED_VARIABLES_MAX`] integer variables, for [`REDUCED_SECONDS_MAX`]. The proof covers
//! placements that break the rules on mains no further than the start.

mod model;
mod symmetry;
#[cfg(test)]
mod tests;

use super::enumerate::RuleExcess;
use super::instance::Instance;
use super::rules::Rules;
use super::volumes::JointVolumes;
use crate::integer_program::{Solved, WorkerColumns};
use crate::limits::{REDUCED_SECONDS_MAX, REDUCED_VARIABLES_MAX};
use model::{JointModel, has_at_most, magnitude, rows};
use symmetry::in_canonical_order;

/// Result of the program.
pub(super) struct FoundThreads {
    /// Position of each thread, ordered by worker with the main first.
    pub(super) threads: Vec<u16>,
    pub(super) proven: bool,
}

/// Whether the problem has a program that is small enough to be solved.
pub(super) fn is_small(instance: &Instance) -> bool {
    !instance.has_running()
        && instance.fill_order.is_uniform()
        && has_at_most(instance, REDUCED_VARIABLES_MAX)
}

/// The placement from which the program starts.
#[derive(Clone, Copy)]
pub(super) struct Start<'a> {
    /// By how much it breaks the rules on mains.
    pub(super) excess: RuleExcess,
    /// Position of every slot, tenant by tenant.
    pub(super) places: &'a [u16],
}

/// Solves the program of a small problem.
pub(super) fn solve_reduced(
    instance: &Instance,
    rules: &Rules,
    volume: &JointVolumes,
    start: Start<'_>,
) -> Option<FoundThreads> {
    solve_within(instance, rules, volume, start, REDUCED_SECONDS_MAX)
}

fn solve_within(
    instance: &Instance,
    rules: &Rules,
    volume: &JointVolumes,
    start: Start<'_>,
    seconds: f64,
) -> Option<FoundThreads> {
    let program = JointModel::of(instance, rules, volume, start.excess);
    let start = in_columns(instance, &in_canonical_order(instance, start.places))?;
    let Solved { workers, proven } = program.solve(&start, magnitude(instance), seconds)?;
    let mut threads = Vec::with_capacity(instance.slots);
    let mut workers = workers.into_iter();
    for tenant in &instance.tenants {
        for (main, peers) in workers.by_ref().take(rows(tenant)) {
            if 1 + peers.len() != tenant.slots() / rows(tenant) {
                return None;
            }
            let columns = std::iter::once(main).chain(peers);
            threads.extend(columns.map(|column| tenant.cpus[usize::from(column)]));
        }
    }
    Some(FoundThreads { threads, proven })
}

/// The workers of a placement by the columns of their cpusets, those of a tenant ordered by their
/// mains; all workers of one thread are merged into one, the first as its main.
fn in_columns(instance: &Instance, places: &[u16]) -> Option<Vec<WorkerColumns>> {
    let mut workers = Vec::with_capacity(instance.workers);
    let mut first = 0;
    for tenant in &instance.tenants {
        let column = |cpu: &u16| tenant.cpus.binary_search(cpu).ok().map(|at| at as u16);
        let mut own = Vec::with_capacity(tenant.workers);
        let of_row = tenant.slots() / rows(tenant);
        for worker in places[first..first + tenant.slots()].chunks(of_row) {
            let columns: Option<Vec<u16>> = worker.iter().map(column).collect();
            let mut columns = columns?.into_iter();
            own.push((columns.next()?, columns.collect()));
        }
        first += tenant.slots();
        own.sort();
        workers.extend(own);
    }
    Some(workers)
}

/// Whether threads, ordered by worker with the main first, keep (3) and the conditions on ranks for
/// (2).
pub(super) fn keeps_caps(instance: &Instance, threads: &[u16]) -> bool {
    let mut first = 0;
    instance.tenants.iter().all(|tenant| {
        let own = &threads[first..first + tenant.slots()];
        first += tenant.slots();
        let (mut mains, mut peers) = (vec![0; instance.cpus], vec![0; instance.cpus]);
        own.chunks(tenant.threads).all(|worker| {
            let mut held = vec![0; instance.cpus];
            worker.iter().enumerate().all(|(rank, &cpu)| {
                let cpu = usize::from(cpu);
                held[cpu] += 1;
                if rank == 0 {
                    mains[cpu] += 1;
                } else {
                    peers[cpu] += 1;
                }
                tenant.allows[cpu]
                    && held[cpu] <= tenant.worker_cap
                    && mains[cpu] <= tenant.rank_cap
                    && peers[cpu] <= tenant.peers_cap()
            })
        })
    })
}
