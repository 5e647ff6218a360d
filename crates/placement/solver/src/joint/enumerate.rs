//! Enumerates every placement of tiny problems.
//!
//! **Problem.** A local search proves nothing and may miss the optimum or the fewest moves.
//! **Approach.** If there are at most [`PLACEMENTS_MAX`] ways to put each thread on one of its
//! cpus, all placements that keep (2), (3), (8) and (8+) are evaluated. The best has the least
//! excess over the rules on mains, then the greatest value minus cost of moves, then the fewest
//! moves, then the lexicographically smallest cpus. **Limits.** The budget is checked every
//! [`PLACEMENT_STEPS`] steps; an enumeration that is cut short proves nothing, but the best
//! placement found so far is used.

use super::instance::{CORE, Instance, NO_CPU};
use super::rules::Rules;
use crate::WorkBudget;
use crate::limits::{PLACEMENT_STEPS, PLACEMENTS_MAX};

/// Excess over mains-per-core, fast-mains, (12), (12+).
pub(super) type RuleExcess = [u32; 4];

/// Minimized lexicographically: excess, negated value after the cost of moves, moves.
pub(super) type Key = (RuleExcess, i64, u32);

pub(super) struct Enumerated {
    /// The best placement found: its key and the position of every slot, tenant by tenant.
    pub(super) best: Option<(Key, Vec<u16>)>,
    /// The greatest value among placements with the least excess.
    pub(super) most_value: Option<(RuleExcess, i64)>,
    /// Whether every placement was evaluated.
    pub(super) complete: bool,
}

/// Enumerates all placements; `None` if there are too many.
pub(super) fn enumerate(
    instance: &Instance,
    rules: &Rules,
    loads: &[u32],
    budget: &mut WorkBudget,
) -> Option<Enumerated> {
    let mut ways = 1usize;
    for tenant in &instance.tenants {
        for _ in 0..tenant.slots() {
            ways = ways.saturating_mul(tenant.cpus.len());
            if ways > PLACEMENTS_MAX {
                return None;
            }
        }
    }
    let mut enumeration = JointEnumeration::new(instance, rules, loads);
    enumeration.found.complete = enumeration.descend(0, budget);
    Some(enumeration.found)
}

struct TenantSlot {
    tenant: usize,
    worker: usize,
    rank: usize,
    current_cpu: u16,
    had_cpu: bool,
}

struct JointEnumeration<'a> {
    instance: &'a Instance,
    rules: &'a Rules,
    slots: Vec<TenantSlot>,
    places: Vec<u16>,
    loads: Vec<u32>,
    /// Fill levels of cpus, descending; loads of cores, descending, if cores are equally fast.
    balanced: (Vec<u128>, Vec<u32>),
    value: i64,
    moved: u32,
    steps: usize,
    found: Enumerated,
}

impl<'a> JointEnumeration<'a> {
    fn new(instance: &'a Instance, rules: &'a Rules, loads: &[u32]) -> Self {
        let mut slots = Vec::with_capacity(instance.slots);
        for (index, tenant) in instance.tenants.iter().enumerate() {
            slots.extend((0..tenant.slots()).map(|slot| TenantSlot {
                tenant: index,
                worker: tenant.first_worker + slot / tenant.threads,
                rank: slot % tenant.threads,
                current_cpu: tenant.current_cpus[slot],
                had_cpu: tenant.had_cpu[slot],
            }));
        }
        Self {
            instance,
            rules,
            slots,
            places: Vec::with_capacity(instance.slots),
            loads: instance.obstacles.clone(),
            balanced: sorted_loads(instance, loads),
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

    /// Branches on the cpus of the slots from `slot` on; false if the budget was spent.
    fn descend(&mut self, slot: usize, budget: &mut WorkBudget) -> bool {
        self.steps += 1;
        if self.steps.is_multiple_of(PLACEMENT_STEPS) && budget.spend(40 * PLACEMENT_STEPS) {
            return false;
        }
        if slot == self.slots.len() {
            self.evaluate_placement();
            return true;
        }
        let instance = self.instance;
        for &cpu in &instance.tenants[self.slots[slot].tenant].cpus {
            let Some(value) = self.contribution(slot, cpu) else {
                continue;
            };
            let moved = u32::from(self.slots[slot].had_cpu && self.slots[slot].current_cpu != cpu);
            self.places.push(cpu);
            self.loads[usize::from(cpu)] += 1;
            self.value += value;
            self.moved += moved;
            let may_continue = self.descend(slot + 1, budget);
            self.moved -= moved;
            self.value -= value;
            self.loads[usize::from(cpu)] -= 1;
            self.places.pop();
            if !may_continue {
                return false;
            }
        }
        true
    }

    /// Contribution of the slot to the value on a cpu; `None` if (2), (3) or (8) forbid it.
    fn contribution(&self, slot: usize, cpu: u16) -> Option<i64> {
        let own = &self.slots[slot];
        let tenant = &self.instance.tenants[own.tenant];
        let most = self.balanced.0.first().copied().unwrap_or(0);
        let load = self.loads[usize::from(cpu)] + 1;
        if self.instance.fill_order.level(cpu.into(), load) > most {
            return None;
        }
        let (mut of_worker, mut of_rank, mut value) = (0, 0, 0);
        for (other, &place) in self.slots.iter().zip(&self.places) {
            let distance = || self.instance.distance(cpu.into(), place.into());
            if other.worker == own.worker {
                of_worker += u16::from(place == cpu);
                value += tenant.sign * distance();
            }
            if other.tenant == own.tenant && other.rank == own.rank {
                of_rank += u16::from(place == cpu);
            }
            if other.rank == 0 && own.rank == 0 {
                value += distance();
            }
        }
        (of_worker < tenant.worker_cap && of_rank < tenant.rank_cap).then_some(value)
    }

    fn evaluate_placement(&mut self) {
        let instance = self.instance;
        if sorted_loads(instance, &self.loads) != self.balanced {
            return;
        }
        let cores = instance.core_loads(&self.loads);
        let mut mains = vec![0; instance.cpus];
        let mut core_mains = vec![0u32; instance.counts[CORE]];
        for (slot, &place) in self.slots.iter().zip(&self.places) {
            if slot.rank == 0 && place != NO_CPU {
                mains[usize::from(place)] += 1;
                core_mains[instance.core(place.into())] += 1;
            }
        }
        let excess = self
            .rules
            .excess(instance, (&self.loads, &mains), (&cores, &core_mains));
        let net_value = self.value - instance.move_cost * i64::from(self.moved);
        let key = (excess, -net_value, self.moved);
        let better = |(before, places): &(Key, Vec<u16>)| (&key, &self.places) < (before, places);
        if self.found.best.as_ref().is_none_or(better) {
            self.found.best = Some((key, self.places.clone()));
        }
        let higher = |&(least, value): &(RuleExcess, i64)| (excess, -self.value) < (least, -value);
        if self.found.most_value.as_ref().is_none_or(higher) {
            self.found.most_value = Some((excess, self.value));
        }
    }
}

/// The sorted loads, which are the same for all balanced placements.
pub(super) fn sorted_loads(instance: &Instance, loads: &[u32]) -> (Vec<u128>, Vec<u32>) {
    let order = &instance.fill_order;
    let levels = loads
        .iter()
        .enumerate()
        .map(|(cpu, &load)| order.level(cpu, load));
    let cores = match order.is_uniform() {
        true => instance.core_loads(loads),
        false => Vec::new(),
    };
    (sorted(levels.collect()), sorted(cores))
}

fn sorted<T: Ord>(mut sorted: Vec<T>) -> Vec<T> {
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    sorted
}
