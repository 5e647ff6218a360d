//! Runs a scenario: passes arrivals and timers to the scheduler in order of time.
//!
//! Batches take exactly the time of their profile, so a dispatched request is always in time and
//! only dropped requests are bad. The warm-up is not measured, because a run starts with empty
//! queues.

use albacore_batching::deadlines::{DeadlineActions, DeadlineDispatch, DeadlineEvent, Release};
use albacore_batching::{Nanos, QueueIndex, RequestKey, WorkerIndex};

use crate::arrivals::{Arrival, Arrivals};
use crate::clients::Clients;
use crate::measure::{Figures, Recorder};
use crate::scenario::{Scenario, Source};
use crate::scenario_scheduler::{QueueRules, ReleaseRule, ScenarioScheduler};

/// Warm-up requests as a share of the measured ones.
const WARMUP_SHARE: f64 = 0.1;

/// Interval, in arrivals, at which the watcher is called.
const WATCH_EVERY: u64 = 1 << 16;

/// Observes a run.
pub trait Watcher {
    /// A batch was dispatched; `keys` are the first and last request of its model, counted from 1.
    fn dispatched(&mut self, _dispatch: &DeadlineDispatch, _keys: (u64, u64)) {}
    /// A request was dropped.
    fn dropped(&mut self, _at: Nanos, _model: usize, _key: u64) {}
    /// `arrived` of `of` requests have arrived; `false` aborts the run.
    fn should_continue(&mut self, _arrived: u64, _of: u64, _bad: &[u64]) -> bool {
        true
    }
}

#[derive(Debug)]
pub struct Unwatched;

impl Watcher for Unwatched {}

/// Runs a scenario to completion.
pub fn run(scenario: &Scenario) -> Figures {
    run_watched(scenario, &mut Unwatched)
}

/// Runs a scenario with an observer.
pub fn run_watched(scenario: &Scenario, watcher: &mut impl Watcher) -> Figures {
    let mut run = Run::new(scenario, watcher);
    run.run();
    run.recorder.counts.figures()
}

struct Run<'a, W> {
    scenario: &'a Scenario,
    watcher: &'a mut W,
    arrivals: Arrivals<'a>,
    /// Numbers of warm-up and measured requests.
    warmup: u64,
    requests: u64,
    scheduler: ScenarioScheduler,
    actions: DeadlineActions,
    recorder: Recorder,
    /// Arrivals of each model so far.
    arrived: Vec<u64>,
    /// Warm-up arrivals of each model.
    warm: Vec<u64>,
}

impl<'a, W: Watcher> Run<'a, W> {
    fn new(scenario: &'a Scenario, watcher: &'a mut W) -> Self {
        let models = scenario.models.len();
        let (arrivals, warmup, requests) = arrivals(scenario);
        let mut run = Self {
            arrivals,
            warmup,
            requests,
            scheduler: ScenarioScheduler::new(scenario, &scenario.rates()),
            actions: DeadlineActions::default(),
            recorder: Recorder::new(models, scenario.workers),
            arrived: vec![0; models],
            warm: vec![0; models],
            scenario,
            watcher,
        };
        for worker in 0..scenario.workers {
            let worker = WorkerIndex::at(worker);
            let event = DeadlineEvent::WorkerReady { worker };
            run.scheduler.step(event, Nanos(0), &mut run.actions);
        }
        run
    }

    fn run(&mut self) {
        let scenario = self.scenario;
        let (warmup, requests) = (self.warmup, self.requests);
        let mut eager_from = scenario.eager_from;
        if warmup == 0 {
            self.begin(0);
        }
        for number in 0..warmup + requests {
            let Some(arrival) = self.next_arrival() else {
                break;
            };
            let now = Nanos(arrival.at);
            if number == warmup && warmup > 0 {
                self.begin(arrival.at);
            }
            if let Some(from) = eager_from.take_if(|from| *from <= now) {
                self.switch_to_eager(from);
            }
            self.run_timers(now);
            self.arrived[arrival.model] += 1;
            let event = DeadlineEvent::Arrived {
                queue: QueueIndex(arrival.model),
                key: RequestKey(self.arrived[arrival.model]),
                rows: 1,
                within: None,
            };
            self.recorder.counts.end = arrival.at;
            self.step(event, now);
            if number % WATCH_EVERY == WATCH_EVERY - 1
                && !self.watcher.should_continue(
                    number + 1,
                    warmup + requests,
                    &self.recorder.counts.bad,
                )
            {
                break;
            }
        }
        self.recorder.end();
        self.run_timers(Nanos::MAX);
        for (model, arrived) in self.arrived.iter().enumerate() {
            self.recorder.counts.offered[model] = arrived - self.warm[model];
        }
    }

