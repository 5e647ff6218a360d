//! A deal from the machine down: to L3 caches, in them to L2 caches, in them to cores, then to cpus.
//!
//! **Problem.** A good start where whole workers, volumes and mains compete for domains.
//! **Approach.** In each node of the tree, the threads that came to it are shared out to the domains
//! inside (`anneal`), starting from workers laid end to end round its cpus. On a core, each worker
//! takes the cpus that have most left, mains first on those that are not full. **Proof sketch.** A
//! result is only used if counting finds it within the rules, after repair. **Limits.** Nodes are settled one
//! after the other: what is best for a level is never given up for a level inside it.

use crate::anneal::{Node, Part, Shares, anneal};
use crate::classes::{Class, Permits, beside, classes};
use crate::deal::Deal;
use crate::domains::{CORE, Domains, LEVELS};
use crate::improve::{Allowed, Search};
use crate::limits::ANNEAL_MOVES_MAX;

/// A deal that may break rules about mains (`soft`); with the seed 0 nothing is annealed: workers lie
/// end to end, which is the best there is where they fit whole domains.
pub(crate) fn descend<'a>(
    domains: &'a Domains,
    allowed: &Allowed,
    seed: u64,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Option<Search<'a>> {
    let levels: Vec<usize> = (CORE..LEVELS)
        .rev()
        .filter(|&level| {
            let above = if level + 1 < LEVELS {
                domains.count(level + 1)
            } else {
                1
            };
            domains.count(level) != above || (level == CORE && above == 1)
        })
        .collect();
    let tables: Vec<(Vec<Class>, Vec<usize>)> = levels
        .iter()
        .map(|&level| classes(domains, allowed, (0, level)))
        .collect();
    let mut descent = Descent {
        domains,
        tables: &tables,
        levels: &levels,
        deal: Deal {
            mains: vec![0; domains.workers],
            peers: vec![Vec::new(); domains.workers],
        },
        permits: Permits::of(domains, allowed).map(|permits| permits.count),
        beside: beside(domains, allowed),
        seed,
    };
    let all: Vec<Part> = (0..domains.workers)
        .map(|worker| Part {
            worker,
            threads: domains.threads as u32,
            main: true,
        })
        .collect();
    descent.node(0, 0..domains.cpus, &all, out_of_budget)?;
    let mut deal = descent.deal;
    deal.peers
        .iter_mut()
        .for_each(|peers| peers.sort_unstable());
    let full = deal
        .peers
        .iter()
        .all(|peers| peers.len() + 1 == domains.threads);
    if !full {
        return None;
    }
    Some(Search::of(domains, allowed, &deal))
}

struct Descent<'a> {
    domains: &'a Domains,
    tables: &'a [(Vec<Class>, Vec<usize>)],
    levels: &'a [usize],
    deal: Deal,
    permits: Option<i64>,
    beside: Option<i64>,
    seed: u64,
}

