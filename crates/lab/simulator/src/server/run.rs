//! Runs a [`ServerScenario`] in simulated time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use albacore_batching::{
    Actions, Arrival, Config, Event, Nanos, Position, QueueIndex, RequestKey, RowsAhead, Scheduler,
    WorkerIndex,
};
use albacore_random::Xoshiro256;

use super::event_loop::{COALESCED_COMPUTE_MAX, EventLoop, Task};
use super::{BatchCounts, ServerReply, ServerRun, ServerScenario};

/// Maximum number of requests of a batch, as in the engine.
const BATCH_REQUESTS_MAX: usize = 1024;

/// A thread that enters the engine polls all workers if no thread has done so for this long,
/// nanoseconds, as in the engine.
const COMPLETION_POLL_PERIOD: u64 = 1_000_000;

/// Waiting time for the front end below which a request keeps its whole objective, nanoseconds, as
/// in the engine.
const WAITED_MIN: u64 = 500_000;

/// Ordered by time; at the same time, by the order in which they were planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ScheduledEvent {
    at: u64,
    number: u64,
    event: ServerEvent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ServerEvent {
    /// A request reaches its socket.
    Sent(usize),
    /// A worker has completed its batch.
    Finished(usize),
    Alarm,
    /// An event loop has completed its current task, or wakes up.
    Continues(usize),
}

#[derive(Debug, Default)]
struct Worker {
    requests: Vec<usize>,
    queue: usize,
    rows: u64,
    dispatched: u64,
    is_finished: bool,
}

struct Server<'a> {
    scenario: &'a ServerScenario,
    scheduler: Scheduler,
    actions: Actions,
    loops: Vec<EventLoop>,
    workers: Vec<Worker>,
    events: BinaryHeap<Reverse<ScheduledEvent>>,
    scheduled: u64,
    random: Xoshiro256,
    replies: Vec<ServerReply>,
    batches: Vec<BatchCounts>,
    timer: Option<Nanos>,
    polled_at: u64,
    /// Whether arrivals await a scheduling decision, and their total compute time.
    has_undecided: bool,
    undecided_compute: u64,
    /// Time of workers with a batch, until `end`.
    busy: u64,
    end: u64,
}

/// Simulates the server until every request is answered.
#[must_use]
pub fn simulate_server(scenario: &ServerScenario) -> ServerRun {
    let mut server = Server::new(scenario);
    for (request, of) in scenario.requests.iter().enumerate() {
        server.schedule(of.sent.0, ServerEvent::Sent(request));
    }
    // bound: each request and each batch schedules a constant number of events.
    while let Some(Reverse(next)) = server.events.pop() {
        server.handle(next.event, next.at);
    }
    let begin = scenario.requests.iter().map(|request| request.sent.0).min();
    let span = (server.end - begin.unwrap_or(0)).saturating_mul(scenario.workers as u64);
    ServerRun {
        replies: server.replies,
        batches: server.batches,
        idle_share: 1.0 - server.busy as f64 / span.max(1) as f64,
    }
}

impl<'a> Server<'a> {
    fn new(scenario: &'a ServerScenario) -> Self {
        let mut scheduler = Scheduler::new(Config {
            queues: 0,
            workers: scenario.workers,
            batching: scenario.batching,
            batch_requests_max: BATCH_REQUESTS_MAX,
        });
        for (index, queue) in scenario.queues.iter().enumerate() {
            let before = &scenario.queues[..index];
            match before.iter().position(|it| it.model == queue.model) {
                Some(first) => scheduler.add_sibling(QueueIndex(first)),
                None => scheduler.add_queue(),
            };
            scheduler.set_weight(QueueIndex(index), queue.weight);
            scheduler.set_profile(QueueIndex(index), queue.profile);
        }
        scheduler.set_front_cost(scenario.front.cost);
        let mut actions = Actions::default();
        for worker in 0..scenario.workers {
            let worker = WorkerIndex::at(worker);
            scheduler.step(Event::WorkerReady { worker }, Nanos(0), &mut actions);
        }
        let unanswered = ServerReply {
            written: Nanos::MAX,
            is_refused: false,
        };
        let loops = scenario.front.threads.max(1);
        Self {
            scheduler,
            actions,
            loops: (0..loops).map(|_| EventLoop::default()).collect(),
            workers: (0..scenario.workers).map(|_| Worker::default()).collect(),
            events: BinaryHeap::new(),
            scheduled: 0,
            random: Xoshiro256::new(scenario.seed, 0),
            replies: vec![unanswered; scenario.requests.len()],
            batches: vec![BatchCounts::default(); scenario.queues.len()],
            timer: None,
            polled_at: 0,
            has_undecided: false,
            undecided_compute: 0,
            busy: 0,
            end: scenario
                .requests
                .iter()
                .map(|of| of.sent.0)
                .max()
                .unwrap_or(0),
            scenario,
        }
    }

