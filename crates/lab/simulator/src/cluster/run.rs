//! Event loop of the run: passes arrivals, events and timers to routers and cells in order of time.

use albacore_batching::deadlines::{DeadlineActions, DeadlineDispatch, DeadlineEvent};
use albacore_batching::{Nanos, QueueIndex, RequestKey, WorkerIndex};
use albacore_random::Xoshiro256;
use slab::Slab;

use super::events::{Event, Events};
use super::pods::{Cell, Pod, cells};
use super::requests::{Batch, Place, Request, keys_where};
use super::routing::{KnownPods, Router, below};
use super::{Cluster, ClusterFigures, Failures, Routing};
use crate::arrivals::{Arrival, Arrivals};
use crate::measure::{Recorder, Times};
use crate::run::arrivals;

/// Interval, in arrivals, at which a run is checked for too many bad requests.
const CHECK_EVERY: u64 = 1 << 12;

/// Random streams; arrivals use those numbered by model.
const ROUTING: u64 = u64::MAX;
const PEERS: u64 = u64::MAX - 1;
const FAILURES: u64 = u64::MAX - 2;

/// Final state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    InTime,
    Late,
    Refused,
    Lost,
}

/// Numbers of measured requests by outcome.
#[derive(Debug, Default)]
struct OutcomeCounts {
    in_time: u64,
    late: u64,
    refused: u64,
    lost: u64,
    forwarded: u64,
    retried: u64,
    answers: Times,
}

pub(super) struct Run<'a> {
    cluster: &'a Cluster,
    bad_max: u64,
    arrivals: Arrivals<'a>,
    /// Warm-up requests, all requests, and how many have been drawn.
    warmup: u64,
    total: u64,
    drawn: u64,
    cells: Vec<Cell>,
    pods: Vec<Pod>,
    events: Events,
    requests: Slab<Request>,
    batches: Slab<Batch>,
    known: KnownPods,
    routers: Vec<Router>,
    routing_random: Xoshiro256,
    peers_random: Xoshiro256,
    failures_random: Xoshiro256,
    recorder: Recorder,
    outcomes: OutcomeCounts,
}

impl<'a> Run<'a> {
    pub(super) fn new(cluster: &'a Cluster, bad_max: u64) -> Self {
        let scenario = &cluster.pod;
        let (arrivals, warmup, requests) = arrivals(scenario);
        let (cells, pods) = cells(cluster);
        let random = |stream| Xoshiro256::new(scenario.seed, stream);
        let mut run = Self {
            bad_max,
            arrivals,
            warmup,
            total: warmup + requests,
            drawn: 0,
            events: Events::default(),
            requests: Slab::new(),
            batches: Slab::new(),
            known: KnownPods::new(pods.len()),
            routers: (0..cluster.routers)
                .map(|number| Router::new(number, pods.len()))
                .collect(),
            routing_random: random(ROUTING),
            peers_random: random(PEERS),
            failures_random: random(FAILURES),
            recorder: Recorder::new(scenario.models.len(), scenario.workers * pods.len()),
            outcomes: OutcomeCounts::default(),
            cells,
            pods,
            cluster,
        };
        if !run.is_central() {
            run.events.schedule(cluster.report_every, Event::Reports);
            run.events.schedule(cluster.weigh_every, Event::Weights);
        }
        if let Some(failures) = cluster.failures {
            run.events.schedule(failures.every, Event::Failure);
        }
        run
    }

    fn is_central(&self) -> bool {
        self.cluster.routing == Routing::Central
    }

    pub(super) fn run(mut self) -> ClusterFigures {
        let mut next = self.next_arrival();
        // bound: ends when every arrived request has completed.
        while next.is_some() || !self.requests.is_empty() {
            let timers = self.cells.iter().enumerate();
            let timer = timers.filter_map(|(cell, known)| Some((known.actions.timer?, cell)));
            let timer = timer.min();
            let times = [
                self.events.next_at(),
                next.map(|arrival| Nanos(arrival.at)),
                timer.map(|(at, _)| at),
            ];
            let Some(now) = times.into_iter().flatten().min() else {
                break;
            };
            if times[0] == Some(now) {
                self.next_event(now);
            } else if let Some(arrival) = next.filter(|arrival| arrival.at == now.0) {
                self.arrived(arrival);
                next = self.next_arrival();
            } else if let Some((_, cell)) = timer {
                self.step(cell, DeadlineEvent::Timer, now);
            }
        }
        let outcomes = &self.outcomes;
        ClusterFigures {
            figures: self.recorder.counts.figures(),
            answer_p50: Nanos(outcomes.answers.quantile(0.5)),
            answer_p99: Nanos(outcomes.answers.quantile(0.99)),
            in_time: outcomes.in_time,
            late: outcomes.late,
            refused: outcomes.refused,
            lost: outcomes.lost,
            forwarded: outcomes.forwarded,
            retried: outcomes.retried,
        }
    }

