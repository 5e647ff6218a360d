//! Canonical form under symmetry: the smallest of the mappings that differ only by an exchange of
//! equal domains.
//!
//! **Problem.** Equal cores (and equal L2, L3 domains) can be exchanged without changing value or
//! rules; of all such images of a mapping the lexicographically smallest is returned, so that it is
//! easy to read and does not depend on the path of the search. **Approach.** Slot by slot, worker
//! by worker: a cpu without an image is mapped to the first free domain of its shape under the
//! image of its parent. **Proof sketch.** Parent and image have children of the same shapes, so a
//! free one of each shape is always left; positions of equal domains ascend with their lowest cpu,
//! so the first is the smallest that this slot can have, given the slots before it. **Limits.**
//! O(WT C) at worst; the order of workers and ranks is not changed.

use std::collections::BTreeMap;

use albacore_topology::CpuId;

use crate::single::domains::{Domains, LEVELS};

/// The smallest image of `cpus`, slot by slot; all of them are cpus of the problem.
pub(crate) fn canonical_cpus(domains: &Domains, cpus: &[CpuId]) -> Vec<CpuId> {
    let mut images = CanonicalOrder::of(domains);
    let image = |&cpu: &CpuId| match domains.position(cpu) {
        Some(position) => domains.ids[images.of_position(domains, position.into())],
        None => cpu,
    };
    cpus.iter().map(image).collect()
}

/// The image of each domain, as far as it is determined.
struct CanonicalOrder {
    /// Equal numbers for equal shapes.
    shapes: [Vec<usize>; LEVELS],
    to: [Vec<Option<usize>>; LEVELS],
    is_taken: [Vec<bool>; LEVELS],
}

impl CanonicalOrder {
    fn of(domains: &Domains) -> Self {
        let mut shapes: [Vec<usize>; LEVELS] =
            std::array::from_fn(|level| vec![0; domains.count(level)]);
        for level in 1..LEVELS {
            let mut numbers = BTreeMap::new();
            for domain in 0..domains.count(level) {
                let below = children(domains, level, domain);
                let shape = shapes[level - 1][below].to_vec();
                let next = numbers.len();
                shapes[level][domain] = *numbers.entry(shape).or_insert(next);
            }
        }
        Self {
            shapes,
            to: std::array::from_fn(|level| vec![None; domains.count(level)]),
            is_taken: std::array::from_fn(|level| vec![false; domains.count(level)]),
        }
    }

    fn of_position(&mut self, domains: &Domains, position: usize) -> usize {
        let mut parent: Option<usize> = None;
        for level in (0..LEVELS).rev() {
            let domain = domains.domain(level, position);
            let shape = self.shapes[level][domain];
            let candidates = match parent {
                Some(parent) => children(domains, level + 1, parent),
                None => 0..domains.count(level),
            };
            let first = || {
                let is_free = |&other: &usize| {
                    !self.is_taken[level][other] && self.shapes[level][other] == shape
                };
                candidates.into_iter().find(is_free)
            };
            // There always is one; a domain without one would keep its place.
            let image = self.to[level][domain].or_else(first).unwrap_or(domain);
            self.to[level][domain] = Some(image);
            self.is_taken[level][image] = true;
            parent = Some(image);
        }
        parent.unwrap_or(position)
    }
}

/// The domains of the next inner level that `domain` of `level` contains.
fn children(domains: &Domains, level: usize, domain: usize) -> std::ops::Range<usize> {
    let members = domains.members(level, domain);
    let first = domains.domain(level - 1, members.start);
    let last = domains.domain(level - 1, members.end - 1);
    first..last + 1
}
