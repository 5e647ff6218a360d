//! Threads of the queues and of the assigner, and their messages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use albacore_batching::deadlines::{
    Candidate, Cost, DeadlineRequest, Decision, Delays, QueueParams, Release, RequestQueue,
    WorkerAssigner,
};
use albacore_batching::{Nanos, QueueIndex, RequestKey, WorkerIndex};
use albacore_simulator::{DropRule, Target};
use albacore_values::XorShift64;

use super::ring::{Ring, WORDS};

/// Profile of the reference's benchmark: 1.082 ms per row, 5.204 ms per batch, an objective of 100
/// ms minus the 2 ms of the reply, a delay of 100 us per dispatch and 50 us per row.
const ALPHA_NS: f64 = 1_082_000.0;
const BETA_NS: f64 = 5_204_000.0;
const OBJECTIVE: Nanos = Nanos(97_900_000);
const DELAYS: Delays = Delays {
    control: Nanos(100_000),
    data: Nanos(50_000),
};

/// Time before frontrun at which the window opens: 5 % of the objective, as in the server.
const EARLY: Nanos = Nanos(4_900_000);

/// Maximum number of requests added before the assigner gets the next candidate.
const REQUESTS_AT_ONCE: usize = 64;

/// Buckets of the lag histogram, powers of two of nanoseconds.
const LAGS: usize = 64;

/// Kinds of messages: the first two to the assigner, the others to a model.
const INFORM: u64 = 0;
const ANSWER: u64 = 1;
const GRANT: u64 = 2;
const RENEW: u64 = 3;

/// The two rings between a model and the assigner.
#[derive(Debug)]
pub(super) struct Links {
    pub(super) to_assigner: Ring,
    pub(super) to_model: Ring,
}

/// Counters of a model's thread.
#[derive(Debug)]
pub(super) struct QueueCounts {
    pub(super) requests: u64,
    pub(super) bad: u64,
    pub(super) batches: u64,
    lags: [u64; LAGS],
}

impl Default for QueueCounts {
    fn default() -> Self {
        Self {
            requests: 0,
            bad: 0,
            batches: 0,
            lags: [0; LAGS],
        }
    }
}

impl QueueCounts {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            bad: self.bad + other.bad,
            batches: self.batches + other.batches,
            lags: std::array::from_fn(|i| self.lags[i] + other.lags[i]),
        }
    }

    /// Quantile of the lag of requests in microseconds, rounded up to a power of two of
    /// nanoseconds.
    pub(super) fn lag(&self, share: f64) -> f64 {
        let wanted = (self.lags.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let place = self.lags.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        (place.unwrap_or(0) as f64).exp2() / 1000.0
    }
}

fn now(begin: Instant) -> Nanos {
    Nanos(begin.elapsed().as_nanos() as u64)
}

/// Waits for room in a ring until the run ends.
fn send(ring: &Ring, message: [u64; WORDS], is_over: &AtomicBool) {
    while !ring.send(message) && !is_over.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
}

fn message(kind: u64, worker: u64, free: u64, candidate: Option<Candidate>) -> [u64; WORDS] {
    let head = kind | worker << 8;
    match candidate {
        Some(c) => [head, free, c.rows, c.wakes.0, c.exec.0, c.latest.0],
        None => [head, free, 0, 0, 0, 0],
    }
}

fn candidate(message: &[u64; WORDS]) -> Option<Candidate> {
    let [_, _, rows, wakes, exec, latest] = *message;
    (rows > 0).then_some(Candidate {
        rows,
        wakes: Nanos(wakes),
        exec: Nanos(exec),
        latest: Nanos(latest),
    })
}

/// The thread of one model: its requests and its queue.
pub(super) struct ModelThread<'a> {
    links: &'a Links,
    begin: Instant,
    queue: RequestQueue,
    /// Mean interarrival time in nanoseconds, and intended time of the next arrival.
    gap: f64,
    next: f64,
    random: XorShift64,
    key: u64,
    dropped: Vec<DeadlineRequest>,
    requests: Vec<DeadlineRequest>,
    /// The candidate last sent to the assigner.
    sent: Option<Candidate>,
    counts: QueueCounts,
}

impl<'a> ModelThread<'a> {
    pub(super) fn new(links: &'a Links, rate: f64, seed: u64, begin: Instant) -> Self {
        let cost = Cost::new(ALPHA_NS, BETA_NS);
        let target = Target::Own;
        let rules = QueueParams {
            cost,
            objective: OBJECTIVE,
            release: Release::Deferred {
                early: EARLY,
                window: None,
            },
            target_rows: DropRule::Window { target }.target_rows(&cost, OBJECTIVE, rate),
            rows_max: u64::MAX,
            requests_max: usize::MAX,
        };
        Self {
            links,
            begin,
            queue: RequestQueue::new(rules, DELAYS),
            gap: 1e9 / rate,
            next: 0.0,
            random: XorShift64::new(seed),
            key: 0,
            dropped: Vec::new(),
            requests: Vec::new(),
            sent: None,
            counts: QueueCounts::default(),
        }
    }

