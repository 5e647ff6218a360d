//! The rule `auto`: defers as far as that raises goodput, learned queue by queue.
//!
//! **Problem.** Deferred batches are large and leave workers idle in proportion to the load. Where
//! many queues contend, or arrivals come in bursts, waiting for frontrun wastes the little time
//! that a worker has; where a dispatch costs much and requests come fast, going early wastes
//! batches.
//!
//! **Approach.** While a worker waits for a batch of a queue it loses time; what it gains is that
//! the rate times the wait more rows share one beta. Both are equal at a batch of rate x beta rows:
//! the worth. In bursts the next rows are far: it is divided by the squared variation of the gaps
//! c2. If the worth is no less than the largest batch aimed at (`Own`), deferring is right at every
//! load and nothing else is done. Otherwise the queue is deferred while that costs nothing, and
//! becomes eager step by step as requests are dropped: its eagerness grows by a fixed step with
//! each and falls with every arrival so that a share of [`DROPS_BEARABLE`] keeps it where it is.
//! With it the batch that leaves at once goes from the largest to a small multiple of the
//! worth, and the target of the drop rule from `Own`, which suits deferred batches,
//! to `Half`, which suits eager ones. The step is small because drops come in clusters: one of them
//! is no reason to be eager for seconds. Queues whose variation is above [`BURSTY`] do not decide
//! that each for itself but together ([`burst_level`]).
//!
//! Whether deferring gathers anything is tried ([`closed_loop`]): clients that wait for their
//! answers before they ask again are answered at once.
//!
//! All that is for [`Prefers::IdleWorkers`]. With [`Prefers::ShortWaits`] nothing is deferred as
//! long as it loses no more requests than if it were, which all queues find out together
//! ([`deferral_trial`]); from then on they do as above. Queues with bursts are never deferred then.
//!
//! The window opens a little before frontrun in any case: where alpha is small it would otherwise
//! be so short that no worker becomes free in it.
//!
//! Nobody waits longer than [`PATIENCE`] times what a dispatch costs: whatever the rate, dispatches
//! of a queue then cost at most that part of one worker, and more waiting could save no more than
//! that. A queue that gets less than one row in this time does not wait at all: so small models on
//! fast machines answer at once, although their objective would allow them to wait.
//!
//! **Limits.** Rate and variation are those of the last [`MEMORY`] arrivals: a change is learned
//! after so many. Before [`ARRIVALS_MIN`] a queue is eager. The constants were found by
//! simulation on the article's settings (`cargo bench -p albacore-simulator`).

use albacore_batching::Nanos;
use albacore_batching::deadlines::QueueParams;

use super::Prefers;
use super::burst_level::BurstLevel;
use super::closed_loop::ClosedLoopDetector;
use super::deferral_trial::DeferralTrial;
use crate::drop_rule::{DropRule, Target};

/// Arrivals that are averaged: with bursts of c2 = 20 the rate is then known to 7 %.
const MEMORY: u32 = 4096;

/// Fewer arrivals are not used.
const ARRIVALS_MIN: u32 = 64;

/// A plan is made every so many arrivals.
const PLAN_EVERY: u32 = 16;

/// What a drop adds to the eagerness, which is 0 to 1.
const STEP: f64 = 0.02;

/// The share of drops that keeps the eagerness as it is: well below the 1 % that objectives
/// commonly allow, above what deferred batches drop below their peak.
const DROPS_BEARABLE: f64 = 0.002;

/// With full eagerness a batch of so many times the worth is dispatched at once.
const WORTHS: f64 = 2.0;

/// The window is at least this share of the objective wide.
const WINDOW_SHARE: f64 = 0.05;

/// Arrivals with more variation than this come in bursts; that of random ones is 1.
const BURSTY: f64 = 4.0;

/// No request waits longer than so many times beta.
pub(super) const PATIENCE: u64 = 32;

/// Knowledge of all queues under `auto` together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SharedKnowledge {
    burst_level: BurstLevel,
    deferral_trial: DeferralTrial,
}

/// Cost of a row in batches that take half of the objective, nanoseconds.
fn work_of(params: &QueueParams) -> f64 {
    let rows = DropRule::Window {
        target: Target::Half,
    }
    .target_rows(&params.cost, params.objective, 0.0);
    params.cost.of(rows).0 as f64 / rows as f64
}

