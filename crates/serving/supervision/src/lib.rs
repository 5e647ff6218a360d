//! The parent process of a server: it outlives the front, which parses what clients send.
//!
//! It keeps what must not die with a front: the descriptors of listening sockets and models
//! (`store`), and the worker processes with their rings and channels (`worker_host`). It decides
//! nothing about requests, batches or models: the front asks it to start and kill workers. It
//! starts fronts, keeps a second one prepared, and lets it serve when the first one dies
//! (`generation`). One thread, no runtime, no protocol of clients.
#![forbid(unsafe_code)]

mod front;
mod generation;
pub mod limits;
mod link;
mod messages;
mod outgoing;
mod store;
mod supervisor;
mod worker_host;

pub use front::{FrontArguments, FrontRole, SUBCOMMAND};
pub use link::{Link, LinkError};
pub use messages::{
    FrontMessage, Predecessor, StandbyState, Status, SupervisorMessage, WorkerEvent, WorkerExit,
    WorkerRequest,
};
pub use store::{CONNECTIONS, LISTENERS};
pub use supervisor::supervise;
pub use worker_host::WorkerHost;
