//! How programs of Albacore talk to a cluster: the one crate with a Kubernetes client. It knows no
//! kind of ours.
//!
//! A program connects ([`Cluster`]), elects one of its copies ([`Lease`]), watches ([`Watch`]),
//! works on keys ([`Queue`]) and reports ([`Events`], [`Metrics`], [`Gates`]) until it is told to
//! stop ([`Shutdown`]). Every request passes one layer (`gatekeeper`) that counts it, keeps the
//! client's budget, honors Retry-After and refuses writes of a program that does not hold its
//! lease.
#![forbid(unsafe_code)]

mod budget;
mod cluster;
mod error;
mod events;
#[cfg(feature = "exec")]
mod exec;
mod gatekeeper;
mod gates;
mod guarded;
mod jitter;
mod key;
mod lease;
mod limits;
#[cfg(feature = "listener")]
mod listener;
mod metrics;
mod objects;
mod permit;
mod person;
mod queue;
mod request;
mod series;
mod shutdown;
mod store;
mod watch;
mod wire;

pub use cluster::{Cluster, ConnectOptions, Writes};
pub use error::{ClusterError, ErrorClass};
pub use events::{Events, Happening, Severity};
#[cfg(feature = "exec")]
pub use exec::Said;
pub use gates::{Gate, Gates};
pub use jitter::{jitter, unique};
pub use key::Key;
pub use lease::{Lease, LeaseOptions};
#[cfg(feature = "listener")]
pub use listener::serve;
pub use metrics::Metrics;
pub use person::PersonOptions;
pub use queue::{Outcome, Queue};
pub use shutdown::Shutdown;
pub use store::Change;
pub use watch::{Malformed, Scope, Watch, WatchOptions};

/// The types of a kind and of an object of any kind, as [`Cluster::apply`] takes and gives them.
pub use kube_client::core::{ApiResource, DynamicObject, Resource, ResourceExt};