    fn schedule(&mut self, at: u64, event: ServerEvent) {
        let number = self.scheduled;
        self.scheduled += 1;
        self.events
            .push(Reverse(ScheduledEvent { at, number, event }));
    }

    fn handle(&mut self, event: ServerEvent, now: u64) {
        match event {
            ServerEvent::Sent(request) => {
                self.make_ready(self.loop_of(request), Task::Read(request), now);
            }
            ServerEvent::Finished(worker) => {
                self.workers[worker].is_finished = true;
                let first = self.workers[worker].requests.first();
                let event_loop = first.map_or(0, |&request| self.loop_of(request));
                self.make_ready(event_loop, Task::Collect, now);
            }
            ServerEvent::Alarm => {
                if self.timer.is_some_and(|timer| timer.0 <= now) {
                    self.make_ready(0, Task::Timer, now);
                }
            }
            ServerEvent::Continues(event_loop) => self.continue_loop(event_loop, now),
        }
    }

    /// The event loop of a request's connection: connections are distributed evenly.
    fn loop_of(&self, request: usize) -> usize {
        request % self.loops.len()
    }

    fn make_ready(&mut self, event_loop: usize, task: Task, now: u64) {
        let target = &mut self.loops[event_loop];
        target.add_ready(task);
        if !std::mem::replace(&mut target.is_awake, true) {
            let wake = self.scenario.front.wake.0;
            self.schedule(now + wake, ServerEvent::Continues(event_loop));
        }
    }

    fn continue_loop(&mut self, event_loop: usize, now: u64) {
        if let Some(done) = self.loops[event_loop].current.take() {
            self.complete(event_loop, done, now);
        }
        let mut next = self.loops[event_loop].next_task();
        if next.is_none() {
            if self.loops[event_loop].has_gathered() {
                self.submit_gathered(now);
            }
            self.loops[event_loop].poll();
            next = self.loops[event_loop].next_task();
        }
        self.loops[event_loop].current = next;
        match next {
            Some(task) => {
                let took = self.task_duration(task);
                self.schedule(now + took, ServerEvent::Continues(event_loop));
            }
            None => self.loops[event_loop].is_awake = false,
        }
    }

    fn task_duration(&self, task: Task) -> u64 {
        let class = |request: usize| &self.scenario.classes[self.scenario.requests[request].class];
        match task {
            Task::Read(request) => class(request).read.0,
            Task::Write(request) => class(request).write.0,
            Task::Collect | Task::Timer => 0,
        }
    }

    fn complete(&mut self, event_loop: usize, task: Task, now: u64) {
        match task {
            Task::Read(request) => self.admit(event_loop, request, now),
            Task::Collect => {
                self.update(now);
                self.collect_all(now);
            }
            Task::Timer => {
                self.update(now);
                self.timer = None;
                self.step(Event::Timer, now);
            }
            Task::Write(request) => self.replies[request].written = Nanos(now),
        }
    }

    fn queue_of(&self, request: usize) -> (usize, usize) {
        let class = &self.scenario.classes[self.scenario.requests[request].class];
        (class.queue, class.rows)
    }

    /// Admits or refuses a request that has been read.
    fn admit(&mut self, event_loop: usize, request: usize, now: u64) {
        let (queue, rows) = self.queue_of(request);
        let waited = now - self.scenario.requests[request].sent.0;
        let objective = self.scenario.queues[queue].profile.objective;
        let index = QueueIndex(queue);
        self.scheduler.note_request(index, Nanos(now));
        let is_in_time = objective.is_none_or(|objective| {
            let time = objective.saturating_sub(Nanos(waited));
            self.scheduler
                .queue_admission(index)
                .is_some_and(|queue_admission| {
                    let admitted = queue_admission.admit(rows, RowsAhead::InTime, time, Nanos(now));
                    admitted.is_ok()
                })
        });
        if !is_in_time || self.scheduler.reserve(index, rows).is_err() {
            self.replies[request].is_refused = true;
            return self.loops[event_loop].add_task(Task::Write(request));
        }
        let compute = self.scenario.queues[queue].row.0 * rows as u64;
        let has_idle = self.scheduler.idle_workers() > 0;
        let may_wait = self.loops[event_loop].gather(request, compute, has_idle, now);
        if !(may_wait && self.scenario.front.is_gathering) {
            self.update(now);
        }
    }

