//! Deferred batch scheduling under latency objectives (the algorithm of Symphony).
//!
//! **Problem.** Requests of several queues have deadlines; a batch of b rows keeps a worker busy
//! for l(b) = alpha b + beta. Serve as many requests as possible in time on as few workers as
//! possible.
//!
//! **Approach.** A queue's candidate B with the earliest deadline d may be dispatched in the window
//! from frontrun, d - l(|B| + 1), to latest, d - l(|B|): before it, waiting may still make the
//! batch larger; after it, the batch is late. [`RequestQueue`] holds the requests of a queue and
//! computes its candidate, [`WorkerAssigner`] matches candidates with workers,
//! [`DeadlineScheduler`] runs both on one thread. The window may open earlier by a fraction of the
//! objective, which is better when many queues contend for workers.
//!
//! **Limits.** Workers are identical and run one batch at a time. The number of waiting requests is
//! bounded by the arrivals of one objective, because late requests are dropped, and by admission
//! before the queue.

mod cost;
mod learner;
mod request_queue;
mod rules;
mod scheduler;
mod tournament;
mod worker_assigner;

pub(crate) use cost::AtomicCost;
pub use cost::Cost;
pub use learner::{CostEstimate, CostLearner};
pub use request_queue::{Candidate, DeadlineRequest, DispatchedBatch, QueueParams, RequestQueue};
pub use rules::{Delays, Release};
pub use scheduler::{
    Completion, DeadlineActions, DeadlineConfig, DeadlineDispatch, DeadlineEvent,
    DeadlineScheduler, Dropped,
};
pub use worker_assigner::{Decision, WorkerAssigner};
