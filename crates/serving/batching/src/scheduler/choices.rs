//! Choices of policy `auto` for the queues that use it.

use super::Scheduler;
use crate::auto::{Choice, QueueProperties};
use crate::{Nanos, Profile, QueueIndex};

impl Scheduler {
    /// Recomputes for each queue under `auto` whether it is deferred, if a decision is due.
    pub(super) fn decide_auto(&mut self) {
        let mut queues = (0..self.profiles.len()).map(QueueIndex);
        if !self.auto.is_due(self.now)
            || queues.all(|queue| self.batching(queue).policy.prefer().is_none())
        {
            return;
        }
        let facts = |(queue, profile): (usize, &Profile)| {
            let batching = self.batching(QueueIndex(queue));
            QueueProperties {
                cost: profile.cost,
                mean_cost: profile.mean_cost,
                objective: profile.objective,
                prefer: batching.policy.prefer(),
                rows_max: batching.batch_rows_max.max(1) as u64,
                window: batching.window.map(Nanos::from),
            }
        };
        let facts: Vec<_> = self.profiles.iter().enumerate().map(facts).collect();
        self.auto.decide(&facts, self.present_workers(), self.now);
        self.changed_choices.extend(self.auto.take_changed());
        for (queue, facts) in facts.iter().enumerate() {
            if facts.prefer.is_some() {
                self.apply(queue);
            }
        }
    }

    /// The choice of [`crate::Policy::Auto`] for a queue; `None` under another policy.
    #[must_use]
    pub fn choice(&self, queue: QueueIndex) -> Option<Choice> {
        let prefer = self.batching(queue).policy.prefer();
        prefer.map(|_| self.auto.choice(queue))
    }
}
