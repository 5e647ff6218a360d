//! Deferred batch scheduling under latency objectives.
//!
//! **Problem.** Requests of several queues have deadlines; a batch of b rows keeps a worker busy
//! for l(b) = alpha b + beta. Serve as many as possible in time on as few workers as possible.
//!
//! **Approach.** A queue's candidate B with the earliest deadline d may be dispatched in the window
//! from frontrun, d - l(|B| + 1), to latest, d - l(|B|): before it, waiting may still make the
//! batch larger; after it, it is late. [`QueuePart`] keeps a queue and computes its candidate,
//! [`RankPart`] matches candidates and workers, [`Scheduler`] is both on one thread. The window may
//! open a share of the objective earlier, which is what wins when many queues contend for workers.
//!
//! **Limits.** Workers are alike and run one batch at a time. What waits is bounded by the arrivals
//! of one objective, because what is late is dropped, and by the door before it.

mod auto;
mod cost;
mod learner;
mod queue_part;
mod rank_part;
mod rules;
mod scheduler;
mod tournament;

pub use auto::Together;
pub use cost::Cost;
pub use learner::{CostEstimate, CostLearner};
pub use queue_part::{Candidate, Departure, Member, QueuePart, QueueRules};
pub use rank_part::{Decision, RankPart};
pub use rules::{Delays, DropRule, Prefers, Release, Target};
pub use scheduler::{Actions, Completion, Config, Dispatch, Dropped, Event, Scheduler};
