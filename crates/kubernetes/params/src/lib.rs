//! `albacore-params`: hands every serving pod of a node the parameters of its own deployment.
//!
//! The process beside the agent that pods can reach, so that the one with a capability need not
//! listen. It has none, knows no Kubernetes and makes no system call but those of its sockets and
//! of two pipes. `feed` reads the agent's pipe; `known` is the newest word of the agent and who may
//! see what of it; `door` lets connections in, counted, and notes whose they are; `watching` is the
//! gRPC service; `reports` passes on what pods report, in the second pipe; `site` answers probes
//! and shows metrics.
#![forbid(unsafe_code)]

mod args;
mod counts;
mod door;
mod feed;
mod known;
mod limits;
mod reports;
mod run;
mod site;
mod watching;
mod wire;

pub use run::main;