    pub(super) fn run(mut self, is_measured: &AtomicBool, is_over: &AtomicBool) -> QueueCounts {
        let mut is_counting = false;
        while !is_over.load(Ordering::Relaxed) {
            if !is_counting && is_measured.load(Ordering::Relaxed) {
                is_counting = true;
                self.counts = QueueCounts::default();
            }
            let now = now(self.begin);
            let mut has_changed = self.add_arrivals(now);
            while let Some(message) = self.links.to_model.receive() {
                if message[0] & 0xff == GRANT {
                    self.dispatch(&message, is_over);
                    has_changed = false;
                } else {
                    // The assigner has no candidate any more.
                    self.sent = None;
                    has_changed = true;
                }
            }
            if has_changed {
                let offer = self.queue.candidate(now, &mut self.dropped);
                self.count_drops();
                if offer != self.sent {
                    self.sent = offer;
                    send(
                        &self.links.to_assigner,
                        message(INFORM, 0, 0, offer),
                        is_over,
                    );
                }
            } else {
                std::hint::spin_loop();
            }
        }
        self.counts
    }

    /// Adds the requests that have arrived by now; returns whether there were any.
    fn add_arrivals(&mut self, now: Nanos) -> bool {
        for n in 0..REQUESTS_AT_ONCE {
            if self.next > now.0 as f64 {
                return n > 0;
            }
            let arrival = Nanos(self.next as u64);
            self.key += 1;
            let key = RequestKey(self.key);
            let rows = 1;
            self.queue.push(DeadlineRequest { key, arrival, rows });
            self.counts.requests += 1;
            let lag = now.saturating_sub(arrival).0.max(1);
            self.counts.lags[lag.ilog2() as usize] += 1;
            self.next += self.draw_gap();
        }
        true
    }

    /// Draws an interarrival time of a Poisson process.
    fn draw_gap(&mut self) -> f64 {
        self.random.exponential() * self.gap
    }

    fn dispatch(&mut self, grant: &[u64; WORDS], is_over: &AtomicBool) {
        let (worker, free) = (grant[0] >> 8, Nanos(grant[1]));
        let now = now(self.begin);
        let departure =
            self.queue
                .take_batch(now, free, u64::MAX, &mut self.requests, &mut self.dropped);
        self.requests.clear();
        let next = self.queue.candidate(now, &mut self.dropped);
        self.count_drops();
        self.counts.batches += u64::from(departure.is_some());
        let free = departure.map_or(free, |departure| departure.end);
        self.sent = next;
        let answer = message(ANSWER, worker, free.0, next);
        send(&self.links.to_assigner, answer, is_over);
    }

    fn count_drops(&mut self) {
        self.counts.bad += self.dropped.len() as u64;
        self.dropped.clear();
    }
}

pub(super) struct AssignerThread<'a> {
    links: &'a [Links],
    begin: Instant,
    assigner: WorkerAssigner,
}

impl<'a> AssignerThread<'a> {
    pub(super) fn new(links: &'a [Links], workers: usize, begin: Instant) -> Self {
        let mut assigner = WorkerAssigner::new(links.len(), workers, DELAYS);
        for worker in 0..workers {
            assigner.set_free(WorkerIndex::at(worker), Some(Nanos(0)));
        }
        Self {
            links,
            begin,
            assigner,
        }
    }

    /// Runs the assigner; returns the number of decisions during the measurement.
    pub(super) fn run(mut self, is_measured: &AtomicBool, is_over: &AtomicBool) -> u64 {
        let mut decisions = 0;
        while !is_over.load(Ordering::Relaxed) {
            for (queue, links) in self.links.iter().enumerate() {
                while let Some(message) = links.to_assigner.receive() {
                    self.take(QueueIndex(queue), &message);
                }
            }
            let now = now(self.begin);
            while let Some(decision) = self.assigner.decide(now) {
                let (queue, message) = match decision {
                    Decision::Grant {
                        queue,
                        worker,
                        free,
                    } => (
                        queue,
                        message(GRANT, worker.position() as u64, free.0, None),
                    ),
                    Decision::Refresh { queue } => (queue, message(RENEW, 0, 0, None)),
                };
                decisions += u64::from(is_measured.load(Ordering::Relaxed));
                send(&self.links[queue.0].to_model, message, is_over);
            }
            std::hint::spin_loop();
        }
        decisions
    }

    fn take(&mut self, queue: QueueIndex, message: &[u64; WORDS]) {
        let candidate = candidate(message);
        match message[0] & 0xff {
            ANSWER => {
                let worker = WorkerIndex::at((message[0] >> 8) as usize);
                let free = Some(Nanos(message[1]));
                self.assigner.complete_grant(queue, worker, free, candidate);
            }
            _ => self.assigner.set_candidate(queue, candidate),
        }
    }
}
