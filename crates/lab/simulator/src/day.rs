//! Simulates an autoscaler under the load of a day.
//!
//! The load varies from a fifth of the scenario's rate at night to the full rate in the evening,
//! with a sudden rush in the morning. At each [`INTERVAL`] the autoscaler gets the load of the last
//! [`WINDOW`] and sets the number of workers; new ones are ready after [`START`].

use std::collections::VecDeque;

use albacore_batching::deadlines::{DeadlineActions, DeadlineEvent};
use albacore_batching::{
    Autoscaler, Load, Nanos, QueueIndex, ReplicaBounds, RequestKey, WorkerIndex, load_factor,
};

use crate::arrivals::Arrivals;
use crate::goodput::BAD_RATE_MAX;
use crate::scenario::{Scenario, Source};
use crate::scenario_scheduler::{QueueRules, ReleaseRule, ScenarioScheduler};

/// Interval of the autoscaler.
pub const INTERVAL: Nanos = Nanos(15_000_000_000);
/// Window of the load metrics.
pub const WINDOW: Nanos = Nanos(60_000_000_000);
/// Time from the decision to add a worker until it is ready.
pub const START: Nanos = Nanos(30_000_000_000);
/// Scale-down stabilization of the stock autoscaler.
const STABILIZATION: Nanos = Nanos(300_000_000_000);
/// Its target of the busy share.
const BUSY_TARGET: f64 = 0.7;
/// Its tolerance around the target.
const TOLERANCE: f64 = 0.1;
/// Minimum load of the day, and height of the rush, as shares of the rate.
const NIGHT: f64 = 0.2;
const RUSH: f64 = 0.4;

#[derive(Debug)]
enum Scaler {
    /// By bad rate and idle share, like the controller.
    Load(Autoscaler),
    /// By the busy share alone, like a stock autoscaler by CPU; contains its recent
    /// recommendations.
    Busy(VecDeque<(Nanos, u32)>),
    /// A stock autoscaler by `albacore_load_factor`.
    Factor(VecDeque<(Nanos, u32)>),
}

/// An interval of the day.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub at: Nanos,
    /// Arrivals per second.
    pub rate: f64,
    /// Ready workers.
    pub workers: usize,
    /// Requests in the interval, and the bad ones among them.
    pub requests: u64,
    pub bad: u64,
    /// Mean share of time in which a ready worker was idle.
    pub idle_share: f64,
}

/// Result of a day under one autoscaler.
#[derive(Clone, Debug, PartialEq)]
pub struct Day {
    /// `load`, `busy` or `factor`.
    pub scaler: &'static str,
    /// In order of time.
    pub intervals: Vec<Interval>,
}

impl Day {
    /// Share of bad requests.
    #[must_use]
    pub fn bad_rate(&self) -> f64 {
        let sum = |of: fn(&Interval) -> u64| self.intervals.iter().map(of).sum::<u64>();
        sum(|i| i.bad) as f64 / sum(|i| i.requests).max(1) as f64
    }

    /// Total worker time, seconds.
    #[must_use]
    pub fn worker_seconds(&self) -> f64 {
        let workers: usize = self.intervals.iter().map(|interval| interval.workers).sum();
        workers as f64 * INTERVAL.0 as f64 * 1e-9
    }

    /// Total time in which more than 1 % of requests were bad, seconds.
    #[must_use]
    pub fn lag_seconds(&self) -> f64 {
        let late = self.intervals.iter().filter(|i| is_late(i)).count();
        late as f64 * INTERVAL.0 as f64 * 1e-9
    }

    /// Longest contiguous such time, seconds.
    #[must_use]
    pub fn longest_lag_seconds(&self) -> f64 {
        let runs = self.intervals.split(|i| !is_late(i));
        let longest = runs.map(<[Interval]>::len).max().unwrap_or(0);
        longest as f64 * INTERVAL.0 as f64 * 1e-9
    }
}

fn is_late(interval: &Interval) -> bool {
    interval.bad as f64 > interval.requests as f64 * BAD_RATE_MAX
}

/// Load at this fraction of the day, as a share of the peak.
#[must_use]
pub fn load_at(part: f64) -> f64 {
    let wave = 0.5 - 0.5 * (std::f64::consts::TAU * (part - 0.3)).cos();
    let rush = match (part - 0.35).abs() < 0.01 {
        true => RUSH,
        false => 0.0,
    };
    (NIGHT + (1.0 - NIGHT) * wave + rush).min(1.0)
}

/// A day of `length` under each autoscaler, with the scenario's workers as the maximum and its rate
/// as the peak. `None` if its arrivals are listed. `progress` is called with numbers of simulated
/// requests.
pub fn days(scenario: &Scenario, length: Nanos, progress: &mut dyn FnMut(u64)) -> Option<[Day; 2]> {
    let load = ("load", Scaler::Load(Autoscaler::default()));
    let busy = ("busy", Scaler::Busy(VecDeque::new()));
    let run = |(name, scaler), progress: &mut dyn FnMut(u64)| {
        let intervals = Run::new(scenario, scaler, load_at)?.run(length, progress);
        Some(Day {
            scaler: name,
            intervals,
        })
    };
    Some([run(load, progress)?, run(busy, progress)?])
}

