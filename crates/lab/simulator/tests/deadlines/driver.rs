//! Drives the scheduler through a list of events, like a simulator.

use albacore_batching::deadlines::{
    Completion, DeadlineActions, DeadlineConfig, DeadlineEvent, DeadlineScheduler, Delays,
    QueueParams,
};
use albacore_batching::{Nanos, QueueIndex, RequestKey, WorkerIndex};

use crate::oracle::Done;

/// External events, in order of time.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Arrival { queue: usize, key: u64, rows: u32 },
    Withdrawal { queue: usize, key: u64 },
    Rules { queue: usize, rules: QueueParams },
}

pub(crate) struct Driver {
    pub(crate) scheduler: DeadlineScheduler,
    pub(crate) timer: Option<Nanos>,
    actions: DeadlineActions,
    pub(crate) done: Vec<Done>,
}

impl Driver {
    pub(crate) fn new(rules: &[QueueParams], workers: usize, delays: Delays) -> Self {
        let mut scheduler = DeadlineScheduler::new(DeadlineConfig {
            workers,
            delays,
            completion: Completion::Predicted,
        });
        for rules in rules {
            scheduler.add_queue(*rules);
        }
        let mut driver = Self {
            scheduler,
            timer: None,
            actions: DeadlineActions::default(),
            done: Vec::new(),
        };
        for worker in 0..workers {
            let worker = WorkerIndex::at(worker);
            driver.step(DeadlineEvent::WorkerReady { worker }, Nanos(0));
        }
        driver
    }

    fn step(&mut self, event: DeadlineEvent, now: Nanos) {
        self.scheduler.step(event, now, &mut self.actions);
        self.file(now);
    }

    fn file(&mut self, now: Nanos) {
        let at = i128::from(now.0);
        // Both lists are sorted; there is no order between them.
        for drop in &self.actions.drops {
            self.done.push(Done::Drop {
                at,
                queue: drop.queue.0,
                key: drop.key.0,
            });
        }
        for dispatch in &self.actions.dispatches {
            let members = self.actions.requests(dispatch);
            let rows: u64 = members.iter().map(|member| u64::from(member.rows)).sum();
            assert_eq!(rows, dispatch.departure.rows);
            self.done.push(Done::Batch {
                start: i128::from(dispatch.departure.start.0),
                end: i128::from(dispatch.departure.end.0),
                worker: dispatch.worker.position(),
                queue: dispatch.queue.0,
                keys: members.iter().map(|member| member.key.0).collect(),
                at,
            });
        }
        self.timer = self.actions.timer;
        assert!(
            self.timer.is_none_or(|timer| timer >= now),
            "a timer in the past"
        );
    }

    /// Runs every timer before `end`.
    pub(crate) fn run_until(&mut self, end: Nanos) {
        while let Some(timer) = self.timer.filter(|&timer| timer < end) {
            self.step(DeadlineEvent::Timer, timer);
        }
    }

    pub(crate) fn take(&mut self, input: &Input, now: Nanos) {
        match *input {
            Input::Arrival { queue, key, rows } => {
                let (queue, key) = (QueueIndex(queue), RequestKey(key));
                let within = None;
                let event = DeadlineEvent::Arrived {
                    queue,
                    key,
                    rows,
                    within,
                };
                self.step(event, now);
            }
            Input::Withdrawal { queue, key } => {
                let (queue, key) = (QueueIndex(queue), RequestKey(key));
                self.step(DeadlineEvent::Withdrawn { queue, key }, now);
            }
            Input::Rules { queue, rules } => {
                let queue = QueueIndex(queue);
                self.scheduler
                    .set_params(queue, rules, now, &mut self.actions);
                self.file(now);
            }
        }
    }
}