    fn next_arrival(&mut self) -> Option<Arrival> {
        let bad = &self.recorder.counts.bad;
        let is_hopeless =
            self.drawn.is_multiple_of(CHECK_EVERY) && bad.iter().sum::<u64>() > self.bad_max;
        if self.drawn == self.total || is_hopeless {
            self.recorder.end();
            return None;
        }
        let arrival = self.arrivals.next()?;
        if self.drawn == self.warmup {
            self.recorder
                .begin(if self.warmup == 0 { 0 } else { arrival.at });
        }
        self.drawn += 1;
        Some(arrival)
    }

    fn arrived(&mut self, Arrival { at, model }: Arrival) {
        let is_measured = self.drawn > self.warmup;
        self.recorder.counts.offered[model] += u64::from(is_measured);
        self.recorder.counts.end = at;
        let router = match self.routers.len() {
            1 => 0,
            routers => below(&mut self.routing_random, routers),
        };
        let request = self.requests.insert(Request {
            model,
            sent: Nanos(at),
            router,
            routed: None,
            place: Place::Elsewhere,
            is_measured,
            is_forwarded: false,
            is_resent: false,
        });
        self.send(request, Nanos(at));
    }

    fn next_event(&mut self, now: Nanos) {
        match self.events.next() {
            Some(Event::BatchDone { batch }) => self.batch_done(batch, now),
            Some(Event::Forwarded { request, pod }) => self.deliver(request, pod, now),
            Some(Event::Resent { request }) => self.send(request, now),
            Some(Event::Failure) => {
                if let Some(failures) = self.cluster.failures {
                    self.fail(failures, now);
                }
            }
            Some(Event::Return { pod }) => self.recover(pod, now),
            Some(Event::Noticed { pod, is_up }) => self.notice(pod, is_up, now),
            Some(Event::Reports) => self.report(now),
            Some(Event::Weights) => {
                self.known.weigh(self.cluster.blackout, now);
                let next = now.saturating_add(self.cluster.weigh_every);
                self.events.schedule(next, Event::Weights);
            }
            None => {}
        }
    }

    fn report(&mut self, now: Nanos) {
        for (pod, known) in self.pods.iter().enumerate().filter(|(_, pod)| pod.is_up) {
            let report = self.cells[known.cell].report(self.cluster.routing, now);
            self.known.reported(pod, report, now);
        }
        let next = now.saturating_add(self.cluster.report_every);
        self.events.schedule(next, Event::Reports);
    }

    /// A client sends a request, for the first time or as a retry.
    fn send(&mut self, request: usize, now: Nanos) {
        if self.is_central() {
            let cell = self.central_cell();
            self.accept(request, cell, now);
            return;
        }
        let Some(known) = self.requests.get(request) else {
            return;
        };
        let (pods, cells) = (&self.pods, &self.cells);
        let pod = self.routers[known.router].choose(
            self.cluster.routing,
            &self.known,
            &mut self.routing_random,
            |pod| cells[pods[pod].cell].open,
        );
        match pod {
            Some(pod) => {
                if let Some(known) = self.requests.get_mut(request) {
                    known.routed = Some(pod);
                }
                self.deliver(request, pod, now);
            }
            None => self.finish(request, Outcome::Refused),
        }
    }

    /// The cell with the fewest open requests relative to its capacity.
    fn central_cell(&self) -> usize {
        let load = |cell: &Cell| (cell.open + 1) as f64 / self.capacity(cell);
        let loads = self.cells.iter().map(load).enumerate();
        let least = loads.min_by(|(_, a), (_, b)| a.total_cmp(b));
        least.map_or(0, |(cell, _)| cell)
    }

    /// Requests per second that the pods of a cell known to be up can answer; if there are none,
    /// the load is infinite.
    fn capacity(&self, cell: &Cell) -> f64 {
        let up = cell.pods.iter().filter(|&&pod| self.known.is_up(pod));
        cell.bound * up.count() as f64 / cell.pods.len() as f64
    }

    /// A request reaches a pod: it is lost there, forwarded or accepted.
    fn deliver(&mut self, request: usize, pod: usize, now: Nanos) {
        let Pod { cell, is_up, .. } = self.pods[pod];
        if !is_up {
            self.lose_request(request, now);
        } else if self.can_meet(request, cell, now) || !self.forward(request, pod, now) {
            self.accept(request, cell, now);
        }
    }

