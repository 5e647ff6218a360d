//! Decides for all queues with bursts together whether their drops ask for eagerness.
//!
//! **Problem.** Bursts cause drops, deferred or not, and far below the peak. An eager queue takes
//! the workers that deferred ones wait for, so that these drop more: if each decided for itself,
//! some would be eager at every load and all would drop more than if they agreed.
//!
//! **Approach.** One level for all of them: a drop raises it by one, an arrival lowers it by the
//! tolerated share of drops. Deferred queues tolerate [`BORNE`], what objectives commonly allow;
//! eager ones drop less at the same load, so they tolerate only [`BORNE_EAGER`]. The difference is
//! a hysteresis: the level moves to whichever end is nearer and does not hover in between, which is
//! worse than both. Nothing happens up to [`DROPS`] for each queue: drops come in clusters, of all
//! queues at once, and a cluster is no reason to be eager.
//!
//! **Limits.** To tell 0.8 % from 1.0 % of drops in bursts takes some ten thousand arrivals of each
//! queue; higher shares are noticed in proportion sooner.

/// The share of drops that deferred queues tolerate: a little less than objectives commonly allow
/// of each queue, because one drops more than all do on average.
const BORNE: f64 = 0.009;

/// The share below which eager queues are deferred again: in bursts they drop a sixth to two thirds
/// of what deferred ones do.
const BORNE_EAGER: f64 = 0.003;

/// So many drops of each queue beyond the tolerated ones change nothing; twice as many make queues
/// fully eager.
const DROPS: f64 = 35.0;

/// The level, in drops.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct BurstLevel {
    level: f64,
    /// Queues with bursts.
    queues: u32,
}

impl BurstLevel {
    pub(super) fn join(&mut self) {
        self.queues += 1;
    }

    pub(super) fn leave(&mut self) {
        self.queues = self.queues.saturating_sub(1);
    }

    /// Above it queues are the more eager the higher the level is, up to twice as much.
    fn mark(&self) -> f64 {
        DROPS * f64::from(self.queues.max(1))
    }

    pub(super) fn dropped(&mut self) {
        self.level = (self.level + 1.0).min(2.0 * self.mark());
    }

    pub(super) fn arrived(&mut self) {
        let part = (self.level / (2.0 * self.mark())).min(1.0);
        let borne = BORNE + (BORNE_EAGER - BORNE) * part;
        self.level = (self.level - borne).max(0.0);
    }

    /// From 0, deferred, to 1.
    pub(super) fn eagerness(&self) -> f64 {
        (self.level / self.mark() - 1.0).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The eagerness after a million arrivals with this share of drops.
    fn after(mut burst_level: BurstLevel, share: f64) -> f64 {
        let mut due = 0.0;
        for _ in 0..1_000_000 {
            burst_level.arrived();
            due += share;
            if due >= 1.0 {
                due -= 1.0;
                burst_level.dropped();
            }
        }
        burst_level.eagerness()
    }

    #[test]
    fn it_decides_and_keeps_to_it_while_that_is_right() {
        let mut low = BurstLevel::default();
        (0..20).for_each(|_| low.join());
        let high = BurstLevel {
            level: f64::MAX,
            ..low
        };
        // Deferred, at the peak of deferred queues and above it.
        assert_eq!(after(low, 0.008), 0.0);
        assert_eq!(after(low, 0.015), 1.0);
        // Eager, at the same load and far below it.
        let mut full = high;
        full.dropped();
        assert!(after(full, 0.0075) > 0.9);
        assert_eq!(after(full, 0.001), 0.0);
    }

    #[test]
    fn a_cluster_of_drops_changes_nothing() {
        let mut burst_level = BurstLevel::default();
        (0..20).for_each(|_| burst_level.join());
        (0..600).for_each(|_| burst_level.dropped());
        assert_eq!(burst_level.eagerness(), 0.0);
        (0..200).for_each(|_| burst_level.dropped());
        assert!(burst_level.eagerness() > 0.05);
        (0..20).for_each(|_| burst_level.leave());
        assert_eq!(burst_level.eagerness(), 1.0, "what is left decides alone");
    }
}
