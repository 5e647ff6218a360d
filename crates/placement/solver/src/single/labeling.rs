//! Labels an assignment: assigns rows of cpus to workers, and ranks to peers.
//!
//! **Problem.** An assignment consists of rows of cpus; workers are interchangeable and so are
//! ranks, so many mappings are the same assignment. **Approach.** With a mapping in force, rows are
//! matched to the workers that keep most threads with them, and peers that stay keep their ranks as
//! far as the coloring allows. Without one, rows are sorted and the ranks are those for which the
//! first row is ascending: the lexicographically smallest labels of the colored assignment. **Proof
//! sketch.** No rule distinguishes workers or the ranks of peers, so every labeling has the same
//! value. **Limits.** Rows are matched greedily: few moves, not always the fewest.

use std::cmp::Reverse;

use albacore_topology::CpuId;

use crate::labeling::{NO_CPU, Threads};
use crate::single::assignment::Assignment;
use crate::single::domains::Domains;
use crate::single::symmetry::canonical_cpus;
use crate::{Mapping, Problem};

/// Assigns a worker to every row, a rank to every peer and a cpu id to every position.
pub(crate) fn label(problem: &Problem, domains: &Domains, assignment: &Assignment) -> Mapping {
    let current = in_force(problem, domains);
    let threads = Threads {
        threads: domains.threads,
        cpus: domains.cpus,
        rank_cap: domains.rules.rank_cap as usize,
        places: &rows(domains, assignment, &current).concat(),
        current: &current,
    };
    let id = |&position: &u16| domains.ids[usize::from(position)];
    let mut cpus: Vec<CpuId> = threads.ranked().iter().map(id).collect();
    if current.is_empty() {
        sort_labels(&mut cpus, domains.threads);
        cpus = canonical_cpus(domains, &cpus);
        sort_labels(&mut cpus, domains.threads);
    }
    Mapping {
        threads: problem.threads,
        cpus,
    }
}

/// The assignment with its rows matched to the workers that keep most threads.
pub(crate) fn align_to_current(
    problem: &Problem,
    domains: &Domains,
    assignment: &Assignment,
) -> Assignment {
    let rows = rows(domains, assignment, &in_force(problem, domains));
    Assignment {
        mains: rows.iter().map(|row| row[0]).collect(),
        peers: rows.iter().map(|row| row[1..].to_vec()).collect(),
    }
}

/// The position of every slot of the mapping in force, if its workers have the same number of
/// threads; [`NO_CPU`] where its cpu is gone. Empty if there is none.
fn in_force(problem: &Problem, domains: &Domains) -> Vec<u16> {
    let current = problem.current.iter();
    let current = current.filter(|current| current.threads == problem.threads);
    let ids = current.flat_map(|current| &current.cpus);
    ids.map(|&id| domains.position(id).unwrap_or(NO_CPU))
        .collect()
}

/// The positions of one worker's threads, the main first.
type Row = Vec<u16>;

/// The rows of an assignment, worker by worker.
fn rows(domains: &Domains, assignment: &Assignment, current: &[u16]) -> Vec<Row> {
    let workers = assignment.mains.iter().zip(&assignment.peers);
    let mut rows: Vec<Row> = workers
        .map(|(&main, peers)| std::iter::once(main).chain(peers.iter().copied()).collect())
        .collect();
    let id = |&position: &u16| domains.ids[usize::from(position)];
    rows.sort_by_cached_key(|row| row.iter().map(id).collect::<Vec<_>>());
    if current.is_empty() {
        rows
    } else {
        match_rows_to_workers(rows, current)
    }
}

/// Number of threads of a worker on the positions `before` that could stay.
fn unmoved_threads(row: &Row, before: &[u16]) -> usize {
    let Some((main, peers)) = before.split_first() else {
        return 0;
    };
    let mut left = row[1..].to_vec();
    let mut kept = usize::from(row[0] == *main);
    for peer in peers {
        if let Some(same) = left.iter().position(|position| position == peer) {
            left.swap_remove(same);
            kept += 1;
        }
    }
    kept
}

/// Orders the rows so that workers keep many of their threads: greedy matching, the best pair
/// first.
fn match_rows_to_workers(rows: Vec<Row>, current: &[u16]) -> Vec<Row> {
    let count = rows.len();
    let mut pairs: Vec<(Reverse<usize>, usize, usize)> = Vec::with_capacity(count * count);
    for worker in 0..count {
        let threads = rows[worker].len();
        let before = current.get(worker * threads..(worker + 1) * threads);
        for (row, positions) in rows.iter().enumerate() {
            let kept = unmoved_threads(positions, before.unwrap_or_default());
            pairs.push((Reverse(kept), worker, row));
        }
    }
    pairs.sort_unstable();
    let mut of_worker: Vec<Option<usize>> = vec![None; count];
    let mut taken = vec![false; count];
    for (_, worker, row) in pairs {
        if of_worker[worker].is_none() && !taken[row] {
            of_worker[worker] = Some(row);
            taken[row] = true;
        }
    }
    let mut rows: Vec<Option<Row>> = rows.into_iter().map(Some).collect();
    of_worker
        .into_iter()
        .flatten()
        .filter_map(|row| rows[row].take())
        .collect()
}

/// Chooses ranks such that the first row is ascending, then workers such that rows are ascending.
fn sort_labels(cpus: &mut Vec<CpuId>, threads: usize) {
    let mut rows: Vec<Vec<CpuId>> = cpus.chunks(threads).map(<[CpuId]>::to_vec).collect();
    let Some(first) = rows.iter().min_by_key(|row| row[0]).cloned() else {
        return;
    };
    let mut order: Vec<usize> = (0..threads).collect();
    order[1..].sort_by_key(|&rank| first[rank]);
    for row in &mut rows {
        *row = order.iter().map(|&rank| row[rank]).collect();
    }
    rows.sort();
    *cpus = rows.concat();
}