    /// Time until the deadline of a request.
    fn time_left(&self, request: &Request, now: Nanos) -> Nanos {
        let objective = self.cluster.pod.models[request.model].objective;
        request.sent.saturating_add(objective).saturating_sub(now)
    }

    /// Whether a pod expects to answer a request in time; true if forwarding is off.
    fn can_meet(&self, request: usize, cell: usize, now: Nanos) -> bool {
        let Some(known) = self.requests.get(request) else {
            return true;
        };
        !self.cluster.is_forwarding
            || self.cells[cell].answers_after(known.model, now) <= self.time_left(known, now)
    }

    /// Forwards a request if a peer reported capacity; returns whether it did.
    fn forward(&mut self, request: usize, from: usize, now: Nanos) -> bool {
        let known = self.requests.get(request);
        let Some(known) = known.filter(|known| self.cluster.is_forwarding && !known.is_forwarded)
        else {
            return false;
        };
        let hop = self.cluster.hop;
        let within = self.time_left(known, now).0.checked_sub(hop.0);
        let (model, random) = (known.model, &mut self.peers_random);
        let peer = within.and_then(|within| self.known.peer(from, model, Nanos(within), random));
        let Some((pod, known)) = peer.zip(self.requests.get_mut(request)) else {
            return false;
        };
        known.is_forwarded = true;
        known.place = Place::Elsewhere;
        self.outcomes.forwarded += u64::from(known.is_measured);
        let event = Event::Forwarded { request, pod };
        self.events.schedule(now.saturating_add(hop), event);
        true
    }

    fn accept(&mut self, request: usize, cell: usize, now: Nanos) {
        let Some(known) = self.requests.get(request) else {
            return;
        };
        let left = self.time_left(known, now);
        let (model, is_late) = (known.model, now > known.sent);
        if left == Nanos(0) {
            self.finish(request, Outcome::Lost);
            return;
        }
        if let Some(known) = self.requests.get_mut(request) {
            known.place = Place::Waiting { cell };
        }
        self.cells[cell].accepted(model);
        let event = DeadlineEvent::Arrived {
            queue: QueueIndex(model),
            key: RequestKey(request as u64),
            rows: 1,
            within: is_late.then_some(left),
        };
        self.step(cell, event, now);
    }

    fn step(&mut self, cell: usize, event: DeadlineEvent, now: Nanos) {
        self.cells[cell].step(event, now);
        let actions = &mut self.cells[cell].actions;
        if actions.drops.is_empty() && actions.dispatches.is_empty() {
            return;
        }
        let actions = std::mem::take(actions);
        for drop in &actions.drops {
            self.dropped(drop.key.0 as usize, drop.queue.0, cell, now);
        }
        for dispatch in &actions.dispatches {
            self.dispatched(cell, &actions, dispatch, now);
        }
        self.cells[cell].actions = actions;
    }

    fn dropped(&mut self, request: usize, model: usize, cell: usize, now: Nanos) {
        self.cells[cell].dropped(model);
        // Without central scheduling, a cell has exactly one pod.
        let pod = self.cells[cell].pods[0];
        if self.is_central() || !self.forward(request, pod, now) {
            self.cells[cell].refused();
            self.finish(request, Outcome::Refused);
        }
    }

    fn dispatched(
        &mut self,
        cell: usize,
        actions: &DeadlineActions,
        dispatch: &DeadlineDispatch,
        now: Nanos,
    ) {
        let members = actions.requests(dispatch);
        let known = &mut self.cells[cell];
        known.dispatched(dispatch, members.len());
        let worker = dispatch.worker.position();
        let pod = known.pods[worker / known.workers_per_pod()];
        let place = known.first_worker + worker;
        self.recorder
            .dispatched(place, &dispatch.departure, members);
        let requests: Vec<usize> = members.iter().map(|m| m.key.0 as usize).collect();
        for &request in &requests {
            if let Some(request) = self.requests.get_mut(request) {
                request.place = Place::Elsewhere;
            }
        }
        let batch = Batch {
            cell,
            pod,
            requests,
            is_lost: false,
        };
        let batch = self.batches.insert(batch);
        let done = Event::BatchDone { batch };
        self.events.schedule(dispatch.departure.end, done);
        // Only a central scheduler can dispatch a batch to a failed pod, before it detects the
        // failure.
        if !self.pods[pod].is_up {
            self.lose_batch(batch, now);
        }
    }

