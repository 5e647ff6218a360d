//! Ranks for the peers of each party, with as few threads renamed as can be.
//!
//! **Problem.** Peers are placed but have no ranks: ranks 1..T-1 are needed such that no worker has
//! one twice and at most ceil(W/C) threads of a party with equal rank share a cpu (rule 2); a peer
//! that stays shall keep its rank, else it counts as moved. **Approach.** An edge coloring as in the
//! `label` for one deployment: peers that stay are colored first, with their rank; the others get a
//! color that is free at both ends, and where there is none, a path that alternates between two
//! colors is flipped: of several the one with fewest peers that stay. **Proof sketch.** Koenig, as
//! there. **Limits.** Few peers are renamed, not always the fewest.

use super::site::{NOWHERE, Party};
use crate::limits::FLIPS_MAX;

const NONE: u32 = u32::MAX;

/// The position of every slot of a party, worker by worker, rank by rank, from the positions of its
/// threads: worker by worker, the main first.
pub(super) fn label(party: &Party, threads: &[u16]) -> Vec<u16> {
    let mut places = threads.to_vec();
    if keeps_rank_cap(party, threads) && threads == party.homes {
        return places;
    }
    if party.threads > 1 {
        let colored = Coloring::of(party, &places).color();
        for (worker, row) in places.chunks_mut(party.threads).enumerate() {
            let peers = row[1..].to_vec();
            let colors = &colored[worker * (party.threads - 1)..];
            for (&cpu, &color) in peers.iter().zip(colors) {
                row[1 + usize::from(color)] = cpu;
            }
        }
    }
    if !party.is_running {
        let mut rows: Vec<&[u16]> = places.chunks(party.threads).collect();
        rows.sort_unstable();
        places = rows.concat();
    }
    places
}

/// Whether ranks in this order keep rule (2).
pub(super) fn keeps_rank_cap(party: &Party, places: &[u16]) -> bool {
    let cpus = party.allows.len();
    let mut held = vec![0u16; cpus * party.threads];
    places.iter().enumerate().all(|(slot, &cpu)| {
        let held = &mut held[slot % party.threads * cpus + usize::from(cpu)];
        *held += 1;
        *held <= party.rank_cap
    })
}

/// A coloring in the making: a peer is an edge between its worker and a copy of its cpu.
struct Coloring {
    colors: usize,
    /// Both ends of each edge.
    ends: Vec<[u32; 2]>,
    /// The rank that an edge has where it runs, less 1.
    wishes: Vec<Option<u16>>,
    /// Edge of each color at each vertex.
    at: Vec<u32>,
    /// Color of each edge.
    of: Vec<u16>,
}

impl Coloring {
    fn of(party: &Party, places: &[u16]) -> Self {
        let colors = party.threads - 1;
        let wishes = wishes(party, places);
        let copies = usize::from(party.rank_cap);
        let cpus = party.allows.len();
        let mut degree = vec![0usize; cpus * copies];
        let mut wished = vec![
            false;
            if copies > 1 {
                cpus * copies * colors
            } else {
                0
            }
        ];
        let peers: Vec<(u32, usize)> = places
            .chunks(party.threads)
            .zip(0u32..)
            .flat_map(|(row, worker)| row[1..].iter().map(move |&cpu| (worker, cpu.into())))
            .collect();
        let mut ends = vec![[NONE; 2]; peers.len()];
        // edges with a wish take the copies where their color is free
        let mut order: Vec<usize> = (0..peers.len()).collect();
        order.sort_by_key(|&edge| wishes[edge].is_none());
        for edge in order {
            let (worker, cpu) = peers[edge];
            let mut open = (0..copies).filter(|&copy| degree[cpu * copies + copy] < colors);
            let fits = |&copy: &usize| match wishes[edge] {
                Some(color) if copies > 1 => {
                    !wished[(cpu * copies + copy) * colors + usize::from(color)]
                }
                _ => true,
            };
            let first = open.clone().next().unwrap_or(0);
            let copy = cpu * copies + open.find(fits).unwrap_or(first);
            degree[copy] += 1;
            if let Some(color) = wishes[edge].filter(|_| copies > 1) {
                wished[copy * colors + usize::from(color)] = true;
            }
            ends[edge] = [worker, (party.workers + copy) as u32];
        }
        Self {
            colors,
            at: vec![NONE; (party.workers + cpus * copies) * colors],
            of: vec![0; peers.len()],
            wishes,
            ends,
        }
    }

    fn color(mut self) -> Vec<u16> {
        let mut placed = vec![false; self.ends.len()];
        for (edge, placed) in placed.iter_mut().enumerate() {
            let wish = self.wishes[edge].map(usize::from);
            if let Some(color) = wish.filter(|&color| self.is_free(edge, color)) {
                self.set(edge, color);
                *placed = true;
            }
        }
        for edge in (0..self.ends.len()).filter(|&edge| !placed[edge]) {
            let common = (0..self.colors).find(|&color| self.is_free(edge, color));
            let color = common.unwrap_or_else(|| self.make_free(edge));
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

    /// Flips the path that renames fewest; the color that is then free at both ends.
    fn make_free(&mut self, edge: usize) -> usize {
        let [worker, cpu] = self.ends[edge];
        let (mine, others) = (self.free_at(worker), self.free_at(cpu));
        let mut best: Option<(usize, Vec<usize>, usize, usize)> = None;
        let pairs = mine
            .iter()
            .flat_map(|&mine| others.iter().map(move |&other| (mine, other)));
        for (mine, other) in pairs.take(FLIPS_MAX) {
            let path = self.path(cpu, mine, other);
            let renamed = |&&edge: &&usize| self.wishes[edge] == Some(self.of[edge]);
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

    /// The path that leaves a vertex by `first` and alternates with `second`.
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

/// The rank, less 1, of each peer that stays.
fn wishes(party: &Party, places: &[u16]) -> Vec<Option<u16>> {
    let mut wishes = Vec::with_capacity(places.len());
    let rows = places
        .chunks(party.threads)
        .zip(party.homes.chunks(party.threads));
    for (row, homes) in rows {
        let mut homes = homes[1..].to_vec();
        for &cpu in &row[1..] {
            let same = homes
                .iter()
                .position(|&home| home == cpu && home != NOWHERE);
            if let Some(rank) = same {
                homes[rank] = NOWHERE;
            }
            wishes.push(same.map(|rank| rank as u16));
        }
    }
    wishes
}
