//! The program of a worker process, and the formats that it shares with the front: batches,
//! commands and results.
//!
//! The process runs `program`: a `team` of threads that compute the batches of one `ring`, with the
//! open `models`, on the memory of the front (`front_memory`). Crate `engine` is the other side: it
//! writes the ring (`ring`) and the commands (`command`), and locates results by `layout`.
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

pub use command::{RevisionId, WorkerCommand};
pub use inherited::arguments;
pub use kind::{KindSet, kind_name, kind_or_unread};
pub use layout::{Layout, OutputInfo, outputs_of};
pub use program::{SUBCOMMAND, main};
pub use ring::{ComputeLimits, LoopIndex, Ring, Segment, SegmentState, WorkDivision};