impl Descent<'_> {
    /// Shares out what came to the cpus of a node; `None` if that cannot be done within the rules.
    fn node(
        &mut self,
        depth: usize,
        cpus: std::ops::Range<usize>,
        parts: &[Part],
        out_of_budget: &mut dyn FnMut() -> bool,
    ) -> Option<()> {
        let Some(&level) = self.levels.get(depth) else {
            return self.core(cpus, parts);
        };
        if out_of_budget() {
            return None;
        }
        let first = self.domains.domain(level, cpus.start);
        let last = self.domains.domain(level, cpus.end - 1);
        let (classes, of) = &self.tables[depth];
        let node = Node {
            children: (first..=last).map(|domain| &classes[of[domain]]).collect(),
            parts,
            permits: self.permits,
            beside: self.beside,
        };
        let start = self.end_to_end(&node, level, cpus.clone())?;
        let width = node.children.len();
        let shares = if width == 1 || self.seed == 0 {
            start
        } else {
            let moves = ANNEAL_MOVES_MAX / if depth == 0 { 1 } else { 4 };
            let moves = moves.min(2_000 * parts.len() * width);
            let moves = if depth == 0 {
                moves
            } else {
                moves * cpus.len() / self.domains.cpus
            };
            let (shares, _) = anneal(&node, start, (moves, self.seed), out_of_budget);
            shares
        };
        for child in 0..width {
            let inside: Vec<Part> = parts
                .iter()
                .enumerate()
                .filter_map(|(at, part)| {
                    let threads = u32::from(shares.held[at * width + child]);
                    let main = part.main && usize::from(shares.main[at]) == child;
                    (threads > 0).then_some(Part {
                        threads,
                        main,
                        ..*part
                    })
                })
                .collect();
            let members = self.domains.members(level, first + child);
            self.node(depth + 1, members, &inside, out_of_budget)?;
        }
        Some(())
    }

    /// Worker after worker takes the next cpus that have room for it, round and round.
    fn end_to_end(
        &self,
        node: &Node<'_>,
        level: usize,
        cpus: std::ops::Range<usize>,
    ) -> Option<Shares> {
        let width = node.children.len();
        let first = self.domains.domain(level, cpus.start);
        let mut held = vec![0u16; node.parts.len() * width];
        let mut main = vec![0u16; node.parts.len()];
        let mut mains = vec![0u32; width];
        let mut next = 0;
        for (at, part) in node.parts.iter().enumerate() {
            for _ in 0..part.threads {
                let child_of = |turn: &usize| {
                    self.domains.domain(level, cpus.start + turn % cpus.len()) - first
                };
                let room = |turn: &usize| {
                    let child = child_of(turn);
                    u32::from(held[at * width + child]) < node.children[child].room.of_worker
                };
                next = (next..next + cpus.len()).find(room)?;
                let child = child_of(&next);
                held[at * width + child] += 1;
                next += 1;
            }
            let fewest = (0..width)
                .filter(|child| part.main && held[at * width + child] > 0)
                .min_by_key(|&child| mains[child]);
            if let Some(child) = fewest {
                main[at] = child as u16;
                mains[child] += 1;
            }
        }
        Some(Shares::of(node, held, main))
    }

    /// Gives the threads on a core to its cpus.
    fn core(&mut self, cpus: std::ops::Range<usize>, parts: &[Part]) -> Option<()> {
        let volume: u32 = parts.iter().map(|part| part.threads).sum();
        let count = cpus.len() as u32;
        let (each, more) = (volume / count, volume % count);
        // the first ones take the extras, the last ones the mains
        let mut left: Vec<u32> = (0..count).map(|at| each + u32::from(at < more)).collect();
        let mut order: Vec<&Part> = parts.iter().collect();
        order.sort_by_key(|part| (std::cmp::Reverse(part.threads), !part.main));
        let mut mains = vec![0u32; cpus.len()];
        for part in order {
            let mut held = vec![0u32; cpus.len()];
            for _ in 0..part.threads {
                let at = (0..cpus.len())
                    .filter(|&at| left[at] > 0 && held[at] < self.domains.worker_cap)
                    .max_by_key(|&at| (left[at], std::cmp::Reverse(at)))?;
                left[at] -= 1;
                held[at] += 1;
            }
            if part.main {
                let at = (0..cpus.len())
                    .filter(|&at| held[at] > 0)
                    .min_by_key(|&at| (mains[at], at < more as usize, std::cmp::Reverse(at)))?;
                self.deal.mains[part.worker] = (cpus.start + at) as u16;
                mains[at] += 1;
                held[at] -= 1;
            }
            for (at, &held) in held.iter().enumerate() {
                let cpu = (cpus.start + at) as u16;
                let peers = &mut self.deal.peers[part.worker];
                peers.extend(std::iter::repeat_n(cpu, held as usize));
            }
        }
        Some(())
    }
}
