//! Maximum dispersion: items are placed one by one on the cpu where they are least close to those
//! before.
//!
//! **Problem.** Mains of all deployments, or threads of one scatter worker, should be as far apart
//! as possible. **Approach.** The x-th item in a domain costs x-1 times the domain's gain, so the
//! cheapest cpu is the end of the cheapest path down the tree; each domain stores the price of its
//! cheapest open cpu, and a new item changes only the prices on its own path. **Proof sketch.**
//! Costs are convex and limits nested, so the greedy placement is a minimum-cost flow. **Limits.**
//! All items must be allowed on the same cpus; for supplies with overlapping cpus see
//! `min_cost_flow`.

use super::instance::{CORE, Instance, LEVELS};

/// The price of a domain that takes no more items.
const CLOSED: i64 = i64::MAX;

/// Counts in a tree with the price of the next item.
pub(super) struct Spread<'a> {
    instance: &'a Instance,
    cpu_cap: u32,
    core_cap: u32,
    counts: [Vec<u32>; LEVELS],
    /// Per domain, the price of its cheapest open cpu, including the cost of the domain itself.
    prices: [Vec<i64>; LEVELS],
}

impl<'a> Spread<'a> {
    /// Nothing placed yet; at most `cpu_cap` items on each of `cpus` and `core_cap` on a core.
    pub(super) fn new(
        instance: &'a Instance,
        cpus: &[u16],
        (cpu_cap, core_cap): (u32, u32),
    ) -> Self {
        let mut prices = std::array::from_fn(|level| vec![CLOSED; instance.counts[level]]);
        for (level, prices) in prices.iter_mut().enumerate() {
            for &cpu in cpus.iter().filter(|_| cpu_cap > 0 && core_cap > 0) {
                prices[usize::from(instance.of[level][usize::from(cpu)])] = 0;
            }
        }
        Self {
            instance,
            cpu_cap,
            core_cap,
            counts: std::array::from_fn(|level| vec![0; instance.counts[level]]),
            prices,
        }
    }

    /// Places `items` items; returns their cost. An item without a place costs nothing.
    pub(super) fn place(&mut self, items: usize) -> i64 {
        (0..items).map_while(|_| self.place_one()).sum()
    }

    fn place_one(&mut self) -> Option<i64> {
        let instance = self.instance;
        let cheapest = |prices: &[i64], among: &mut dyn Iterator<Item = usize>| {
            among.min_by_key(|&at| prices[at])
        };
        let top = instance.levels - 1;
        let mut at = cheapest(&self.prices[top], &mut (0..instance.counts[top]))?;
        let cost = self.prices[top][at];
        if cost == CLOSED {
            return None;
        }
        let mut path = [at; LEVELS];
        for level in (0..top).rev() {
            let mut inner = instance.inner(level + 1, at);
            at = cheapest(&self.prices[level], &mut inner)?;
            path[level] = at;
        }
        for (level, &at) in path[..=top].iter().enumerate() {
            self.counts[level][at] += 1;
            let cap = [self.cpu_cap, self.core_cap][level.min(CORE)];
            let inner = match level {
                0 => 0,
                _ => (instance
                    .inner(level, at)
                    .map(|inner| self.prices[level - 1][inner]))
                .min()
                .unwrap_or(CLOSED),
            };
            let held = self.counts[level][at];
            let is_closed = inner == CLOSED || (level <= CORE && held >= cap);
            self.prices[level][at] = if is_closed {
                CLOSED
            } else {
                inner + instance.gain[level] * i64::from(held)
            };
        }
        Some(cost)
    }
}
