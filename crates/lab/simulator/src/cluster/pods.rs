//! Pods, and the cells that schedule them: each pod is a cell, unless the scheduler is central.

use albacore_batching::deadlines::{DeadlineActions, DeadlineDispatch, DeadlineEvent};
use albacore_batching::{Load, Nanos, QueueIndex, WorkerIndex, load_factor};

use super::{Cluster, Routing};
use crate::goodput::BAD_RATE_MAX;
use crate::scenario::Scenario;
use crate::scenario_scheduler::ScenarioScheduler;

/// Amount that gRPC adds to the utilization per failed request.
const ERROR_PENALTY: f64 = 1.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Pod {
    pub(super) cell: usize,
    /// Its first worker in the cell.
    pub(super) first_worker: usize,
    pub(super) is_up: bool,
}

/// Load report of a pod.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// Requests accepted but not answered.
    pub(super) open: u64,
    /// Per model, the expected latency of an additional request.
    pub(super) answers_after: Vec<Nanos>,
    /// Its weight for the time since its last report; `None` if it answered nothing.
    pub(super) weight: Option<f64>,
}

/// Work of a cell since its last report.
#[derive(Clone, Debug, Default)]
struct Done {
    /// Answered requests of each model.
    answered: Vec<u64>,
    refused: u64,
    busy: u64,
}

/// Workers of one speed with a common scheduler.
#[derive(Debug)]
pub(super) struct Cell {
    /// Its workers, and the cost model of their batches.
    scenario: Scenario,
    /// Expected requests per second of each model.
    rates: Vec<f64>,
    scheduler: ScenarioScheduler,
    pub(super) actions: DeadlineActions,
    /// Its pods, in the order of their workers.
    pub(super) pods: Vec<usize>,
    /// Index of its first worker among those of all cells.
    pub(super) first_worker: usize,
    /// Upper bound of the requests per second that its pods can answer.
    pub(super) bound: f64,
    /// End of the last batch of each worker.
    busy_until: Vec<Nanos>,
    /// Waiting requests of each model.
    waiting: Vec<u64>,
    /// Requests accepted but not answered.
    pub(super) open: u64,
    done: Done,
    reported_at: Nanos,
}

/// The cells of a cluster, and its pods.
pub(super) fn cells(cluster: &Cluster) -> (Vec<Cell>, Vec<Pod>) {
    let mut groups: Vec<(f64, Vec<usize>)> = Vec::new();
    for (pod, &slowness) in cluster.slowness.iter().enumerate() {
        let same = groups.iter_mut().find(|(known, _)| *known == slowness);
        match same.filter(|_| cluster.routing == Routing::Central) {
            Some((_, pods)) => pods.push(pod),
            None => groups.push((slowness, vec![pod])),
        }
    }
    let per_pod = cluster.pod.workers;
    let mut pods = vec![None; cluster.slowness.len()];
    let mut cells = Vec::new();
    let whole = cluster.rate_bound();
    let mut first_worker = 0;
    for (cell, (slowness, members)) in groups.into_iter().enumerate() {
        for (place, &pod) in members.iter().enumerate() {
            pods[pod] = Some(Pod {
                cell,
                first_worker: place * per_pod,
                is_up: true,
            });
        }
        let mut scenario = cluster.pod.slowed(slowness);
        scenario.workers = per_pod * members.len();
        if cluster.routing == Routing::Central {
            let control = &mut scenario.delays.control;
            *control = control.saturating_add(cluster.hop);
        }
        let part = match cluster.routing.is_even() {
            true => 1.0 / cluster.slowness.len() as f64,
            false => scenario.rate_bound() / whole,
        };
        let cell = Cell::new(scenario, part, members, first_worker);
        first_worker += cell.busy_until.len();
        cells.push(cell);
    }
    (cells, pods.into_iter().flatten().collect())
}

impl Cell {
    /// A cell without requests, with all workers ready. `part` is its share of the scenario's rate.
    fn new(scenario: Scenario, part: f64, pods: Vec<usize>, first_worker: usize) -> Self {
        let rates: Vec<f64> = scenario.rates().iter().map(|rate| rate * part).collect();
        let mut cell = Self {
            scheduler: ScenarioScheduler::new(&scenario, &rates),
            actions: DeadlineActions::default(),
            pods,
            first_worker,
            bound: scenario.rate_bound(),
            busy_until: Vec::new(),
            waiting: Vec::new(),
            open: 0,
            done: Done::default(),
            reported_at: Nanos(0),
            rates,
            scenario,
        };
        cell.clear(Nanos(0));
        cell.start(0..cell.scenario.workers, Nanos(0));
        cell
    }

    /// Resets the state after a restart of the process: no requests and no workers.
    pub(super) fn clear(&mut self, now: Nanos) {
        let models = self.scenario.models.len();
        self.scheduler = ScenarioScheduler::new(&self.scenario, &self.rates);
        self.actions = DeadlineActions::default();
        self.busy_until = vec![Nanos(0); self.scenario.workers];
        self.waiting = vec![0; models];
        self.open = 0;
        self.reset_totals(now);
    }

