//! The load weights of a subject's threads: which are hot, and the load of other threads on the
//! same cpus.
//!
//! The weights in force follow the measured classes at most once per [`WEIGHTS_PERIOD`], so that
//! plans do not follow every change of load.

use std::collections::{BTreeMap, BTreeSet};

use albacore_os::Micros;
use albacore_plan::ServerKind;
use albacore_solver::{Slot, UTILIZATION_MAX, dispatch_order_utilization};
use albacore_topology::{CpuId, CpuSet};

use super::Subject;
use crate::LoadClass;
use crate::limits::WEIGHTS_PERIOD;

/// The hot threads.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HotThreads {
    hot: BTreeSet<Slot>,
    /// The cpus of each hot thread whose mask is not planned, sorted. Threads that may use the
    /// whole cpuset are omitted, because the kernel runs them on idle cpus.
    background_masks: Vec<CpuSet>,
}

/// The weights in force.
#[derive(Debug, Default)]
pub(crate) struct WeightState {
    in_force: Option<HotThreads>,
    changed_at: Micros,
    /// No order of workers has been tried with them yet.
    is_new: bool,
}

impl WeightState {
    /// Adopts the measured weights if the period has elapsed.
    fn update(&mut self, measured: HotThreads, now: Micros) -> bool {
        let age = now.0.saturating_sub(self.changed_at.0);
        let is_early = self.in_force.is_some() && age < WEIGHTS_PERIOD.as_micros() as u64;
        if is_early || self.in_force.as_ref() == Some(&measured) {
            return false;
        }
        self.in_force = Some(measured);
        self.changed_at = now;
        self.is_new = true;
        true
    }
}

impl Subject {
    /// Updates the weights in force from the measurements; true if they changed.
    pub(crate) fn update_weights(&mut self, now: Micros) -> bool {
        let measured = self.measured_weights();
        measured.is_some_and(|measured| self.weights.update(measured, now))
    }

    /// `None` until every slot was measured, including before its thread was replaced.
    fn measured_weights(&self) -> Option<HotThreads> {
        let mut weights = HotThreads::default();
        for slot in Slot::all(self.policy().workers, self.policy().threads) {
            let thread = self.history.thread_at(slot);
            let pid = self.workers.pid(slot.worker);
            let known = thread
                .zip(pid)
                .and_then(|(thread, pid)| self.tree.thread(pid, thread.tid));
            let class = known.and_then(|known| known.load.class);
            match class.or_else(|| self.load_class(slot))? {
                LoadClass::Hot => drop(weights.hot.insert(slot)),
                LoadClass::Cool => {}
            }
        }
        let cpuset = &self.cpuset.cpus;
        let threads = self
            .tree
            .iter()
            .flat_map(|process| process.threads.values());
        let hot = threads.filter(|known| known.load.class == Some(LoadClass::Hot));
        // Planned masks follow the mapping, so the mapping must not depend on them.
        let planned = self.verification.targets();
        let background_masks = hot.filter(|known| !planned.contains_key(&known.id));
        let masks = background_masks.map(|known| known.mask.intersection(cpuset));
        weights.background_masks = masks
            .filter(|mask| mask != cpuset && !mask.is_empty())
            .collect();
        weights.background_masks.sort();
        Some(weights)
    }

    /// The class of a slot according to the weights in force.
    pub(crate) fn load_class(&self, slot: Slot) -> Option<LoadClass> {
        let weights = self.weights.in_force.as_ref()?;
        Some(match weights.hot.contains(&slot) {
            true => LoadClass::Hot,
            false => LoadClass::Cool,
        })
    }

    /// Load of each thread in percent, by slot. Until measured, this is the load resulting from the
    /// built-in server's dispatcher, which prefers workers with low indexes; threads of other
    /// servers are equal.
    pub(crate) fn busy_threads(&self) -> Vec<u8> {
        let (workers, threads) = (self.policy().workers, self.policy().threads);
        let share = |slot| match self.load_class(slot) {
            Some(LoadClass::Cool) => 0,
            Some(LoadClass::Hot) | None => UTILIZATION_MAX,
        };
        match (&self.weights.in_force, self.server_kind) {
            (None, ServerKind::Named) => dispatch_order_utilization(workers, threads),
            _ => Slot::all(workers, threads).map(share).collect(),
        }
    }

    /// The cpus of other hot threads with a single cpu; as obstacles they have the same weight as a
    /// thread of a worker.
    pub(crate) fn hot_fixed_cpus(&self) -> impl Iterator<Item = CpuId> + '_ {
        let weights = self.weights.in_force.iter();
        let single = weights
            .flat_map(|weights| &weights.background_masks)
            .filter(|mask| mask.len() == 1);
        single.filter_map(CpuSet::first)
    }

    /// Adds the load of other hot threads with several cpus, spread evenly over them, in percent.
    pub(crate) fn add_background(&self, background: &mut BTreeMap<CpuId, u32>) {
        let weights = self.weights.in_force.iter();
        let background_masks = weights.flat_map(|weights| &weights.background_masks);
        for mask in background_masks.filter(|mask| mask.len() > 1) {
            for cpu in mask.iter() {
                *background.entry(cpu).or_insert(0) +=
                    u32::from(UTILIZATION_MAX) / mask.len() as u32;
            }
        }
    }

    /// True if workers must be reordered for new weights; false from the next call on.
    pub(crate) fn take_new_weights(&mut self) -> bool {
        std::mem::take(&mut self.weights.is_new)
    }

    pub(crate) fn has_new_weights(&self) -> bool {
        self.weights.is_new
    }

    /// Number of hot threads of workers.
    pub(crate) fn hot_threads(&self) -> Option<usize> {
        self.weights.in_force.as_ref().map(|of| of.hot.len())
    }

    /// Number of hot threads whose masks are not planned and that may not use the whole cpuset.
    pub(crate) fn other_hot_threads(&self) -> usize {
        self.weights
            .in_force
            .as_ref()
            .map_or(0, |of| of.background_masks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_change_at_most_once_in_their_period() {
        let hot = |cpu: u16| HotThreads {
            hot: BTreeSet::new(),
            background_masks: vec![[CpuId(cpu)].into_iter().collect()],
        };
        let minutes = |minutes: u64| Micros(minutes * 60_000_000);
        let mut state = WeightState::default();
        assert!(
            state.update(hot(0), minutes(1)),
            "the first are taken at once"
        );
        assert!(state.is_new);
        assert!(!state.update(hot(0), minutes(2)));
        let mut changes = Vec::new();
        for minute in 2..60 {
            if state.update(hot(minute as u16 % 2), minutes(minute)) {
                changes.push(minute);
            }
        }
        assert_eq!(
            changes,
            [11, 22, 33, 44, 55],
            "though they differ every minute"
        );
    }
}
