//! From rows in shared memory to results in shared memory, through W supervised worker processes.
//!
//! A request finds its model, reserves memory, is filled by its parser, and is submitted: `state`
//! context it to the scheduler of crate `batching` and what that decides to the ring of a worker.
//! `shared_state::complete` hears from the workers, `supervisor` keeps them alive. The front owns every
//! request until it is answered, and all memory: a worker that dies takes nothing with it. Models
//! come and go while all of this runs: `catalog` knows them, `tend` brings them to the workers.
//!
//! [`worker`] is what a worker process runs. `ring`, `command` and `layout` are what the two
//! processes must agree on.
#![forbid(unsafe_code)]

mod arena;
mod catalog;
mod columns;
mod command;
mod counters;
mod cpus;
mod engine;
mod histogram;
mod kind;
mod layout;
pub mod limits;
mod load;
mod memory;
mod min_cost;
mod model;
mod model_rollout;
mod queues;
mod refusal;
mod reply_latency;
mod request;
mod ring;
mod shared_state;
mod sojourn;
mod state;
mod stats;
mod supervisor;
mod window;
pub mod worker;

pub use albacore_trees::{IterationRange, Iterations};
pub use catalog::NoSlot;
pub use columns::{ColumnError, Columns};
pub use engine::{
    Engine, EngineConfig, EngineEvent, FlushHandle, InstallError, ModelLookupError, Observer,
    Rules, StartError,
};
pub use histogram::Histogram;
pub use kind::{ElementType, Kind, KindSet, Priority, kind_name};
pub use load::LoadedModel;
pub use model::{Edition, KernelChoice, Kernels, ModelInfo, Objective, OutputInfo};
pub use refusal::{Failure, Refusal};
pub use request::{ModelHandle, Reply, Reservation, Timing};
pub use ring::Sharing;
pub use stats::{BatchStats, DispatchReason, KindStats, ModelStats, Stats, WorkerStats};
pub use window::{Load, Outcomes};