    fn reset_totals(&mut self, now: Nanos) {
        let answered = vec![0; self.scenario.models.len()];
        self.done = Done {
            answered,
            ..Done::default()
        };
        self.reported_at = now;
    }

    /// Marks these workers as ready.
    pub(super) fn start(&mut self, workers: std::ops::Range<usize>, now: Nanos) {
        for worker in workers.map(WorkerIndex::at) {
            self.step(DeadlineEvent::WorkerReady { worker }, now);
        }
    }

    pub(super) fn step(&mut self, event: DeadlineEvent, now: Nanos) {
        self.scheduler.step(event, now, &mut self.actions);
    }

    pub(super) fn workers_per_pod(&self) -> usize {
        self.scenario.workers / self.pods.len()
    }

    pub(super) fn accepted(&mut self, model: usize) {
        self.waiting[model] += 1;
        self.open += 1;
    }

    /// A waiting request is dropped.
    pub(super) fn dropped(&mut self, model: usize) {
        self.waiting[model] -= 1;
        self.open -= 1;
    }

    pub(super) fn refused(&mut self) {
        self.done.refused += 1;
    }

    pub(super) fn dispatched(&mut self, dispatch: &DeadlineDispatch, requests: usize) {
        let departure = &dispatch.departure;
        self.waiting[dispatch.queue.0] -= requests as u64;
        self.busy_until[dispatch.worker.position()] = departure.end;
        self.done.busy += departure.end.0 - departure.start.0;
    }

    pub(super) fn count_answer(&mut self, model: usize) {
        self.open -= 1;
        self.done.answered[model] += 1;
    }

    /// A request in a batch was lost with its pod.
    pub(super) fn lost(&mut self) {
        self.open -= 1;
    }

    /// Expected latency of a request of a model that arrives now, without deferral and without
    /// drops.
    pub(super) fn answers_after(&self, model: usize, now: Nanos) -> Nanos {
        let mut free: Vec<u64> = self.busy_until.iter().map(|at| at.0.max(now.0)).collect();
        free.sort_unstable();
        let ahead = |queue: usize| self.waiting[queue] / self.full_rows(queue);
        let ahead = (0..self.waiting.len()).map(ahead).sum::<u64>() as usize;
        let cost = &self.scenario.models[model].cost;
        let full = self.full_rows(model);
        let rounds = (ahead / free.len()) as u64 * cost.of(full).0;
        let start = free[ahead % free.len()] - now.0 + rounds;
        Nanos(start + cost.of(self.waiting[model] % full + 1).0)
    }

    /// Batch size of a queue under load, in rows.
    fn full_rows(&self, queue: usize) -> u64 {
        let model = &self.scenario.models[queue];
        let half = model.cost.rows_within(Nanos(model.objective.0 / 2));
        half.max(self.scheduler.target_rows(QueueIndex(queue)))
            .max(1)
    }

    /// Load report for the time since the last one.
    pub(super) fn report(&mut self, routing: Routing, now: Nanos) -> Report {
        let span = now.saturating_sub(self.reported_at).0.max(1) as f64;
        // Excludes the remaining time of running batches, which belongs to the next report.
        let rest = |at: &Nanos| at.saturating_sub(now).0;
        let rest: u64 = self.busy_until.iter().map(rest).sum();
        let busy = self.done.busy.saturating_sub(rest);
        let share = |time: f64| time / (span * self.scenario.workers as f64);
        let answered: u64 = self.done.answered.iter().sum();
        let requests = answered + self.done.refused;
        let utilization = match routing {
            Routing::OrcaWork => share(self.work_time()),
            _ => load_factor(&Load {
                pods: 1,
                requests,
                bad: self.done.refused,
                recent_requests: 0,
                recent_bad: 0,
                idle_share: 1.0 - share(busy as f64).min(1.0),
                bad_rate_allowed: BAD_RATE_MAX,
            }),
        };
        let errors = self.done.refused as f64 / requests.max(1) as f64;
        let weight = requests as f64 / span / (utilization + errors * ERROR_PENALTY);
        let models = 0..self.waiting.len();
        let report = Report {
            open: self.open,
            answers_after: models.map(|model| self.answers_after(model, now)).collect(),
            weight: (weight.is_finite() && weight > 0.0).then_some(weight),
        };
        self.reset_totals(now);
        self.done.busy = rest;
        report
    }

    /// Time that the answered requests take in full batches, nanoseconds.
    fn work_time(&self) -> f64 {
        let of = |(queue, &answered): (usize, &u64)| {
            let rows = self.full_rows(queue);
            let cost = self.scenario.models[queue].cost.of(rows);
            answered as f64 * cost.0 as f64 / rows as f64
        };
        self.done.answered.iter().enumerate().map(of).sum()
    }
}
