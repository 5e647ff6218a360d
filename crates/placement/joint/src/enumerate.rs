//! Tiny problems: every placement there is.
//!
//! **Problem.** A local search proves nothing and may stop short of the best or of the fewest
//! moves. **Approach.** Where there are at most [`TINY_MAX`] ways to put each thread on one of its
//! cpus, all that keep (2), (3), (8) and (8+) are looked at. The best is that with the least
//! breaches, then the most value less cost of moves, then the fewest moves, then the
//! lexicographically smallest. **Limits.** The budget is asked every so many steps; cut short it
//! proves nothing, but what it found counts.

use super::rules::Rules;
use super::site::{CORE, NOWHERE, Site};
use crate::limits::{TINY_MAX, TINY_STEPS};

/// mains-per-core, (12), (12+): by how much each is broken.
pub(super) type Breaches = [u32; 3];

/// What is small in the best placement, in order: breaches, minus value less cost of moves, moves.
pub(super) type Key = (Breaches, i64, u32);

pub(super) struct Enumerated {
    /// The best placement: its key and the position of every slot, party by party.
    pub(super) best: Option<(Key, Vec<u16>)>,
    /// Among placements with the least breaches, the most value.
    pub(super) most_value: Option<(Breaches, i64)>,
    /// Whether everything was looked at.
    pub(super) complete: bool,
}

/// Looks at every placement; `None` if there are too many.
pub(super) fn enumerate(
    site: &Site,
    rules: &Rules,
    loads: &[u32],
    spent: &mut dyn FnMut() -> bool,
) -> Option<Enumerated> {
    let mut ways = 1usize;
    for party in &site.parties {
        for _ in 0..party.slots() {
            ways = ways.saturating_mul(party.cpus.len());
            if ways > TINY_MAX {
                return None;
            }
        }
    }
    let mut walk = Walk::new(site, rules, loads);
    walk.found.complete = walk.descend(0, spent);
    Some(walk.found)
}

struct Slot {
    party: usize,
    worker: usize,
    rank: usize,
    home: u16,
    had_cpu: bool,
}

struct Walk<'a> {
    site: &'a Site,
    rules: &'a Rules,
    slots: Vec<Slot>,
    places: Vec<u16>,
    loads: Vec<u32>,
    /// Loads from the largest, of cpus and of cores.
    balanced: [Vec<u32>; 2],
    value: i64,
    moved: u32,
    steps: usize,
    found: Enumerated,
}

impl<'a> Walk<'a> {
    fn new(site: &'a Site, rules: &'a Rules, loads: &[u32]) -> Self {
        let mut slots = Vec::with_capacity(site.slots);
        for (index, party) in site.parties.iter().enumerate() {
            slots.extend((0..party.slots()).map(|slot| Slot {
                party: index,
                worker: party.first_worker + slot / party.threads,
                rank: slot % party.threads,
                home: party.homes[slot],
                had_cpu: party.had_cpu[slot],
            }));
        }
        Self {
            site,
            rules,
            slots,
            places: Vec::with_capacity(site.slots),
            loads: site.obstacles.clone(),
            balanced: [sorted(loads), sorted(&site.core_loads(loads))],
            value: 0,
            moved: 0,
            steps: 0,
            found: Enumerated {
                best: None,
                most_value: None,
                complete: false,
            },
        }
    }

    /// Places the slots from `slot` on in every way; false if the budget was spent.
    fn descend(&mut self, slot: usize, spent: &mut dyn FnMut() -> bool) -> bool {
        self.steps += 1;
        if self.steps.is_multiple_of(TINY_STEPS) && spent() {
            return false;
        }
        if slot == self.slots.len() {
            self.look();
            return true;
        }
        let site = self.site;
        for &cpu in &site.parties[self.slots[slot].party].cpus {
            let Some(value) = self.added(slot, cpu) else {
                continue;
            };
            let moved = u32::from(self.slots[slot].had_cpu && self.slots[slot].home != cpu);
            self.places.push(cpu);
            self.loads[usize::from(cpu)] += 1;
            self.value += value;
            self.moved += moved;
            let goes_on = self.descend(slot + 1, spent);
            self.moved -= moved;
            self.value -= value;
            self.loads[usize::from(cpu)] -= 1;
            self.places.pop();
            if !goes_on {
                return false;
            }
        }
        true
    }

    /// What the slot adds to the value on a cpu; `None` if (2), (3) or (8) forbid it.
    fn added(&self, slot: usize, cpu: u16) -> Option<i64> {
        let own = &self.slots[slot];
        let party = &self.site.parties[own.party];
        let most = self.balanced[0].first().copied().unwrap_or(0);
        if self.loads[usize::from(cpu)] >= most {
            return None;
        }
        let (mut of_worker, mut of_rank, mut value) = (0, 0, 0);
        for (other, &place) in self.slots.iter().zip(&self.places) {
            let distance = || self.site.distance(cpu.into(), place.into());
            if other.worker == own.worker {
                of_worker += u16::from(place == cpu);
                value += party.sign * distance();
            }
            if other.party == own.party && other.rank == own.rank {
                of_rank += u16::from(place == cpu);
            }
            if other.rank == 0 && own.rank == 0 {
                value += distance();
            }
        }
        (of_worker < party.worker_cap && of_rank < party.rank_cap).then_some(value)
    }

    fn look(&mut self) {
        let site = self.site;
        let cores = site.core_loads(&self.loads);
        if sorted(&self.loads) != self.balanced[0] || sorted(&cores) != self.balanced[1] {
            return;
        }
        let mut mains = vec![0; site.cpus];
        let mut core_mains = vec![0u32; site.counts[CORE]];
        for (slot, &place) in self.slots.iter().zip(&self.places) {
            if slot.rank == 0 && place != NOWHERE {
                mains[usize::from(place)] += 1;
                core_mains[site.core(place.into())] += 1;
            }
        }
        let breaches = self
            .rules
            .breaches((&self.loads, &mains), (&cores, &core_mains));
        let worth = self.value - site.move_cost * i64::from(self.moved);
        let key = (breaches, -worth, self.moved);
        let better = |(before, places): &(Key, Vec<u16>)| (&key, &self.places) < (before, places);
        if self.found.best.as_ref().is_none_or(better) {
            self.found.best = Some((key, self.places.clone()));
        }
        let higher = |&(least, value): &(Breaches, i64)| (breaches, -self.value) < (least, -value);
        if self.found.most_value.as_ref().is_none_or(higher) {
            self.found.most_value = Some((breaches, self.value));
        }
    }
}

fn sorted(loads: &[u32]) -> Vec<u32> {
    let mut sorted = loads.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    sorted
}
