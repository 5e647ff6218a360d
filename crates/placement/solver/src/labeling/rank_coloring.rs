//! Ranks for the peers: a bipartite edge coloring that changes as few ranks as possible.
//!
//! **Problem.** Once every worker has its cpus and its main, its T-1 peers need ranks 1..T-1 such
//! that no rank is used twice within a worker and at most `rank_cap` threads of equal rank share a
//! cpu (rule 2); a peer that stays should keep its rank, otherwise it counts as moved.
//! **Approach.** Workers are the vertices on one side, cpus those on the other, each peer is an
//! edge; a cpu is split into `rank_cap` copies with at most T-1 edges each. Peers with a preferred
//! rank are colored first; the others get a color that is free at both ends, and if there is none,
//! a path that alternates between two colors is flipped: of several paths, the one that takes the
//! fewest preferred ranks away. **Proof sketch.** Koenig: a bipartite graph of degree d has an edge
//! coloring with d colors. A worker has T-1 edges, a copy at most T-1, so T-1 colors suffice; in a
//! bipartite graph the alternating path cannot return to the edge's other end, so the flip frees
//! the color. **Limits.** O(edges x (W + copies)) for each path that is compared; few peers change
//! their rank, not always the fewest.

use crate::limits::ALTERNATING_PATHS_MAX;

/// No edge has that color.
const NONE: u32 = u32::MAX;

/// Peers that have a cpu and need a rank.
pub(crate) struct RankColoringProblem<'a> {
    pub(crate) workers: usize,
    /// T; each worker has T - 1 of the peers.
    pub(crate) threads: usize,
    /// Number of cpus.
    pub(crate) cpus: usize,
    /// Most threads of equal rank on a cpu: ceil(W/C). No cpu has more than this times T - 1 peers.
    pub(crate) rank_cap: usize,
    /// Worker and cpu of each peer, as numbers from 0.
    pub(crate) edges: &'a [(u16, u16)],
    /// The preferred rank of each peer, minus 1, if any.
    pub(crate) preferred: &'a [Option<u16>],
}

impl RankColoringProblem<'_> {
    /// The rank of each peer, minus 1: 0..T-1.
    pub(crate) fn ranks(&self) -> Vec<u16> {
        if self.threads < 2 {
            return Vec::new();
        }
        Coloring::of(self).color()
    }
}

/// A partial coloring: a peer is an edge between its worker and a copy of its cpu.
struct Coloring {
    colors: usize,
    /// Both ends of each edge.
    ends: Vec<[u32; 2]>,
    preferred: Vec<Option<u16>>,
    /// Edge of each color at each vertex.
    at: Vec<u32>,
    /// Color of each edge.
    of: Vec<u16>,
}

impl Coloring {
    fn of(problem: &RankColoringProblem<'_>) -> Self {
        let (colors, copies) = (problem.threads - 1, problem.rank_cap);
        let is_color = |preference: &u16| usize::from(*preference) < colors;
        let preferred = problem.preferred.iter();
        let preferred: Vec<Option<u16>> = preferred.map(|w| w.filter(is_color)).collect();
        let mut degree = vec![0usize; problem.cpus * copies];
        let reserved = if copies > 1 { degree.len() * colors } else { 0 };
        let mut reserved = vec![false; reserved];
        let mut ends = vec![[NONE; 2]; problem.edges.len()];
        // edges with a preferred rank take the copies where their color is free
        let mut order: Vec<usize> = (0..ends.len()).collect();
        order.sort_by_key(|&edge| preferred[edge].is_none());
        for edge in order {
            let (worker, cpu) = problem.edges[edge];
            let first_copy = usize::from(cpu) * copies;
            let mut open = (first_copy..first_copy + copies).filter(|&copy| degree[copy] < colors);
            let fits = |&copy: &usize| match preferred[edge] {
                Some(color) if copies > 1 => !reserved[copy * colors + usize::from(color)],
                _ => true,
            };
            let first = open.clone().next().unwrap_or(first_copy);
            let copy = open.find(fits).unwrap_or(first);
            degree[copy] += 1;
            if let Some(color) = preferred[edge].filter(|_| copies > 1) {
                reserved[copy * colors + usize::from(color)] = true;
            }
            ends[edge] = [worker.into(), (problem.workers + copy) as u32];
        }
        Self {
            colors,
            at: vec![NONE; (problem.workers + degree.len()) * colors],
            of: vec![0; ends.len()],
            preferred,
            ends,
        }
    }

