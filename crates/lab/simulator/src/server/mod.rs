//! Simulation of a live server: the scheduler of the engine behind a front end that reads requests
//! one after the other.
//!
//! **Problem.** [`crate::run`] hands each request to the scheduler when it arrives. A server reads
//! its sockets in turns: what arrives while it reads is scheduled together, so batches are larger
//! than those of the scheduler alone.
//!
//! **Approach.** Discrete events. The scheduler is [`albacore_batching::Scheduler`], which the
//! engine drives, with its admission, bounds and queues of late requests. Each event loop takes
//! everything that is readable, works on it one after the other, and schedules the requests that it
//! gathered before it looks again; which of them wait for that is decided as in the engine's inbox.
//! Reading and writing take the times that the scenario gives for each class of requests.
//!
//! **What is not modeled.** Cpus: that there are fewer of them than threads is part of the times of
//! batches, which end when they are collected, and of their stalls; an event loop is never
//! interrupted. The lock of the state, connections, lost workers, requests with a deadline or
//! priority of their own, and refusals for an overloaded front end.

mod event_loop;
mod run;

use albacore_batching::auto::FrontCost;
use albacore_batching::deadlines::Cost;
use albacore_batching::{BatchingParams, Nanos, Profile};

pub use run::simulate_server;

/// A server and the requests that are sent to it.
#[derive(Clone, Debug)]
pub struct ServerScenario {
    /// Each runs one batch at a time.
    pub workers: usize,
    pub batching: BatchingParams,
    pub front: FrontEnd,
    pub queues: Vec<ServerQueue>,
    pub classes: Vec<RequestClass>,
    pub requests: Vec<ServerRequest>,
    pub stalls: Stalls,
    /// Of the times of batches.
    pub seed: u64,
}

/// The part of the server that reads requests and writes replies.
#[derive(Clone, Copy, Debug)]
pub struct FrontEnd {
    /// Event loops, each on a thread of its own.
    pub threads: usize,
    /// From an event until a sleeping event loop runs.
    pub wake: Nanos,
    /// What policy `auto` knows of it.
    pub cost: Option<FrontCost>,
    /// Whether requests that arrive while it reads are scheduled together, as the server does.
    pub is_gathering: bool,
}

/// Times in which a worker does not get on with its batch because another thread has its cpu.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    /// How many come in a second of work.
    pub per_second: f64,
    /// How long one takes on average; distributed exponentially.
    pub mean: Nanos,
}

/// The queue of one kind of output of one model.
#[derive(Clone, Copy, Debug)]
pub struct ServerQueue {
    /// Queues of one model share its weight.
    pub model: usize,
    pub weight: u32,
    /// What the scheduler knows of it.
    pub profile: Profile,
    /// How long its batches take, from dispatch until the front end can collect them.
    pub time: Cost,
    /// Standard deviation of the logarithm of a batch's time; 0: each takes its mean.
    pub spread: f64,
    /// Time in which a worker's threads compute a row; it decides how many requests are gathered.
    pub row: Nanos,
}

/// Requests that are alike.
#[derive(Clone, Copy, Debug)]
pub struct RequestClass {
    /// The index of their queue.
    pub queue: usize,
    pub rows: usize,
    /// Time of an event loop to read one, and to write its reply.
    pub read: Nanos,
    pub write: Nanos,
}

#[derive(Clone, Copy, Debug)]
pub struct ServerRequest {
    pub class: usize,
    /// When it reaches the server.
    pub sent: Nanos,
}

/// How a simulated server answered.
#[derive(Clone, Debug)]
pub struct ServerRun {
    /// When each request was answered, and how.
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
    /// From dispatch until they were collected, all together.
    pub busy: Nanos,
}

#[cfg(test)]
mod tests;
