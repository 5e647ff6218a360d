//! From rows in shared memory to results in shared memory, through W supervised processes.

mod kind;
mod model;
mod refusal;
mod request;
mod stats;

pub use kind::{ElementType, Kind, KindSet};
pub use model::{ModelIndex, ModelInfo, OutputInfo};
pub use refusal::{Failure, Refusal};
pub use request::{Engine, Reply, Reservation, Timing};
pub use stats::{Histogram, ModelStats, Stats};
