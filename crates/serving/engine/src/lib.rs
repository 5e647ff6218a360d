//! Computes requests in W supervised worker processes, from rows in shared memory to results in
//! shared memory.
//!
//! A request looks up its model, is admitted, allocates memory for its rows, which the front's
//! parser fills, and is submitted (`request`): `state` passes it to the scheduler of crate
//! `batching` and writes the scheduler's batches to the rings of workers.
//! `shared_state::run_completions` collects finished batches, `supervisor` respawns the worker
//! processes. The front owns every request until it is answered, and all memory: a worker that
//! crashes loses nothing. Models are replaced while requests run: `catalog` lists their revisions,
//! `model_rollout` rolls them out to the workers.
//!
//! The program of a worker process is in crate `worker`, with the formats that both processes
//! share: the ring, the commands, and the layout of results.
#![forbid(unsafe_code)]

mod admission;
mod arena;
mod block_cache;
mod candidate;
mod catalog;
mod columns;
mod counters;
mod cpus;
mod engine;
mod error;
mod event;
mod event_loop;
mod front_cost;
mod front_permits;
mod front_time_limit;
mod histogram;
mod image;
mod inbox;
pub mod limits;
mod load;
mod load_totals;
mod memory;
mod min_cost;
mod model;
mod model_rollout;
mod model_window;
mod node_watch;
mod priority;
mod queues;
mod refusal;
mod reply;
mod reply_latency;
mod request;
mod shared_state;
mod state;
mod stats;
mod supervisor;
mod tallies;
mod timed_lock;
mod timing;
mod window;

pub use albacore_batching::auto::{Choice, FrontCost};
pub use albacore_batching::{BatchingParams, ModelBatching, Policy, Prefer, Slo};
pub use albacore_trees::{ElementType, IterationRange, Iterations, Kind};
pub use albacore_worker::{
    KindSet, LoopIndex, OutputInfo, WorkDivision, kind_name, kind_or_unread,
};
pub use catalog::ModelSlotsExhausted;
pub use columns::{CategoryTable, Columns, UnknownCategory};
pub use cpus::usable_cpus;
pub use engine::{Engine, EngineConfig, FlushHandle};
pub use error::{InstallError, ModelLookupError, StartError};
pub use event::{EngineEvent, Observer};
pub use event_loop::EventLoop;
pub use front_permits::FrontPermit;
pub use histogram::{DURATION_BOUNDS_NANOS, Histogram};
pub use load::{LoadedModel, no_probabilities};
pub use load_totals::{LoadTotals, ModelLoadTotals};
pub use model::{ClassNames, ClassRule, KernelChoice, ModelClasses, ModelInfo, ModelRevision};
pub use model_window::{KindLoad, Latencies};
pub use priority::Priority;
pub use refusal::{Refusal, RequestFailure};
pub use reply::Reply;
pub use request::{ModelHandle, Reservation};
pub use stats::{
    BatchStats, DispatchReason, ImageStats, KindStats, LockTimes, MemoryStats, ModelStats, Stats,
    WorkerStats,
};
pub use timing::Timing;
pub use window::{Outcomes, ServerLoad};