    fn color(mut self) -> Vec<u16> {
        let mut placed = vec![false; self.ends.len()];
        for (edge, placed) in placed.iter_mut().enumerate() {
            let preference = self.preferred[edge].map(usize::from);
            if let Some(color) = preference.filter(|&color| self.is_free(edge, color)) {
                self.set(edge, color);
                *placed = true;
            }
        }
        for edge in (0..self.ends.len()).filter(|&edge| !placed[edge]) {
            let common = (0..self.colors).find(|&color| self.is_free(edge, color));
            let color = common.unwrap_or_else(|| self.free_color_by_flip(edge));
            self.set(edge, color);
        }
        self.of
    }

    fn slot(&self, vertex: u32, color: usize) -> usize {
        vertex as usize * self.colors + color
    }

    fn free_at(&self, vertex: u32) -> Vec<usize> {
        let start = self.slot(vertex, 0);
        (0..self.colors)
            .filter(|&color| self.at[start + color] == NONE)
            .collect()
    }

    fn is_free(&self, edge: usize, color: usize) -> bool {
        let is_free = |&vertex: &u32| self.at[self.slot(vertex, color)] == NONE;
        self.ends[edge].iter().all(is_free)
    }

    fn set(&mut self, edge: usize, color: usize) {
        self.of[edge] = color as u16;
        for vertex in self.ends[edge] {
            let slot = self.slot(vertex, color);
            self.at[slot] = edge as u32;
        }
    }

    /// Flips the path that changes fewest ranks; returns the color that is then free at both ends.
    fn free_color_by_flip(&mut self, edge: usize) -> usize {
        let [worker, cpu] = self.ends[edge];
        let (mine, others) = (self.free_at(worker), self.free_at(cpu));
        let mut best: Option<(usize, Vec<usize>, usize, usize)> = None;
        let pairs = mine
            .iter()
            .flat_map(|&mine| others.iter().map(move |&other| (mine, other)));
        for (mine, other) in pairs.take(ALTERNATING_PATHS_MAX) {
            let path = self.path(cpu, mine, other);
            let renamed = |&&edge: &&usize| self.preferred[edge] == Some(self.of[edge]);
            let cost = path.iter().filter(renamed).count();
            if best.as_ref().is_none_or(|(before, ..)| cost < *before) {
                best = Some((cost, path, mine, other));
            }
            if cost == 0 {
                break;
            }
        }
        // both ends have a free color, because neither has more edges than colors
        let Some((_, path, mine, other)) = best else {
            return 0;
        };
        for &edge in &path {
            let color = usize::from(self.of[edge]);
            for vertex in self.ends[edge] {
                let slot = self.slot(vertex, color);
                self.at[slot] = NONE;
            }
        }
        for &edge in &path {
            self.set(edge, mine + other - usize::from(self.of[edge]));
        }
        mine
    }

    /// The path that starts at a vertex with color `first` and alternates with `second`.
    fn path(&self, vertex: u32, first: usize, second: usize) -> Vec<usize> {
        let mut path = Vec::new();
        let (mut vertex, mut color) = (vertex, first);
        // bound: a path visits no edge twice
        while path.len() <= self.ends.len() {
            let edge = self.at[self.slot(vertex, color)];
            if edge == NONE {
                break;
            }
            path.push(edge as usize);
            let [worker, cpu] = self.ends[edge as usize];
            vertex = if vertex == worker { cpu } else { worker };
            color = first + second - color;
        }
        path
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::RankColoringProblem;
    use crate::sample::problems;
    use crate::single::assignment::assign;
    use crate::single::domains::Domains;
    use crate::single::volumes::volumes;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 1_000, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn every_deal_has_ranks_that_keep_rule_2(problem in problems(), preference in 0..7u16) {
            let domains = Domains::of(&problem);
            let assigned = assign(&domains, &volumes(&domains));
            let edges: Vec<(u16, u16)> = (0u16..)
                .zip(&assigned.peers)
                .flat_map(|(worker, peers)| peers.iter().map(move |&cpu| (worker, cpu)))
                .collect();
            let preferred = vec![Some(preference); edges.len()];
            let problem = RankColoringProblem {
                workers: domains.workers,
                threads: domains.threads,
                cpus: domains.cpus,
                rank_cap: domains.rules.rank_cap as usize,
                edges: &edges,
                preferred: &preferred,
            };
            let colors = problem.ranks();
            prop_assert_eq!(colors.len(), edges.len());
            let mut of_worker = BTreeMap::new();
            let mut of_cpu = BTreeMap::new();
            for (&(worker, cpu), &color) in edges.iter().zip(&colors) {
                prop_assert!(usize::from(color) + 1 < domains.threads);
                *of_worker.entry((worker, color)).or_insert(0u32) += 1;
                *of_cpu.entry((cpu, color)).or_insert(0u32) += 1;
            }
            prop_assert!(of_worker.values().all(|&count| count == 1));
            prop_assert!(of_cpu.values().all(|&count| count <= domains.rules.rank_cap));
        }
    }
}
