//! Finds out by trial whether deferring raises goodput, for all queues that prefer short waits
//! together.
//!
//! **Problem.** Deferred batches are larger and so carry a higher rate, but requests wait for
//! nothing while eager batches carry the rate as well. What either carries depends on all queues,
//! on the workers and on the true costs: it cannot be computed.
//!
//! **Approach.** Nothing is deferred until requests are lost: a bucket of [`DROPS`] that loses
//! [`BORNE`] with each arrival overflows. Then the lost share is counted over [`MEASURED`]
//! arrivals, everything is deferred for as long, and the two shares are compared; as soon as
//! deferring is clearly no better, it ends. If deferring loses less, by more than chance explains,
//! and requests come as fast as before (those of closed-loop clients do not), it goes on until the
//! load is lower by [`SLACK`] than that at which it was found to help. If not, nothing is deferred
//! until the load changes. After [`AGAIN`] arrivals, and each time twice as many, the trial is
//! repeated.
//!
//! The load is the work that arrives in a time: what the rows would cost in batches of half of
//! their objectives. It does not depend on the batches.
//!
//! **Limits.** Shares that differ by less than chance explains, 0.1 to 1 %, count as equal. All
//! queues are deferred or none: a queue that loses requests in any case, because its objective is
//! as short as its batches, makes all queues repeat the trial now and then.

use albacore_batching::Nanos;

/// Lost requests beyond the tolerated ones that start a trial.
const DROPS: f64 = 20.0;

/// The tolerated share of lost requests: well below the 1 % that objectives commonly allow.
const BORNE: f64 = 0.002;

/// Arrivals that a share is counted over, and those before it, which are partly eager and partly
/// deferred.
const MEASURED: u64 = 16_384;
const SETTLING: u64 = 1024;

/// How often a deferred phase is checked for being clearly worse, in arrivals, and by how many
/// standard deviations that is.
const LOOKED: u64 = 1024;
const CLEARLY: f64 = 2.0;

/// Deferring must lose less by at least this share of all requests.
const GAIN_MIN: f64 = 0.001;

/// Lost requests come in clusters of about so many.
const CLUSTER: f64 = 5.0;

/// Loads that differ by no more than this share are the same.
const SLACK: f64 = 0.1;

/// Arrivals before a trial is repeated, at first and at most.
const AGAIN: u64 = 1 << 20;
const AGAIN_MAX: u64 = 1 << 23;

/// Arrivals over which the load is averaged.
const MEMORY: f64 = 4096.0;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Phase {
    /// Nothing is deferred, and hardly any request is lost.
    #[default]
    Calm,
    /// Nothing is deferred, and losses are counted.
    CountingEager,
    /// Everything is deferred, but the requests before were not.
    Settling,
    /// Everything is deferred, and losses are counted.
    CountingDeferred,
    Helps,
    IsUseless,
}

/// The trial of all queues that prefer short waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DeferralTrial {
    phase: Phase,
    arrivals: u64,
    lost: u64,
    begin: Nanos,
    /// Losses in the calm phase beyond the tolerated ones.
    level: f64,
    /// Lost share and arrivals per nanosecond of the eager phase.
    eager: (f64, f64),
    /// The load at the trial.
    load: f64,
    /// Arrivals until the trial is repeated.
    again: u64,
    last: Nanos,
    /// Means of the gaps between arrivals, and of their work, nanoseconds.
    gap: f64,
    work: f64,
    seen: f64,
}

impl Default for DeferralTrial {
    fn default() -> Self {
        Self {
            phase: Phase::Calm,
            arrivals: 0,
            lost: 0,
            begin: Nanos(0),
            level: 0.0,
            eager: (0.0, 0.0),
            load: 0.0,
            again: AGAIN,
            last: Nanos(0),
            gap: 0.0,
            work: 0.0,
            seen: 0.0,
        }
    }
}

impl DeferralTrial {
    /// Whether queues are to be deferred.
    pub(super) fn is_deferring(&self) -> bool {
        matches!(
            self.phase,
            Phase::Settling | Phase::CountingDeferred | Phase::Helps
        )
    }

    /// A request was dropped or refused.
    pub(super) fn lost(&mut self, now: Nanos) {
        self.lost += 1;
        if self.phase == Phase::Calm {
            self.level += 1.0;
            if self.level >= DROPS {
                self.level = 0.0;
                self.load = self.load_now();
                self.enter(Phase::CountingEager, now);
            }
        }
    }

    /// A request arrived whose rows cost `work` nanoseconds in good batches.
    pub(super) fn arrived(&mut self, work: f64, now: Nanos) {
        let gap = now.saturating_sub(self.last).0 as f64;
        self.last = self.last.max(now);
        self.seen = (self.seen + 1.0).min(MEMORY);
        self.gap += (gap - self.gap) / self.seen;
        self.work += (work - self.work) / self.seen;
        self.arrivals += 1;
        match self.phase {
            Phase::Calm => self.level = (self.level - BORNE).max(0.0),
            Phase::CountingEager => self.count_eager(now),
            Phase::Settling | Phase::CountingDeferred => self.count_deferred(now),
            Phase::Helps => {
                if self.load_now() < self.load * (1.0 - SLACK) {
                    self.calm_down(now);
                } else if self.arrivals >= self.again {
                    self.try_again(now);
                }
            }
            Phase::IsUseless => {
                // At first the load is still that of deferred closed-loop clients.
                let is_known = self.arrivals >= 2 * MEMORY as u64;
                if is_known && (self.load_now() / self.load - 1.0).abs() > SLACK {
                    self.calm_down(now);
                } else if self.arrivals >= self.again {
                    self.try_again(now);
                }
            }
        }
    }

