//! From an `InferenceDeployment` to running pods and a status that tells the truth.
//!
//! `dereference -> validate -> build -> apply -> report`, a type between each two: an observation
//! out of the watches ([`dereference`](self)), a valid deployment, children as they should be, what
//! came of applying them, a status. `validate`, `build`, the step of a child and the status are
//! pure: no client, no clock.
#![forbid(unsafe_code)]

mod apply;
mod args;
mod autoscale;
mod build;
mod check;
mod children;
mod dereference;
mod digest;
mod limits;
mod memory;
mod metrics;
mod names;
mod observed;
mod pod_events;
mod reconcile;
mod refusal;
mod renewals;
mod report;
mod respawns;
mod rollout;
pub mod run;
mod scrape;
mod settings;
mod state;
mod status;
mod step;
mod validate;
mod watches;

pub use build::{BuiltIn, Surroundings, build};
pub use children::{Child, ChildKind};
pub use observed::{Live, PodRespawns, PodSeen, Told, Workload};
pub use refusal::Refusal;
pub use respawns::RecentRespawns;
pub use state::{Latency, Loading, ModelState, Params, Requests, ServerState, Workers};
pub use status::{Facts, Verdict, status_of};
pub use validate::{Valid, validate};
