//! The node agent: the placer of `albacore run`, fed by the pods that the cluster runs on this
//! node.
//!
//! `pods + deployments + node -> wishes -> steps -> placer -> facts -> status, events, feed`, a
//! type between each two. Wishes, steps, status and events are pure; the placer has a thread of its
//! own and knows no Kubernetes; the API server may be away for as long as it likes, what is known
//! goes on to hold. No socket listens here.
#![forbid(unsafe_code)]

mod args;
mod dump;
mod events;
mod facts;
mod feed;
mod fleet;
mod health;
mod heartbeat;
mod journal;
mod keeper;
mod limits;
mod locate;
mod metrics;
mod placing;
mod pods;
pub mod program;
mod reports;
mod restore;
mod status;
mod strain;
mod trial;
mod trials;
mod view;
mod wish;
mod writer;