/// A constant load of `share` of the scenario's rate, under a stock autoscaler by the load factor.
/// `None` if its arrivals are listed.
#[must_use]
pub fn steady_by_factor(scenario: &Scenario, share: f64, length: Nanos) -> Option<Day> {
    let scaler = Scaler::Factor(VecDeque::new());
    let intervals = Run::new(scenario, scaler, |_| share)?.run(length, &mut |_| ());
    Some(Day {
        scaler: "factor",
        intervals,
    })
}

struct Run<'a, L> {
    scenario: &'a Scenario,
    /// Load at a fraction of the run, as a share of the peak.
    load_at: L,
    /// Peak requests per second of each model.
    rates: Vec<f64>,
    arrivals: Arrivals<'a>,
    scheduler: ScenarioScheduler,
    actions: DeadlineActions,
    scaler: Scaler,
    arrived: Vec<u64>,
    workers: usize,
    /// Times at which starting workers become ready.
    starting: VecDeque<Nanos>,
    requests: u64,
    bad: u64,
    busy: u64,
}

impl<'a, L: Fn(f64) -> f64> Run<'a, L> {
    fn new(scenario: &'a Scenario, scaler: Scaler, load_at: L) -> Option<Self> {
        let Source::Drawn { process, .. } = &scenario.source else {
            return None;
        };
        let rates = scenario.rates();
        let first: Vec<f64> = rates.iter().map(|rate| rate * load_at(0.0)).collect();
        let mut run = Self {
            arrivals: Arrivals::draw(*process, &first, scenario.seed),
            scheduler: ScenarioScheduler::new(scenario, &first),
            actions: DeadlineActions::default(),
            scaler,
            arrived: vec![0; rates.len()],
            workers: 0,
            starting: VecDeque::new(),
            requests: 0,
            bad: 0,
            busy: 0,
            rates,
            scenario,
            load_at,
        };
        // Starts with enough workers for the load at the beginning.
        let share = ((run.load_at)(0.0) * 1.2).min(1.0);
        run.resize((scenario.workers as f64 * share).ceil() as usize, Nanos(0));
        Some(run)
    }

    fn run(mut self, length: Nanos, progress: &mut dyn FnMut(u64)) -> Vec<Interval> {
        let mut intervals: Vec<Interval> = Vec::new();
        let mut next = self.arrivals.next();
        let mut begin = Nanos(0);
        while begin < length {
            let end = begin.saturating_add(INTERVAL);
            let share = (self.load_at)(begin.0 as f64 / length.0 as f64);
            self.set_load(share, begin);
            while let Some(arrival) = next.filter(|arrival| arrival.at < end.0) {
                self.take(arrival.model, Nanos(arrival.at));
                next = self.arrivals.next();
            }
            self.run_timers(end);
            let time = (self.workers as u64 * INTERVAL.0).max(1);
            intervals.push(Interval {
                at: end,
                rate: self.rates.iter().sum::<f64>() * share,
                workers: self.workers,
                requests: self.requests,
                bad: self.bad,
                idle_share: 1.0 - (self.busy as f64 / time as f64).min(1.0),
            });
            progress(self.requests);
            (self.requests, self.bad, self.busy) = (0, 0, 0);
            self.scale(&intervals, end);
            begin = end;
        }
        intervals
    }

    fn set_load(&mut self, share: f64, now: Nanos) {
        let rates: Vec<f64> = self.rates.iter().map(|rate| rate * share).collect();
        self.arrivals.set_rates(&rates, now.0);
        for (queue, rate) in rates.into_iter().enumerate() {
            let queue = QueueIndex(queue);
            // `auto` measures rates itself.
            let rules = self.scheduler.rules(queue);
            if let Some(rules) = rules.filter(|rules| rules.release != ReleaseRule::Auto) {
                let rules = QueueRules { rate, ..rules };
                self.scheduler
                    .set_rules(queue, rules, now, &mut self.actions);
                self.record_actions();
            }
        }
    }

    fn take(&mut self, model: usize, now: Nanos) {
        self.run_timers(now);
        self.requests += 1;
        self.arrived[model] += 1;
        let (queue, key) = (QueueIndex(model), RequestKey(self.arrived[model]));
        let (rows, within) = (1, None);
        let event = DeadlineEvent::Arrived {
            queue,
            key,
            rows,
            within,
        };
        self.step(event, now);
    }

    /// Processes every timer and every worker start before `end`.
    fn run_timers(&mut self, end: Nanos) {
        // bound: each pass consumes a timer or a worker start due before `end`.
        loop {
            let timer = self.actions.timer.filter(|&timer| timer < end);
            let ready = self.starting.front().copied().filter(|&at| at < end);
            match (timer, ready) {
                (Some(timer), ready) if ready.is_none_or(|ready| timer <= ready) => {
                    self.step(DeadlineEvent::Timer, timer);
                }
                (_, Some(ready)) => {
                    self.starting.pop_front();
                    self.resize(self.workers + 1, ready);
                }
                _ => return,
            }
        }
    }

