//! The scheduler of `albacore-batching` with the release and drop rules of a scenario.

use albacore_batching::auto::{AutoPolicy, QueueProperties};
use albacore_batching::deadlines::{
    Completion, Cost, DeadlineActions, DeadlineConfig, DeadlineEvent, DeadlineScheduler, Dropped,
    QueueParams, Release,
};
use albacore_batching::{Nanos, Prefer, QueueIndex};

use crate::drop_rule::{DropRule, Target};
use crate::scenario::{DropPolicy, Scenario};

/// The release rule of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ReleaseRule {
    Fixed(Release),
    /// Chosen by [`albacore_batching::auto`], as in the live server.
    Auto,
}

/// The rules of a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QueueRules {
    /// Cost of a batch.
    pub(crate) cost: Cost,
    /// Time from arrival to deadline.
    pub(crate) objective: Nanos,
    pub(crate) release: ReleaseRule,
    pub(crate) drop: DropPolicy,
    /// Arriving rows per second, for fixed drop rules.
    pub(crate) rate: f64,
}

/// Drives the core scheduler, and updates the parameters of its queues as `auto` decides.
#[derive(Debug)]
pub(crate) struct ScenarioScheduler {
    core: DeadlineScheduler,
    queues: Vec<QueueRules>,
    auto: AutoPolicy,
    prefer: Prefer,
    workers: usize,
    /// Drops caused by parameter changes before an event.
    dropped: Vec<Dropped>,
}

impl ScenarioScheduler {
    /// Queues of a scenario whose models get `rates` requests per second. Initially no request
    /// waits and no worker is present.
    pub(crate) fn new(scenario: &Scenario, rates: &[f64]) -> Self {
        let config = DeadlineConfig {
            workers: scenario.workers,
            delays: scenario.delays,
            completion: Completion::Predicted,
        };
        let mut scheduler = Self {
            core: DeadlineScheduler::new(config),
            queues: Vec::new(),
            auto: AutoPolicy::default(),
            prefer: scenario.prefer(),
            workers: 0,
            dropped: Vec::new(),
        };
        for (model, rate) in scenario.models.iter().zip(rates) {
            scheduler.add_queue(scenario.queue_rules(model, *rate));
        }
        scheduler
    }

    fn add_queue(&mut self, rules: QueueRules) {
        self.auto.add_queue();
        self.queues.push(rules);
        let queue = QueueIndex(self.queues.len() - 1);
        self.core.add_queue(self.params(queue));
    }

    /// Current rules of a queue.
    pub(crate) fn rules(&self, queue: QueueIndex) -> Option<QueueRules> {
        self.queues.get(queue.0).copied()
    }

    /// Replaces the rules of a queue.
    pub(crate) fn set_rules(
        &mut self,
        queue: QueueIndex,
        rules: QueueRules,
        now: Nanos,
        actions: &mut DeadlineActions,
    ) {
        if let Some(known) = self.queues.get_mut(queue.0) {
            *known = rules;
            let params = self.params(queue);
            self.core.set_params(queue, params, now, actions);
        }
    }

    /// Target batch size of a queue's drop rule, in rows.
    pub(crate) fn target_rows(&self, queue: QueueIndex) -> u64 {
        let QueueRules {
            cost,
            objective,
            release,
            drop,
            rate,
        } = self.queues[queue.0];
        let own = DropRule::Window {
            target: Target::Own,
        };
        match (drop, release) {
            (DropPolicy::Rule(rule), _) => rule.target_rows(&cost, objective, rate),
            (DropPolicy::Auto, ReleaseRule::Auto) => {
                let choice = self.auto.choice(queue);
                choice.target_rows(&cost, objective)
            }
            (DropPolicy::Auto, ReleaseRule::Fixed(_)) => own.target_rows(&cost, objective, rate),
        }
    }

    fn params(&self, queue: QueueIndex) -> QueueParams {
        let QueueRules {
            cost,
            objective,
            release,
            ..
        } = self.queues[queue.0];
        QueueParams {
            cost,
            objective,
            release: match release {
                ReleaseRule::Fixed(release) => release,
                ReleaseRule::Auto => self.auto.choice(queue).release(objective, None),
            },
            target_rows: self.target_rows(queue),
            rows_max: u64::MAX,
            requests_max: usize::MAX,
        }
    }

    /// Passes an event to the scheduler, after applying the decisions of `auto`.
    pub(crate) fn step(&mut self, event: DeadlineEvent, now: Nanos, actions: &mut DeadlineActions) {
        match event {
            DeadlineEvent::Arrived { queue, rows, .. } => {
                self.auto.arrived(queue, u64::from(rows), now);
                self.decide(now, actions);
            }
            DeadlineEvent::WorkerReady { .. } => self.workers += 1,
            DeadlineEvent::WorkerGone { .. } => self.workers = self.workers.saturating_sub(1),
            _ => {}
        }
        self.core.step(event, now, actions);
        actions.drops.append(&mut self.dropped);
    }

    fn decide(&mut self, now: Nanos, actions: &mut DeadlineActions) {
        let is_auto = |rules: &QueueRules| rules.release == ReleaseRule::Auto;
        if !self.auto.is_due(now) || !self.queues.iter().any(is_auto) {
            return;
        }
        let facts = |rules: &QueueRules| QueueProperties {
            cost: Some(rules.cost),
            mean_cost: Some(rules.cost),
            objective: Some(rules.objective),
            prefer: Some(self.prefer),
            rows_max: u64::MAX,
            window: None,
        };
        let facts: Vec<_> = self.queues.iter().map(facts).collect();
        self.auto.decide(&facts, self.workers, now);
        for queue in 0..self.queues.len() {
            let queue = QueueIndex(queue);
            let params = self.params(queue);
            self.core.set_params(queue, params, now, actions);
            self.dropped.append(&mut actions.drops);
        }
    }
}
