//! `albacore-params`: hands every serving pod of a node the parameters of its own deployment.
//!
//! It runs beside the agent and takes the connections of pods, so that the agent, which has a
//! capability, need not listen. It has no capability, knows nothing of Kubernetes and makes no
//! system calls but those of its sockets and of two pipes. `snapshot_reader` reads the agent's
//! pipe; `snapshots` holds the newest snapshot and identifies pods in it; `acceptor` accepts
//! connections within limits; `service` is the gRPC service; `report_forwarder` passes latency
//! reports to the agent in the second pipe; `pages` answers probes and shows metrics.
#![forbid(unsafe_code)]

mod acceptor;
mod args;
mod limits;
mod messages;
mod metrics;
mod pages;
mod peer_limit;
mod report_forwarder;
mod run;
mod service;
mod snapshot_reader;
mod snapshots;

pub use run::main;
