//! Labels an assignment: which worker has which row of cpus, which peer has which rank.
//!
//! **Problem.** An assignment gives rows of cpus; workers are interchangeable and so are ranks, so
//! many mappings are the same assignment. **Approach.** With a mapping in force, rows go to the
//! workers of which they keep most threads, and peers that stay keep their ranks as far as the
//! coloring allows. Without one, rows are sorted and the ranks are those that make the first row
//! ascend: the lexicographically smallest labels of the colored assignment. **Proof sketch.** No
//! rule distinguishes workers or the ranks of peers, so every labeling has the same value.
//! **Limits.** Rows are matched greedily: few moves, not always the fewest.

use std::cmp::Reverse;

use albacore_topology::CpuId;

use crate::rank_coloring::Peers;
use crate::single::assignment::Assignment;
use crate::single::domains::Domains;
use crate::single::symmetry::canonical_cpus;
use crate::{Mapping, Problem};

/// Gives every row a worker, every peer a rank and every position its cpu's id.
pub(crate) fn label(problem: &Problem, domains: &Domains, assignment: &Assignment) -> Mapping {
    let (threads, current) = (domains.threads, in_force(problem));
    let rows = rows(problem, domains, assignment);
    let mut edges: Vec<(u16, u16)> = Vec::new();
    let mut ids: Vec<(usize, CpuId)> = Vec::new();
    let mut ranks: Vec<Option<u16>> = Vec::new();
    for (worker, row) in rows.iter().enumerate() {
        let before = current
            .and_then(|current| row_of(current, worker))
            .unwrap_or(&[]);
        let mut before: Vec<Option<CpuId>> = before.iter().skip(1).copied().map(Some).collect();
        for &(peer, cpu) in &row.peers {
            let same = before.iter().position(|&other| other == Some(cpu));
            if let Some(same) = same {
                before[same] = None;
            }
            edges.push((worker as u16, peer));
            ids.push((worker, cpu));
            ranks.push(same.map(|same| same as u16));
        }
    }
    let peers = Peers {
        workers: domains.workers,
        threads,
        cpus: domains.cpus,
        rank_cap: domains.rules.rank_cap as usize,
        edges: &edges,
        preferred: &ranks,
    };
    let colors = peers.ranks();
    let mut cpus: Vec<CpuId> = rows
        .iter()
        .flat_map(|row| std::iter::repeat_n(row.main.1, threads))
        .collect();
    for (&(worker, cpu), &color) in ids.iter().zip(&colors) {
        cpus[worker * threads + 1 + usize::from(color)] = cpu;
    }
    if current.is_none() {
        sort_labels(&mut cpus, threads);
        cpus = canonical_cpus(domains, &cpus);
        sort_labels(&mut cpus, threads);
    }
    Mapping {
        threads: problem.threads,
        cpus,
    }
}

/// The assignment with its rows given to the workers that keep most of them.
pub(crate) fn align_to_current(
    problem: &Problem,
    domains: &Domains,
    assignment: &Assignment,
) -> Assignment {
    let rows = rows(problem, domains, assignment);
    let peers = |row: &Row| row.peers.iter().map(|&(peer, _)| peer).collect();
    Assignment {
        mains: rows.iter().map(|row| row.main.0).collect(),
        peers: rows.iter().map(peers).collect(),
    }
}

/// The mapping in force, if its workers have as many threads.
fn in_force(problem: &Problem) -> Option<&Mapping> {
    problem
        .current
        .as_ref()
        .filter(|current| current.threads == problem.threads)
}

/// The rows of an assignment, worker by worker.
fn rows(problem: &Problem, domains: &Domains, assignment: &Assignment) -> Vec<Row> {
    let with_id = |position: u16| (position, domains.ids[usize::from(position)]);
    let mut rows: Vec<Row> = assignment
        .mains
        .iter()
        .zip(&assignment.peers)
        .map(|(&main, peers)| Row {
            main: with_id(main),
            peers: peers.iter().map(|&peer| with_id(peer)).collect(),
        })
        .collect();
    rows.sort_by_key(|row| (row.main.1, row.ids()));
    match in_force(problem) {
        Some(current) => matched(rows, current),
        None => rows,
    }
}

/// The cpus of one worker: position and id of the main's and of each peer's.
struct Row {
    main: (u16, CpuId),
    peers: Vec<(u16, CpuId)>,
}

impl Row {
    fn ids(&self) -> Vec<CpuId> {
        self.peers.iter().map(|&(_, id)| id).collect()
    }

    /// How many threads of a worker that has the cpus `before` could stay.
    fn kept(&self, before: &[CpuId]) -> usize {
        let Some((main, peers)) = before.split_first() else {
            return 0;
        };
        let mut left: Vec<CpuId> = self.ids();
        let mut kept = usize::from(self.main.1 == *main);
        for peer in peers {
            if let Some(same) = left.iter().position(|id| id == peer) {
                left.swap_remove(same);
                kept += 1;
            }
        }
        kept
    }
}

fn row_of(current: &Mapping, worker: usize) -> Option<&[CpuId]> {
    let threads = usize::from(current.threads);
    current.cpus.get(worker * threads..(worker + 1) * threads)
}

/// Orders the rows so that workers keep many of their threads: the best pair first.
fn matched(rows: Vec<Row>, current: &Mapping) -> Vec<Row> {
    let count = rows.len();
    let mut pairs: Vec<(Reverse<usize>, usize, usize)> = Vec::with_capacity(count * count);
    for worker in 0..count {
        let before = row_of(current, worker).unwrap_or(&[]);
        for (row, cpus) in rows.iter().enumerate() {
            pairs.push((Reverse(cpus.kept(before)), worker, row));
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

/// Ranks such that the first row rises, then workers such that rows rise.
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