/// Statistics of one queue's arrivals, and the plan made from them.
#[derive(Clone, Debug)]
pub(super) struct QueueLearner {
    arrivals: u32,
    last: Nanos,
    /// Means of the gaps, their squares (ns, ns^2), and the rows of a request.
    gap: f64,
    gap_squared: f64,
    rows: f64,
    eagerness: f64,
    closed_loop: ClosedLoopDetector,
    is_bursty: bool,
    /// Cost of a row in good batches, as of the last plan.
    row_work: f64,
    plan: Plan,
}

/// How a queue is deferred.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Plan {
    /// A batch of so many rows is dispatched at once.
    pub(super) enough: u64,
    /// How long before frontrun the window opens.
    pub(super) early: Nanos,
    /// The target of the drop rule; `None` before the first plan.
    pub(super) target: Option<u64>,
}

impl Default for QueueLearner {
    fn default() -> Self {
        Self {
            arrivals: 0,
            last: Nanos(0),
            gap: 0.0,
            gap_squared: 0.0,
            rows: 0.0,
            eagerness: 0.0,
            closed_loop: ClosedLoopDetector::default(),
            is_bursty: false,
            row_work: 0.0,
            plan: Plan {
                enough: 1,
                early: Nanos(0),
                target: None,
            },
        }
    }
}

impl QueueLearner {
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A request was dropped.
    pub(super) fn dropped(
        &mut self,
        prefers: Option<Prefers>,
        shared: &mut SharedKnowledge,
        now: Nanos,
    ) {
        let deferral_trial = &mut shared.deferral_trial;
        let prefers_short_waits = prefers == Some(Prefers::ShortWaits);
        let is_at_once = prefers_short_waits && !deferral_trial.is_deferring();
        if prefers_short_waits && !self.is_bursty {
            deferral_trial.lost(now);
        }
        // Losses while nothing is deferred are no reason to be more eager.
        if !is_at_once {
            self.eagerness = (self.eagerness + STEP).min(1.0);
        }
        if self.is_bursty {
            shared.burst_level.dropped();
        }
    }

    /// A request arrived; returns whether there is a new plan.
    pub(super) fn arrived(
        &mut self,
        params: &QueueParams,
        prefers: Prefers,
        shared: &mut SharedKnowledge,
        now: Nanos,
        rows: u32,
    ) -> bool {
        let gap = now.saturating_sub(self.last).0 as f64;
        self.last = now;
        self.arrivals = self.arrivals.saturating_add(1);
        // The mean of all arrivals at first, later of the last ones.
        let weight = 1.0 / f64::from(self.arrivals.min(MEMORY));
        self.gap += (gap - self.gap) * weight;
        self.gap_squared += (gap * gap - self.gap_squared) * weight;
        self.rows += (f64::from(rows) - self.rows) * weight;
        self.eagerness = (self.eagerness - STEP * DROPS_BEARABLE).max(0.0);
        if self.is_bursty {
            shared.burst_level.arrived();
        }
        let prefers_short_waits = prefers == Prefers::ShortWaits;
        match prefers_short_waits {
            true => self.count_for_trial(params, shared, rows, now),
            false => self.closed_loop.arrived(gap),
        }
        let is_due = self.arrivals.is_multiple_of(PLAN_EVERY) && self.arrivals >= ARRIVALS_MIN;
        if is_due && params.objective < Nanos::MAX {
            if !prefers_short_waits {
                self.closed_loop.decide(self.eagerness > 0.0);
            }
            self.classify_bursts(shared);
            self.plan = self.plan_for(params, prefers, shared);
        }
        is_due
    }

    /// Queues with bursts lose requests far below the peak, and are eager in any case.
    fn count_for_trial(
        &mut self,
        params: &QueueParams,
        shared: &mut SharedKnowledge,
        rows: u32,
        now: Nanos,
    ) {
        if self.is_bursty {
            return;
        }
        if self.arrivals % PLAN_EVERY == 1 {
            self.row_work = work_of(params);
        }
        let work = self.row_work * f64::from(rows);
        shared.deferral_trial.arrived(work, now);
    }

    fn classify_bursts(&mut self, shared: &mut SharedKnowledge) {
        let is_bursty = self.variation() > BURSTY;
        match (self.is_bursty, is_bursty) {
            (false, true) => shared.burst_level.join(),
            (true, false) => shared.burst_level.leave(),
            _ => {}
        }
        self.is_bursty = is_bursty;
    }

    /// The squared coefficient of variation of the gaps, at least 1: even arrivals are treated like
    /// random ones.
    fn variation(&self) -> f64 {
        let mean_squared = (self.gap * self.gap).max(1.0);
        (self.gap_squared / mean_squared - 1.0).max(1.0)
    }