    /// Common first step of every state change of the engine.
    fn update(&mut self, now: u64) {
        self.submit_gathered(now);
        if now.saturating_sub(self.polled_at) >= COMPLETION_POLL_PERIOD {
            self.collect_all(now);
            if self.timer.is_some_and(|timer| timer.0 <= now) {
                self.timer = None;
                self.step(Event::Timer, now);
            }
        }
    }

    /// Schedules the requests of all inboxes: small ones together, larger ones individually.
    fn submit_gathered(&mut self, now: u64) {
        let mut requests = Vec::new();
        let loops = self.loops.iter_mut();
        loops.for_each(|event_loop| event_loop.drain_into(&mut requests));
        for request in requests {
            let (queue, rows) = self.queue_of(request);
            let waited = now - self.scenario.requests[request].sent.0;
            let objective = self.scenario.queues[queue].profile.objective;
            let left = objective.filter(|_| waited >= WAITED_MIN);
            let left = left.map(|objective| objective.saturating_sub(Nanos(waited)));
            let arrival = Arrival {
                queue: QueueIndex(queue),
                key: RequestKey(request as u64),
                rows,
                position: Position::ByDeadline(left),
            };
            let row = self.scenario.queues[queue].row.0;
            let compute = self.undecided_compute + row * rows as u64;
            let is_small = row > 0 && compute <= COALESCED_COMPUTE_MAX;
            if is_small || self.scheduler.idle_workers() == 0 {
                (self.has_undecided, self.undecided_compute) = (true, compute);
                self.scheduler.enqueue(arrival, Nanos(now));
            } else {
                self.step(Event::Arrived(arrival), now);
            }
        }
        if self.has_undecided {
            self.step(Event::Timer, now);
        }
    }

    fn collect_all(&mut self, now: u64) {
        self.polled_at = now;
        for worker in 0..self.workers.len() {
            if !std::mem::take(&mut self.workers[worker].is_finished) {
                continue;
            }
            let batch = std::mem::take(&mut self.workers[worker]);
            let counts = &mut self.batches[batch.queue];
            counts.batches += 1;
            counts.rows += batch.rows;
            counts.busy.0 += now - batch.dispatched;
            let (begin, end) = (batch.dispatched.min(self.end), now.min(self.end));
            self.busy += end - begin;
            for request in batch.requests {
                let own = self.loop_of(request);
                match self.loops[own].current {
                    // The loop that collects continues with the replies of its own requests.
                    None if self.loops[own].is_awake => {
                        self.loops[own].add_task(Task::Write(request));
                    }
                    _ => self.make_ready(own, Task::Write(request), now),
                }
            }
            let worker = WorkerIndex::at(worker);
            self.step(Event::BatchDone { worker }, now);
        }
    }

    /// Passes an event to the scheduler and starts the batches that it dispatches.
    fn step(&mut self, event: Event, now: u64) {
        let mut actions = std::mem::take(&mut self.actions);
        self.scheduler.step(event, Nanos(now), &mut actions);
        (self.has_undecided, self.undecided_compute) = (false, 0);
        for dispatch in &actions.dispatches {
            let worker = dispatch.worker.position();
            let keys = actions.requests(dispatch).iter();
            let rows = dispatch.rows as u64;
            self.workers[worker] = Worker {
                requests: keys.map(|key| key.0 as usize).collect(),
                queue: dispatch.queue.0,
                rows,
                dispatched: now,
                is_finished: false,
            };
            let took = self.batch_time(dispatch.queue.0, rows);
            self.schedule(now + took, ServerEvent::Finished(worker));
        }
        if let Some(timer) = actions.timer.filter(|_| self.timer != actions.timer) {
            self.timer = Some(timer);
            self.schedule(timer.0.max(now), ServerEvent::Alarm);
        }
        self.actions = actions;
    }

    fn batch_time(&mut self, queue: usize, rows: u64) -> u64 {
        let queue = &self.scenario.queues[queue];
        let mean = queue.time.of(rows).0 as f64;
        let mut time = mean;
        if queue.spread > 0.0 {
            // Lognormal with this mean; the normal variate by Box and Muller.
            let (u, v) = (self.random.exponential(), self.random.unit());
            let normal = (2.0 * u).sqrt() * (std::f64::consts::TAU * v).cos();
            time *= (queue.spread * normal - queue.spread * queue.spread / 2.0).exp();
        }
        let stalls = self.scenario.stalls;
        if stalls.per_second > 0.0 && self.random.unit() * 1e9 < stalls.per_second * mean {
            time += self.random.exponential() * stalls.mean.0 as f64;
        }
        time as u64
    }
}
