//! Ranks for the peers: a bipartite edge coloring.
//!
//! **Problem.** Once every worker has its cpus and its main, its T-1 peers need ranks 1..T-1 such
//! that no rank is used twice within a worker and at most `rank_cap` threads of equal rank share a
//! cpu (rule 2). **Approach.** Workers on one side, cpus on the other, one edge a peer; a cpu is
//! split into `rank_cap` copies with at most T-1 edges each. Edges are colored one by one; where
//! the free colors of both ends differ, the path that alternates between the two is flipped.
//! **Proof sketch.** Koenig: a bipartite graph of degree d has an edge coloring with d colors. A
//! worker has T-1 edges, a copy at most T-1, so T-1 colors do; in a bipartite graph the
//! alternating path cannot come back to the edge's other end, so the flip frees the color.
//! **Limits.** O(edges x (W + copies)).

use crate::domains::Domains;

/// No edge of that color.
const NONE: u32 = u32::MAX;

/// Colors `edges` = (worker, cpu) of all peers with 0..T-1; the color of each edge, in order. An
/// edge gets the color in `wishes` where it is free at both ends when its turn comes; wishes come
/// first.
pub(crate) fn color_peers(
    domains: &Domains,
    edges: &[(u16, u16)],
    wishes: &[Option<u16>],
) -> Vec<u16> {
    let colors = domains.threads - 1;
    if colors == 0 {
        return Vec::new();
    }
    let copies = domains.rank_cap as usize;
    let vertices = domains.workers + domains.cpus * copies;
    let mut degree = vec![0usize; domains.cpus];
    let ends: Vec<[u32; 2]> = edges
        .iter()
        .map(|&(worker, cpu)| {
            let cpu = usize::from(cpu);
            let copy = (degree[cpu] / colors).min(copies - 1);
            degree[cpu] += 1;
            [
                u32::from(worker),
                (domains.workers + cpu * copies + copy) as u32,
            ]
        })
        .collect();
    let mut coloring = Coloring {
        colors,
        at: vec![NONE; vertices * colors],
        of: vec![0; edges.len()],
        ends: &ends,
    };
    let mut placed = vec![false; edges.len()];
    for (edge, wish) in wishes.iter().enumerate() {
        placed[edge] = wish.is_some_and(|color| coloring.place_as(edge, color.into()));
    }
    for edge in (0..edges.len()).filter(|&edge| !placed[edge]) {
        coloring.place(edge);
    }
    coloring.of
}

struct Coloring<'a> {
    colors: usize,
    /// Edge of each color at each vertex.
    at: Vec<u32>,
    /// Color of each edge.
    of: Vec<u16>,
    ends: &'a [[u32; 2]],
}

impl Coloring<'_> {
    fn slot(&self, vertex: u32, color: usize) -> usize {
        vertex as usize * self.colors + color
    }

    /// The lowest free color at a vertex; 0 if there is none, which the degree bound rules out.
    fn free(&self, vertex: u32) -> usize {
        let start = self.slot(vertex, 0);
        self.at[start..start + self.colors]
            .iter()
            .position(|&edge| edge == NONE)
            .unwrap_or(0)
    }

    fn is_free(&self, edge: usize, color: usize) -> bool {
        self.ends[edge]
            .iter()
            .all(|&vertex| self.at[self.slot(vertex, color)] == NONE)
    }

    /// Gives the edge that color if both ends have it free.
    fn place_as(&mut self, edge: usize, color: usize) -> bool {
        let free = color < self.colors && self.is_free(edge, color);
        if free {
            self.set(edge, color);
        }
        free
    }

    fn place(&mut self, edge: usize) {
        let [worker, cpu] = self.ends[edge];
        let common = (0..self.colors).find(|&color| self.is_free(edge, color));
        let color = match common {
            Some(color) => color,
            None => {
                let (mine, other) = (self.free(worker), self.free(cpu));
                self.flip(cpu, mine, other);
                mine
            }
        };
        self.set(edge, color);
    }

    fn set(&mut self, edge: usize, color: usize) {
        self.of[edge] = color as u16;
        for vertex in self.ends[edge] {
            let slot = self.slot(vertex, color);
            self.at[slot] = edge as u32;
        }
    }

    /// Swaps `first` and `second` along the path that leaves `vertex` by `first`.
    fn flip(&mut self, vertex: u32, first: usize, second: usize) {
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
        for &edge in &path {
            let color = usize::from(self.of[edge]);
            for vertex in self.ends[edge] {
                let slot = self.slot(vertex, color);
                self.at[slot] = NONE;
            }
        }
        for &edge in &path {
            self.set(edge, first + second - usize::from(self.of[edge]));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::color_peers;
    use crate::deal::deal;
    use crate::domains::Domains;
    use crate::sample::problems;
    use crate::volumes::volumes;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 1_000, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn every_deal_has_ranks_that_keep_rule_2(problem in problems(), wish in 0..7u16) {
            let domains = Domains::of(&problem);
            let dealt = deal(&domains, &volumes(&domains));
            let edges: Vec<(u16, u16)> = (0u16..)
                .zip(&dealt.peers)
                .flat_map(|(worker, peers)| peers.iter().map(move |&cpu| (worker, cpu)))
                .collect();
            let wishes = vec![Some(wish); edges.len()];
            let colors = color_peers(&domains, &edges, &wishes);
            prop_assert_eq!(colors.len(), edges.len());
            let mut of_worker = BTreeMap::new();
            let mut of_cpu = BTreeMap::new();
            for (&(worker, cpu), &color) in edges.iter().zip(&colors) {
                prop_assert!(usize::from(color) + 1 < domains.threads);
                *of_worker.entry((worker, color)).or_insert(0u32) += 1;
                *of_cpu.entry((cpu, color)).or_insert(0u32) += 1;
            }
            prop_assert!(of_worker.values().all(|&count| count == 1));
            prop_assert!(of_cpu.values().all(|&count| count <= domains.rank_cap));
        }
    }
}