    fn plan_for(&self, params: &QueueParams, prefers: Prefers, shared: &SharedKnowledge) -> Plan {
        let rate = self.rows * 1e9 / self.gap.max(1.0);
        let rows_of = |target| {
            let rule = DropRule::Window { target };
            rule.target_rows(&params.cost, params.objective, rate)
        };
        let own = rows_of(Target::Own);
        let window = params.objective.0 as f64 * WINDOW_SHARE;
        let early = Nanos((window - params.cost.alpha_ns()).max(0.0) as u64);
        let in_a_beta = rate * 1e-9 * params.cost.beta_ns();
        let worth = in_a_beta / self.variation();
        let at_once = |target| Plan {
            enough: 1,
            early,
            target: Some(target),
        };
        let half = rows_of(Target::Half) as f64;
        // In bursts a batch is half as large again: requests that arrive together are served
        // together.
        let eager = half * (1.5 - 0.5 / self.variation());
        match prefers {
            Prefers::ShortWaits if self.is_bursty || !shared.deferral_trial.is_deferring() => {
                return at_once(eager.min(own as f64).max(half).round() as u64);
            }
            Prefers::IdleWorkers if self.closed_loop.is_eager() => return at_once(half as u64),
            _ => {}
        }
        if in_a_beta * (PATIENCE as f64) < 1.0 {
            return at_once(own);
        }
        let eagerness = match self.is_bursty {
            true => shared.burst_level.eagerness(),
            false => self.eagerness,
        };
        if worth >= own as f64 || eagerness <= 0.0 {
            return Plan {
                enough: u64::MAX,
                early,
                target: Some(own),
            };
        }
        let between = |deferred: f64, eager: f64| deferred + (eager - deferred) * eagerness;
        let least = (WORTHS * worth).min(own as f64);
        Plan {
            // At least 1: even a fully eager queue needs a row to dispatch.
            enough: between(own as f64, least).ceil().max(1.0) as u64,
            early,
            target: Some(between(own as f64, eager.min(own as f64)).round().max(1.0) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use albacore_batching::deadlines::{Cost, Release};

    use super::*;

    fn rules(alpha_ms: f64, beta_ms: f64, objective_ms: u64) -> QueueParams {
        QueueParams {
            cost: Cost::new(alpha_ms * 1e6, beta_ms * 1e6),
            objective: Nanos(objective_ms * 1_000_000),
            release: Release::Eager,
            target_rows: 1,
            rows_max: u64::MAX,
            requests_max: usize::MAX,
        }
    }

    /// The plan after arrivals with these gaps, repeated, and so many drops.
    fn plan_after(rules: &QueueParams, gaps: &[u64], drops: u32) -> Plan {
        let mut learner = QueueLearner::default();
        let mut shared = SharedKnowledge::default();
        let prefers = Prefers::IdleWorkers;
        let mut now = 0;
        for gap in gaps.iter().cycle().take(4096) {
            now += gap;
            learner.arrived(rules, prefers, &mut shared, Nanos(now), 1);
        }
        (0..drops).for_each(|_| learner.dropped(Some(prefers), &mut shared, Nanos(now)));
        for gap in gaps.iter().cycle().take(16) {
            now += gap;
            learner.arrived(rules, prefers, &mut shared, Nanos(now), 1);
        }
        *learner.plan()
    }

    #[test]
    fn what_is_dispatched_dear_and_asked_often_is_always_deferred() {
        // ResNet50 of the article at 5300 requests a second: the worth is 27 rows, the target 16.
        let plan = plan_after(&rules(1.053, 5.072, 25), &[188_679], 500);
        assert_eq!((plan.enough, plan.target), (u64::MAX, Some(16)));
    }

    #[test]
    fn others_are_deferred_until_requests_are_dropped() {
        let rules = rules(1.053, 5.072, 25);
        let gaps = [1_111_111];
        let plan = plan_after(&rules, &gaps, 0);
        assert_eq!((plan.enough, plan.target), (u64::MAX, Some(9)));
        let (some, many) = (
            plan_after(&rules, &gaps, 25),
            plan_after(&rules, &gaps, 100),
        );
        assert!(
            some.enough < u64::MAX && some.enough >= many.enough,
            "{some:?}"
        );
        assert_eq!(many.target, Some(7));
    }

    #[test]
    fn bursts_make_the_worth_small() {
        let mut gaps = vec![1_000; 19];
        gaps.push(20_000_000);
        let plan = plan_after(&rules(1.053, 5.072, 25), &gaps, 100);
        assert!(plan.enough <= 2, "{plan:?}");
    }
}
