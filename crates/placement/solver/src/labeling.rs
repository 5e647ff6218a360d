//! Ranks for placed peers, with as few changes of rank as possible.
//!
//! **Problem.** Placed peers need ranks 1..T-1 such that no worker has a rank twice and at most
//! ceil(W/C) threads of a deployment with equal rank share a cpu (rule 2); a peer that stays should
//! keep its rank, otherwise it counts as moved. **Approach.** The edge coloring of
//! [`RankColoringProblem`]. **Limits.** Few peers change their rank, not always the fewest.

pub(crate) mod rank_coloring;

use rank_coloring::RankColoringProblem;

/// Value for a thread without a cpu.
pub(crate) const NO_CPU: u16 = u16::MAX;

/// The placed threads of one deployment, and their limits.
pub(crate) struct Threads<'a> {
    /// T of each worker.
    pub(crate) threads: usize,
    /// Number of cpus.
    pub(crate) cpus: usize,
    /// ceil(W/C).
    pub(crate) rank_cap: usize,
    /// Position of each thread, ordered by worker with the main first.
    pub(crate) places: &'a [u16],
    /// Current cpu of each slot, [`NO_CPU`] if it has none; empty if nothing runs.
    pub(crate) current: &'a [u16],
}

impl Threads<'_> {
    /// The position of every slot, ordered by worker and rank.
    pub(crate) fn ranked(&self) -> Vec<u16> {
        let mut ranked = self.places.to_vec();
        if self.threads < 2 {
            return ranked;
        }
        let peers: Vec<(u16, u16)> = (self.places.chunks(self.threads).zip(0u16..))
            .flat_map(|(row, worker)| row[1..].iter().map(move |&cpu| (worker, cpu)))
            .collect();
        let ranks = RankColoringProblem {
            workers: self.places.len() / self.threads,
            threads: self.threads,
            cpus: self.cpus,
            rank_cap: self.rank_cap,
            edges: &peers,
            preferred: &self.preferred_ranks(),
        };
        for (&(worker, cpu), rank) in peers.iter().zip(ranks.ranks()) {
            ranked[usize::from(worker) * self.threads + 1 + usize::from(rank)] = cpu;
        }
        ranked
    }

    /// The rank minus 1 of each peer that stays.
    fn preferred_ranks(&self) -> Vec<Option<u16>> {
        let mut preferred = Vec::with_capacity(self.places.len());
        for (worker, row) in self.places.chunks(self.threads).enumerate() {
            let first = worker * self.threads + 1;
            let current = self.current.get(first..first + self.threads - 1);
            let mut current = current.unwrap_or_default().to_vec();
            for &cpu in &row[1..] {
                let same = current.iter().position(|&current| current == cpu);
                if let Some(rank) = same {
                    current[rank] = NO_CPU;
                }
                preferred.push(same.map(|rank| rank as u16));
            }
        }
        preferred
    }
}
