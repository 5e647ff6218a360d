//! The scheduler core: decides which rows are dispatched to which worker, and when.
//!
//! Pure: `(state, event, now) -> actions`, integer nanoseconds, no clock, no threads. The live
//! server and the simulator drive the same code. Batch sizes are counted in rows.
#![forbid(unsafe_code)]

mod actions;
mod admission;
pub mod auto;
mod batch;
pub mod deadlines;
mod limits;
mod policy;
mod scaling;
mod scheduler;
mod shares;
mod units;

pub use actions::{AbandonedRequest, Actions, Dispatch};
pub use admission::{QueueAdmission, QueueFull, RowsAhead, admit_early};
pub use albacore_values::{Nanos, WorkerIndex};
pub use auto::Prefer;
pub use limits::BLAME_MAX;
pub use policy::{BatchingParams, ModelBatching, Policy, Profile, Slo};
pub use scaling::{
    ALERT, ALERT_BUSY, Advice, Autoscaler, BAD_RATE_MAX, BUSY_MAX, BUSY_TARGET, Cause,
    Consolidation, Consolidator, DEAD_BAND, DeploymentLoad, EVIDENCE_MIN, FACTOR_MISSED,
    GROWTH_PAUSE, GROWTH_PODS_FREE, Load, ModelLoad, NEGLIGIBLE_MAX, RECENT_BAD_MIN, RECENT_PAUSE,
    RECENT_REQUESTS_MIN, ReplicaBounds, RequestCounts, SHRINK_DELAY, SPARE_OF_FEW, ServingAdvice,
    ServingCause, load_factor,
};
pub use scheduler::{Arrival, Config, Event, Position, Scheduler};
pub use shares::DEFAULT_WEIGHT;
pub use units::{QueueIndex, RequestKey};

#[cfg(test)]
mod tests;
