//! `albacore-params`: sends every serving pod of a node the parameters of its own deployment.
//!
//! It runs next to the agent and accepts the connections of pods, so that the agent, which has a
//! capability, does not have to listen. It has no capability, does not use the Kubernetes API and
//! makes no system calls except those of its sockets and of two pipes. `snapshot_reader` reads the
//! agent's pipe; `snapshots` stores the newest snapshot and identifies pods in it; `acceptor`
//! accepts connections within limits; `service` is the gRPC service; `report_forwarder` writes
//! latency reports for the agent to the second pipe; `monitoring` serves probes and metrics.
#![forbid(unsafe_code)]

mod acceptor;
mod args;
mod limits;
mod messages;
mod metrics;
mod monitoring;
mod peer_limit;
mod report_forwarder;
mod run;
mod service;
mod snapshot_reader;
mod snapshots;

pub use run::main;
