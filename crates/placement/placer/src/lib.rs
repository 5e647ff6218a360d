//! The loop observe -> plan -> lint -> pin -> verify -> report. Knows processes and cpusets but not
//! Kubernetes: `albacore run` drives it with one subject, the agent of a node with many.
#![forbid(unsafe_code)]

mod config;
mod control;
mod cpuset;
mod error;
mod execute;
mod improvement;
mod joint_solve;
pub mod limits;
mod measured_distances;
mod move_hysteresis;
mod node_problem;
mod placer;
mod priority;
mod process;
mod process_tree;
mod report;
mod solve_rate;
mod state;
mod subject;
mod subject_solver;
mod table;
mod thread_load;
mod trial_reading;
mod worker_weights;

pub use config::{PlacerConfig, SubjectConfig, SubjectId};
pub(crate) use control::ControlRequest;
pub use control::{ControlError, ControlReply, PlacerHandle};
pub use error::PlacerError;
/// Times in microseconds; the relative error of a quantile is at most 25 %.
pub type MicrosHistogram = albacore_values::LogHistogram<4>;
pub use node_problem::{
    NodeProblem, PlaceableServer, improve_single, is_joint, place_joint, place_single,
    threads_within_quota,
};
pub use placer::{LoopStatus, Placer};
pub use priority::raise_thread_priority;
pub use report::{PlacerCounters, Report, RestoreSummary, SpawnKind};
pub use state::SubjectState;
pub use table::{FrontRow, LoadClass, SlotRow, SlotState};
pub use trial_reading::{mapping_hash, read_workers};
