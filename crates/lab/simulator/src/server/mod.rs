//! Simulation of a live server: the scheduler of the engine behind a front end that reads requests
//! sequentially.
//!
//! **Problem.** [`crate::run`] passes each request to the scheduler on arrival. A server reads its
//! sockets in event-loop iterations: requests that arrive during an iteration are scheduled
//! together, so batches are larger than those of the scheduler alone.
//!
//! **Approach.** Discrete-event simulation. The scheduler is [`albacore_batching::Scheduler`],
//! which is also used by the engine, with its admission control, bounds and queues of late
//! requests. Each event loop takes all readable events, processes them sequentially, and schedules
//! the gathered requests before it polls again; the rule for which requests wait is that of the
//! engine's inbox. Reading and writing take the times that the scenario gives for each class of
//! requests.
//!
//! **What is not modeled.** CPU contention: it is included in the times of batches, which end when
//! they are collected, and in their stalls; an event loop is never preempted. The lock of the
//! state, connections, lost workers, requests with their own deadline or priority, and refusals by
//! an overloaded front end.

mod event_loop;
mod run;

use albacore_batching::auto::FrontCost;
use albacore_batching::deadlines::Cost;
use albacore_batching::{BatchingParams, Nanos, Profile};

pub use run::simulate_server;

/// A server and the requests sent to it.
#[derive(Clone, Debug)]
pub struct ServerScenario {
    /// Number of workers; each runs one batch at a time.
    pub workers: usize,
    pub batching: BatchingParams,
    pub front: FrontEnd,
    pub queues: Vec<ServerQueue>,
    pub classes: Vec<RequestClass>,
    pub requests: Vec<ServerRequest>,
    pub stalls: Stalls,
    /// Seed of the batch times.
    pub seed: u64,
}

/// The part of the server that reads requests and writes replies.
#[derive(Clone, Copy, Debug)]
pub struct FrontEnd {
    /// Number of event loops, each on its own thread.
    pub threads: usize,
    /// Wake-up latency of a sleeping event loop.
    pub wake: Nanos,
    /// Cost of the front end as known to policy `auto`.
    pub cost: Option<FrontCost>,
    /// Whether requests that arrive while it reads are scheduled together, as in the server.
    pub is_gathering: bool,
}

/// Stalls: times in which a worker's batch does not progress because another thread runs on its
/// CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    /// Number of stalls per second of work.
    pub per_second: f64,
    /// Mean length of a stall; exponentially distributed.
    pub mean: Nanos,
}

/// The queue of one kind of output of one model.
#[derive(Clone, Copy, Debug)]
pub struct ServerQueue {
    /// Queues of one model share its weight.
    pub model: usize,
    pub weight: u32,
    /// The scheduler's knowledge of the queue.
    pub profile: Profile,
    /// Time of its batches, from dispatch until the front end can collect them.
    pub time: Cost,
    /// Standard deviation of the logarithm of a batch's time; 0: constant times.
    pub spread: f64,
    /// Compute time per row of a worker's threads; it limits how many requests are gathered.
    pub row: Nanos,
}

/// A class of identical requests.
#[derive(Clone, Copy, Debug)]
pub struct RequestClass {
    /// Index of their queue.
    pub queue: usize,
    pub rows: usize,
    /// Time of an event loop to read a request and to write its reply.
    pub read: Nanos,
    pub write: Nanos,
}

#[derive(Clone, Copy, Debug)]
pub struct ServerRequest {
    pub class: usize,
    /// Arrival time at the server.
    pub sent: Nanos,
}

/// Result of a simulated server.
#[derive(Clone, Debug)]
pub struct ServerRun {
    /// Time and outcome of each request.
    pub replies: Vec<ServerReply>,
    pub batches: Vec<BatchCounts>,
    /// Share of the time until the last request in which a worker had no batch.
    pub idle_share: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerReply {
    pub written: Nanos,
    pub is_refused: bool,
}

/// Batches of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchCounts {
    pub batches: u64,
    pub rows: u64,
    /// Total time from dispatch to collection.
    pub busy: Nanos,
}

#[cfg(test)]
mod tests;