    fn count_eager(&mut self, now: Nanos) {
        if self.arrivals < MEASURED {
            return;
        }
        let (share, rate) = self.counted(now);
        if share < BORNE {
            return self.calm_down(now);
        }
        self.eager = (share, rate);
        self.load = self.load_now();
        self.enter(Phase::Settling, now);
    }

    fn count_deferred(&mut self, now: Nanos) {
        if self.phase == Phase::Settling {
            if self.arrivals >= SETTLING {
                self.enter(Phase::CountingDeferred, now);
            }
            return;
        }
        if !self.arrivals.is_multiple_of(LOOKED) {
            return;
        }
        let (share, rate) = self.counted(now);
        let (eager_share, eager_rate) = self.eager;
        let variance = |share: f64| share * (1.0 - share).max(0.0);
        let variances = variance(share) + variance(eager_share);
        let chance = (CLUSTER * variances / self.arrivals as f64).sqrt();
        let is_slower = rate < eager_rate * (1.0 - SLACK) && self.arrivals > LOOKED;
        if is_slower || share - eager_share > CLEARLY * chance {
            self.enter(Phase::IsUseless, now);
        } else if self.arrivals >= MEASURED {
            let is_better = eager_share - share > GAIN_MIN.max(chance);
            let found = match is_better {
                true => Phase::Helps,
                false => Phase::IsUseless,
            };
            self.enter(found, now);
        }
    }

    /// The share of this phase that was lost, and its arrivals a nanosecond.
    fn counted(&self, now: Nanos) -> (f64, f64) {
        let arrivals = self.arrivals as f64;
        let time = now.saturating_sub(self.begin).0.max(1) as f64;
        (self.lost as f64 / arrivals, arrivals / time)
    }

    fn load_now(&self) -> f64 {
        self.work / self.gap.max(1.0)
    }

    fn enter(&mut self, phase: Phase, now: Nanos) {
        self.phase = phase;
        (self.arrivals, self.lost, self.begin) = (0, 0, now);
    }

    /// The load has changed: the result of the trial does not apply.
    fn calm_down(&mut self, now: Nanos) {
        self.again = AGAIN;
        self.enter(Phase::Calm, now);
    }

    fn try_again(&mut self, now: Nanos) {
        self.again = (self.again * 2).min(AGAIN_MAX);
        self.enter(Phase::Calm, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a load of which these shares are lost, eager and deferred; returns the share of
    /// deferred arrivals.
    fn deferred(
        deferral_trial: &mut DeferralTrial,
        arrivals: u64,
        rate: f64,
        lost: [f64; 2],
        slower: f64,
    ) -> f64 {
        let (mut due, mut count) = (0.0, 0_u64);
        for _ in 0..arrivals {
            let is_deferring = deferral_trial.is_deferring();
            let gap = 1e6 / rate * if is_deferring { slower } else { 1.0 };
            let now = deferral_trial.last.saturating_add(Nanos(gap as u64));
            deferral_trial.arrived(500_000.0, now);
            count += u64::from(is_deferring);
            due += lost[usize::from(is_deferring)];
            if due >= 1.0 {
                due -= 1.0;
                deferral_trial.lost(now);
            }
        }
        count as f64 / arrivals as f64
    }

    #[test]
    fn nothing_is_deferred_while_little_is_lost() {
        let mut deferral_trial = DeferralTrial::default();
        assert_eq!(
            deferred(&mut deferral_trial, 1_000_000, 1.0, [0.0015, 0.0], 1.0),
            0.0
        );
    }

    #[test]
    fn deferring_goes_on_where_it_loses_less_until_the_load_is_lower() {
        let mut deferral_trial = DeferralTrial::default();
        let share = deferred(&mut deferral_trial, 500_000, 1.0, [0.03, 0.004], 1.0);
        assert!(share > 0.95, "{share}");
        let share = deferred(&mut deferral_trial, 100_000, 0.97, [0.01, 0.0], 1.0);
        assert_eq!(share, 1.0, "the load is about the same");
        let share = deferred(&mut deferral_trial, 100_000, 0.8, [0.0, 0.0], 1.0);
        assert!(share < 0.02, "{share}");
    }

    #[test]
    fn deferring_ends_where_it_is_no_better_or_clients_wait() {
        for (lost, slower) in [([0.03, 0.03], 1.0), ([0.03, 0.05], 1.0), ([0.03, 0.0], 1.5)] {
            let mut deferral_trial = DeferralTrial::default();
            let share = deferred(&mut deferral_trial, 1_000_000, 1.0, lost, slower);
            assert!(share < 0.03, "{lost:?} {share}");
        }
    }

    #[test]
    fn what_is_clearly_worse_ends_soon() {
        for (lost, slower) in [([0.5, 0.7], 1.0), ([0.03, 0.2], 1.0), ([0.3, 0.1], 1.3)] {
            let mut deferral_trial = DeferralTrial::default();
            let share = deferred(&mut deferral_trial, 100_000, 1.0, lost, slower);
            assert!(share > 0.0 && share < 0.045, "{lost:?} {share}");
        }
    }

    #[test]
    fn what_was_found_is_tried_again() {
        let mut deferral_trial = DeferralTrial::default();
        deferred(&mut deferral_trial, 200_000, 1.0, [0.03, 0.03], 1.0);
        assert!(!deferral_trial.is_deferring());
        let share = deferred(&mut deferral_trial, 2_000_000, 1.0, [0.03, 0.0], 1.0);
        assert!(share > 0.4, "{share}");
    }
}