    fn step(&mut self, event: DeadlineEvent, now: Nanos) {
        self.scheduler.step(event, now, &mut self.actions);
        self.record_actions();
    }

    fn record_actions(&mut self) {
        self.bad += self.actions.drops.len() as u64;
        for dispatch in &self.actions.dispatches {
            self.busy += dispatch.departure.end.0 - dispatch.departure.start.0;
        }
    }

    /// Sets the number of workers; those with the highest index are removed first.
    fn resize(&mut self, workers: usize, now: Nanos) {
        let workers = workers.clamp(1, self.scenario.workers);
        for worker in self.workers..workers {
            let worker = WorkerIndex::at(worker);
            self.step(DeadlineEvent::WorkerReady { worker }, now);
        }
        for worker in workers..self.workers {
            let worker = WorkerIndex::at(worker);
            self.step(DeadlineEvent::WorkerGone { worker }, now);
        }
        self.workers = workers;
    }

    fn scale(&mut self, intervals: &[Interval], now: Nanos) {
        let shown = (WINDOW.0 / INTERVAL.0) as usize;
        let last = &intervals[intervals.len().saturating_sub(shown)..];
        let idle = last.iter().map(|i| i.idle_share).sum::<f64>() / last.len().max(1) as f64;
        let wanted = (self.workers + self.starting.len()) as u32;
        let bounds = ReplicaBounds {
            min: 1,
            max: self.scenario.workers as u32,
        };
        let load = Load {
            pods: self.workers as u32,
            requests: last.iter().map(|i| i.requests).sum(),
            bad: last.iter().map(|i| i.bad).sum(),
            recent_requests: last.last().map_or(0, |i| i.requests),
            recent_bad: last.last().map_or(0, |i| i.bad),
            idle_share: idle,
            bad_rate_allowed: BAD_RATE_MAX,
        };
        let pods = (load.pods, wanted);
        let advised = match &mut self.scaler {
            Scaler::Load(autoscaler) => autoscaler.advise(now, &bounds, wanted, &load).replicas,
            Scaler::Busy(memory) => {
                advise_by_ratio(memory, now, &bounds, pods, (1.0 - idle) / BUSY_TARGET)
            }
            Scaler::Factor(memory) => {
                advise_by_ratio(memory, now, &bounds, pods, load_factor(&load))
            }
        };
        if advised < wanted {
            self.starting.clear();
            self.resize((advised as usize).min(self.workers), now);
        }
        for _ in wanted..advised {
            self.starting.push_back(now.saturating_add(START));
        }
    }
}

/// Recommendation of a stock autoscaler whose metric, averaged over `ready` pods, is `ratio` times
/// its target, when `current` pods are requested: never less than its recent recommendations.
/// Starting pods have no metric; they count as zero or as the target, whichever changes the number
/// less.
fn advise_by_ratio(
    memory: &mut VecDeque<(Nanos, u32)>,
    now: Nanos,
    bounds: &ReplicaBounds,
    (ready, current): (u32, u32),
    ratio: f64,
) -> u32 {
    let starting = f64::from(current.saturating_sub(ready));
    let assumed = match ratio > 1.0 {
        true => 0.0,
        false => starting,
    };
    let needed = f64::from(ready) * ratio + assumed;
    let change = needed / f64::from(current.max(1)) - 1.0;
    let is_turned = (change > 0.0) != (ratio > 1.0);
    let wanted = match change.abs() <= TOLERANCE || is_turned {
        true => current,
        false => bounds.clamp((needed - 1e-9).ceil() as u32),
    };
    memory.push_back((now, wanted));
    // bound: one recommendation per interval, kept for the stabilization time.
    while memory
        .front()
        .is_some_and(|&(at, _)| now.saturating_sub(at) > STABILIZATION)
    {
        memory.pop_front();
    }
    match wanted >= current {
        true => wanted,
        false => memory
            .iter()
            .map(|m| m.1)
            .max()
            .unwrap_or(wanted)
            .min(current),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_of_the_day_is_a_share_of_the_peak() {
        let parts = (0..1000).map(|n| load_at(f64::from(n) / 1000.0));
        let (least, most) = parts.fold((1.0_f64, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
        assert!((least - NIGHT).abs() < 0.01 && (most - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_stock_autoscaler_grows_at_once_and_shrinks_late() {
        let bounds = ReplicaBounds { min: 1, max: 100 };
        let mut memory = VecDeque::new();
        let mut advise = |minute: u64, current, busy| {
            let now = Nanos(minute * 60_000_000_000);
            advise_by_ratio(
                &mut memory,
                now,
                &bounds,
                (current, current),
                busy / BUSY_TARGET,
            )
        };
        assert_eq!(advise(0, 10, 1.0), 15);
        assert_eq!(advise(1, 15, 0.7), 15);
        assert_eq!(advise(2, 15, 0.3), 15);
        assert_eq!(advise(7, 15, 0.3), 7);
    }
}