    fn batch_done(&mut self, batch: usize, now: Nanos) {
        let Some(batch) = self
            .batches
            .try_remove(batch)
            .filter(|batch| !batch.is_lost)
        else {
            return;
        };
        for request in batch.requests {
            let Some(known) = self.requests.get(request) else {
                continue;
            };
            let (model, is_measured, sent) = (known.model, known.is_measured, known.sent);
            let took = now.saturating_sub(sent);
            let outcome = match took <= self.cluster.pod.models[model].objective {
                true => Outcome::InTime,
                false => Outcome::Late,
            };
            if is_measured {
                self.outcomes.answers.record(took.0);
            }
            self.cells[batch.cell].count_answer(model);
            self.finish(request, outcome);
        }
    }

    fn finish(&mut self, request: usize, outcome: Outcome) {
        let Some(request) = self.requests.try_remove(request) else {
            return;
        };
        if let Some(pod) = request.routed {
            self.routers[request.router].finish_request(pod);
        }
        if !request.is_measured {
            return;
        }
        self.recorder.counts.bad[request.model] += u64::from(outcome != Outcome::InTime);
        *match outcome {
            Outcome::InTime => &mut self.outcomes.in_time,
            Outcome::Late => &mut self.outcomes.late,
            Outcome::Refused => &mut self.outcomes.refused,
            Outcome::Lost => &mut self.outcomes.lost,
        } += 1;
    }
}

/// Failures.
impl Run<'_> {
    fn fail(&mut self, failures: Failures, now: Nanos) {
        let after = |time: Nanos| now.saturating_add(time);
        self.events.schedule(after(failures.every), Event::Failure);
        let pod = below(&mut self.failures_random, self.pods.len());
        if !std::mem::take(&mut self.pods[pod].is_up) {
            return;
        }
        self.events
            .schedule(after(failures.down), Event::Return { pod });
        let noticed = Event::Noticed { pod, is_up: false };
        self.events.schedule(after(failures.notice), noticed);
        for batch in keys_where(&self.batches, |batch| batch.pod == pod && !batch.is_lost) {
            self.lose_batch(batch, now);
        }
        let cell = self.pods[pod].cell;
        if !self.is_central() {
            self.cells[cell].clear(now);
            let waits = |request: &Request| request.place == Place::Waiting { cell };
            for request in keys_where(&self.requests, waits) {
                self.lose_request(request, now);
            }
        }
    }

    fn recover(&mut self, pod: usize, now: Nanos) {
        self.pods[pod].is_up = true;
        if !self.is_central() {
            let cell = self.pods[pod].cell;
            self.cells[cell].start(0..self.cluster.pod.workers, now);
        }
        if let Some(failures) = self.cluster.failures {
            let noticed = Event::Noticed { pod, is_up: true };
            self.events
                .schedule(now.saturating_add(failures.notice), noticed);
        }
    }

    fn notice(&mut self, pod: usize, is_up: bool, now: Nanos) {
        self.known.notice(pod, is_up);
        self.known.weigh(self.cluster.blackout, now);
        if !self.is_central() {
            return;
        }
        let Pod {
            cell, first_worker, ..
        } = self.pods[pod];
        for worker in first_worker..first_worker + self.cluster.pod.workers {
            let worker = WorkerIndex::at(worker);
            let event = match is_up {
                true => DeadlineEvent::WorkerReady { worker },
                false => DeadlineEvent::WorkerGone { worker },
            };
            self.step(cell, event, now);
        }
    }

    fn lose_batch(&mut self, batch: usize, now: Nanos) {
        let Some(batch) = self.batches.get_mut(batch) else {
            return;
        };
        batch.is_lost = true;
        let cell = batch.cell;
        for request in std::mem::take(&mut batch.requests) {
            self.cells[cell].lost();
            self.lose_request(request, now);
        }
    }

    /// A request was lost with its pod: the client detects it, and may retry.
    fn lose_request(&mut self, request: usize, now: Nanos) {
        let retried = self.cluster.failures.filter(|failures| failures.is_retried);
        let known = self.requests.get_mut(request);
        let Some((failures, known)) = retried.zip(known.filter(|known| !known.is_resent)) else {
            self.finish(request, Outcome::Lost);
            return;
        };
        known.is_resent = true;
        known.place = Place::Elsewhere;
        if let Some(pod) = known.routed.take() {
            self.routers[known.router].finish_request(pod);
        }
        self.outcomes.retried += u64::from(known.is_measured);
        let event = Event::Resent { request };
        self.events
            .schedule(now.saturating_add(failures.notice), event);
    }
}
