//! The parent process of a server. It outlives the front, which parses the input of clients.
//!
//! It keeps the resources that must survive a front: descriptors of listening sockets and models
//! (`store`), and the worker processes with their rings and channels (`worker_host`). It makes no
//! decisions about requests, batches or models: the front requests starts and kills of workers. It
//! starts fronts, keeps a standby prepared, and lets it serve when the serving front dies
//! (`generation`). One thread, no runtime, no client protocol.
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