    /// The next arrival. With closed-loop clients, first processes the timers that may produce
    /// replies.
    fn next_arrival(&mut self) -> Option<Arrival> {
        while let Arrivals::ClosedLoop(clients) = &self.arrivals {
            let is_first = |timer: &Nanos| clients.next_at().is_none_or(|at| timer.0 < at);
            match self.actions.timer.filter(is_first) {
                Some(timer) => self.step(DeadlineEvent::Timer, timer),
                None => break,
            }
        }
        self.arrivals.next()
    }

    fn begin(&mut self, now: u64) {
        self.recorder.begin(now);
        self.warm.clone_from(&self.arrived);
    }

    fn switch_to_eager(&mut self, from: Nanos) {
        self.run_timers(from);
        for queue in 0..self.scenario.models.len() {
            let queue = QueueIndex(queue);
            if let Some(rules) = self.scheduler.rules(queue) {
                let eager = QueueRules {
                    release: ReleaseRule::Fixed(Release::Eager),
                    ..rules
                };
                self.scheduler
                    .set_rules(queue, eager, from, &mut self.actions);
                self.record_actions(from);
            }
        }
    }

    /// Processes every timer before `end`.
    fn run_timers(&mut self, end: Nanos) {
        while let Some(timer) = self.actions.timer.filter(|&timer| timer < end) {
            self.step(DeadlineEvent::Timer, timer);
        }
    }

    fn step(&mut self, event: DeadlineEvent, now: Nanos) {
        self.scheduler.step(event, now, &mut self.actions);
        if !self.actions.drops.is_empty() || !self.actions.dispatches.is_empty() {
            self.record_actions(now);
        }
    }

    /// Records the scheduler's actions.
    fn record_actions(&mut self, now: Nanos) {
        for drop in &self.actions.drops {
            let model = drop.queue.0;
            let is_measured = drop.key.0 > self.warm[model] && self.recorder.is_measuring();
            self.recorder.counts.bad[model] += u64::from(is_measured);
            self.watcher.dropped(now, model, drop.key.0);
            if let Arrivals::ClosedLoop(clients) = &mut self.arrivals {
                clients.answer(now.0);
            }
        }
        for dispatch in &self.actions.dispatches {
            let members = self.actions.requests(dispatch);
            let (first, last) = (members.first(), members.last());
            let keys = (first.map_or(0, |m| m.key.0), last.map_or(0, |m| m.key.0));
            self.watcher.dispatched(dispatch, keys);
            let end = dispatch.departure.end.0;
            if let Arrivals::ClosedLoop(clients) = &mut self.arrivals {
                members.iter().for_each(|_| clients.answer(end));
            }
            let worker = dispatch.worker.position();
            self.recorder
                .dispatched(worker, &dispatch.departure, members);
        }
    }
}

/// Arrivals of a scenario, with the numbers of warm-up and measured requests.
pub(crate) fn arrivals(scenario: &Scenario) -> (Arrivals<'_>, u64, u64) {
    let warmup = |requests: u64| (requests as f64 * WARMUP_SHARE) as u64;
    match &scenario.source {
        Source::Listed(list) => (Arrivals::listed(list), 0, list.len() as u64),
        &Source::Drawn {
            process, requests, ..
        } => {
            let drawn = Arrivals::draw(process, &scenario.rates(), scenario.seed);
            (drawn, warmup(requests), requests)
        }
        &Source::Closed {
            clients,
            think,
            popularity,
            requests,
        } => {
            let shares = popularity.shares(scenario.models.len());
            let clients = Clients::new(clients, think.0, &shares, scenario.seed);
            (Arrivals::ClosedLoop(clients), warmup(requests), requests)
        }
    }
}
