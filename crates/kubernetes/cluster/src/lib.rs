//! The Kubernetes client of all programs; no other crate links one. It is independent of Albacore's
//! own kinds.
//!
//! A program connects ([`Cluster`]), elects a leader among its replicas ([`Lease`]), watches
//! ([`Watch`]), processes keys ([`WorkQueue`]) and reports ([`EventRecorder`], [`MetricsRegistry`],
//! [`ReadinessGates`]) until shutdown ([`Shutdown`]). Every request passes a `middleware`, which
//! counts it, enforces the client's rate limit, honors Retry-After and rejects writes of a program
//! that does not hold its lease.
#![forbid(unsafe_code)]

mod cluster;
mod error;
mod event_dedup;
mod events;
#[cfg(feature = "exec")]
mod exec;
mod fenced_client;
mod jitter;
mod key;
mod lease;
mod limits;
#[cfg(feature = "listener")]
mod listener;
mod metrics;
mod middleware;
mod object_event;
mod objects;
mod parsed_object;
mod pod_proxy;
mod queue;
mod rate_limit;
mod readiness;
mod request;
mod shutdown;
mod store;
mod user_connection;
mod watch;
mod write_fence;

pub use cluster::{Cluster, ConnectOptions};
pub use error::{ClusterError, ErrorClass};
pub use events::EventRecorder;
#[cfg(feature = "exec")]
pub use exec::ExecOutput;
pub use jitter::{jitter, unique};
pub use key::ObjectKey;
pub use lease::{Lease, LeaseOptions};
#[cfg(feature = "listener")]
pub use listener::serve;
pub use metrics::MetricsRegistry;
pub use object_event::{EventDraft, ObjectEvent, Severity};
pub use queue::{WorkOutcome, WorkQueue};
pub use readiness::{ReadinessGate, ReadinessGates};
pub use shutdown::Shutdown;
pub use store::ObjectChange;
pub use user_connection::UserConnectOptions;
pub use watch::{Malformed, Scope, Watch, WatchOptions};
pub use write_fence::Writes;

/// A kind, and an object of any kind, the types of [`Cluster::apply`].
pub use kube_client::core::{ApiResource, DynamicObject, Resource, ResourceExt};
