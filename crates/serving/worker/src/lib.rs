//! The program of a worker process, and what it shares with the front: the formats in which batches
//! and commands reach it.
//!
//! `program` is what the process runs: a `team` of threads that compute the batches of one `ring`,
//! with the `models` that it has open, on the memory of the front (`front_memory`). Crate `engine`
//! is the other side: it writes the ring (`ring`) and the commands (`command`), and finds results
//! where `layout` says.
#![forbid(unsafe_code)]

mod batch_split;
mod command;
mod front_memory;
mod gathered;
mod inherited;
mod kind;
mod layout;
pub mod limits;
mod models;
mod partial_results;
mod program;
mod ring;
mod team;
mod thread_context;

pub use command::{Command, EditionId};
pub use inherited::arguments;
pub use kind::{KindSet, kind_name, kind_or_unread};
pub use layout::{Layout, OutputInfo, outputs_of};
pub use program::{SUBCOMMAND, main};
pub use ring::{ComputeLimits, LoopIndex, Ring, Segment, SegmentState, Sharing};
