//! The loop observe -> plan -> lint -> pin -> verify -> report. Knows processes and cpusets,
//! nothing of Kubernetes: `albacore run` drives it with one subject, a node's agent with many.
#![forbid(unsafe_code)]

mod adopt;
mod allowance;
mod around;
mod cache;
mod config;
mod control;
mod cpuset;
mod error;
mod execute;
mod histogram;
pub mod limits;
mod placer;
mod priority;
mod process;
mod report;
mod solving;
mod state;
mod staying;
mod subject;
mod table;
mod telling;
mod together;

pub use config::{Config, SubjectConfig, SubjectId};
pub use control::{Control, ControlError, Handle, Pending};
pub use error::PlacerError;
pub use histogram::Histogram;
pub use placer::{Placer, Progress};
pub use priority::favor_this_thread;
pub use report::{BirthKind, Figures, Report, Restored};
pub use state::SubjectState;
pub use table::{Row, RowState};
