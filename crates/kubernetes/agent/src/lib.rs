//! The node agent: runs the placer of `albacore run` on the pods of this node.
//!
//! Data flow, with one type between any two steps: pods, deployments and the node's annotation ->
//! `DesiredPod` -> `PlacerCommand` -> placer -> `NodeFacts` -> status, events, metrics, parameters.
//! Desired pods, commands, status and events are computed by pure functions. The placer runs on its
//! own thread and does not depend on Kubernetes. While the API server is unreachable, the last
//! known state stays in force. The agent opens no listening socket.
#![forbid(unsafe_code)]

mod args;
mod cluster_view;
mod connect;
mod desired;
mod detected_counts;
mod dump;
mod events;
mod facts;
mod health;
mod heartbeat;
mod latency_reports;
mod limits;
mod locate;
mod metrics;
mod opted_in_pod;
mod params_pipe;
mod placed_pods;
mod placer_stats;
mod placer_supervisor;
mod placer_thread;
mod plan_input;
#[cfg(test)]
mod pods_for_tests;
pub mod program;
mod publisher;
mod reconcile;
mod restore;
mod slot_snapshot;
mod status;
mod status_writer;
mod throttling;
mod trials;
mod waker;
