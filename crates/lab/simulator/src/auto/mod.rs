//! The release rule `auto`: queues are deferred as far as that raises goodput, as learned from
//! their arrivals and drops.
//!
//! [`AutoScheduler`] drives the scheduler of `albacore-batching` and replaces the parameters of its
//! queues as it learns. The live server does not use it: there `auto` dispatches at once, because
//! clients also count what comes after the batch.

mod burst_level;
mod closed_loop;
mod deferral_trial;
mod queue_learner;

use albacore_batching::deadlines::{
    DeadlineActions, DeadlineConfig, DeadlineEvent, DeadlineScheduler, QueueParams, Release,
};
use albacore_batching::{Nanos, QueueIndex};

use crate::drop_rule::{DropRule, Target};
use queue_learner::{PATIENCE, QueueLearner, SharedKnowledge};

/// What `auto` does at loads that the workers carry whether batches are deferred or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefers {
    /// Defers: batches are large, and workers are idle in proportion to the load, so that some can
    /// be removed. Requests wait for most of their objective.
    IdleWorkers,
    /// Dispatches at once until that loses requests: replies come as soon as they can.
    ShortWaits,
}

/// The parameters of a queue, some of which may be learned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueuePolicy {
    /// Its `target_rows` does not count: it follows from `drop` and `rate`.
    pub params: QueueParams,
    /// Which requests are dropped.
    pub drop: DropRule,
    /// Rows a second that arrive, for the target of the drop rule.
    pub rate: f64,
    /// The release rule is learned; that of `params` does not count then.
    pub auto: Option<Prefers>,
    /// The target of the drop rule is learned once the release rule is; `drop` counts until then.
    pub is_target_learned: bool,
}

impl From<QueueParams> for QueuePolicy {
    fn from(params: QueueParams) -> Self {
        let target = Target::Rows(params.target_rows);
        Self {
            params,
            drop: DropRule::Window { target },
            rate: 0.0,
            auto: None,
            is_target_learned: false,
        }
    }
}

#[derive(Debug)]
struct AutoQueue {
    policy: QueuePolicy,
    learner: QueueLearner,
}

impl AutoQueue {
    /// The parameters with what was learned.
    fn params(&self) -> QueueParams {
        let QueuePolicy {
            params,
            drop,
            rate,
            auto,
            is_target_learned,
        } = self.policy;
        let params = QueueParams {
            target_rows: drop.target_rows(&params.cost, params.objective, rate),
            ..params
        };
        if auto.is_none() {
            return params;
        }
        let plan = self.learner.plan();
        let learned = plan.target.filter(|_| is_target_learned);
        QueueParams {
            release: Release::Bounded {
                early: plan.early,
                enough: plan.enough,
                wait_max: Nanos((params.cost.beta_ns() as u64).saturating_mul(PATIENCE)),
            },
            target_rows: learned.unwrap_or(params.target_rows),
            ..params
        }
    }
}

/// The scheduler of `albacore-batching` with queues that may learn when to defer.
#[derive(Debug)]
pub struct AutoScheduler {
    core: DeadlineScheduler,
    queues: Vec<AutoQueue>,
    shared: SharedKnowledge,
}

impl AutoScheduler {
    /// No request, no queue, and every worker absent.
    #[must_use]
    pub fn new(config: DeadlineConfig) -> Self {
        Self {
            core: DeadlineScheduler::new(config),
            queues: Vec::new(),
            shared: SharedKnowledge::default(),
        }
    }

    pub fn add_queue(&mut self, policy: QueuePolicy) -> QueueIndex {
        let queue = AutoQueue {
            policy,
            learner: QueueLearner::default(),
        };
        let params = queue.params();
        self.queues.push(queue);
        self.core.add_queue(params)
    }

    #[must_use]
    pub fn policy(&self, queue: QueueIndex) -> Option<&QueuePolicy> {
        self.queues.get(queue.0).map(|queue| &queue.policy)
    }

    /// Replaces the policy of a queue; what was learned stays.
    pub fn set_policy(
        &mut self,
        queue: QueueIndex,
        policy: QueuePolicy,
        now: Nanos,
        actions: &mut DeadlineActions,
    ) {
        let Some(changed) = self.queues.get_mut(queue.0) else {
            return;
        };
        changed.policy = policy;
        let params = changed.params();
        self.core.set_params(queue, params, now, actions);
        self.learn_drops(now, actions);
    }

    /// Passes an event to the scheduler, and learns from it and from the drops that it causes.
    pub fn step(&mut self, event: DeadlineEvent, now: Nanos, actions: &mut DeadlineActions) {
        if let DeadlineEvent::Arrived { queue, rows, .. } = event {
            self.learn_arrival(queue, rows.max(1), now);
        }
        self.core.step(event, now, actions);
        self.learn_drops(now, actions);
    }

    fn learn_arrival(&mut self, index: QueueIndex, rows: u32, now: Nanos) {
        let Some(queue) = self.queues.get_mut(index.0) else {
            return;
        };
        let Some(prefers) = queue.policy.auto else {
            return;
        };
        let (params, shared) = (&queue.policy.params, &mut self.shared);
        if queue.learner.arrived(params, prefers, shared, now, rows) {
            self.core.replace_params(index, queue.params());
        }
    }

    fn learn_drops(&mut self, now: Nanos, actions: &DeadlineActions) {
        for drop in &actions.drops {
            if let Some(queue) = self.queues.get_mut(drop.queue.0) {
                let prefers = queue.policy.auto;
                queue.learner.dropped(prefers, &mut self.shared, now);
            }
        }
    }
}
