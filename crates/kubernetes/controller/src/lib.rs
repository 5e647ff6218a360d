//! The controller: runs the pods of each `InferenceDeployment` and reports its status.
//!
//! A reconcile is `dereference -> validate -> build -> apply -> report`, with one type between any
//! two steps: an observation from the watches, a valid deployment, its wanted children, the result
//! of applying them, a status. `validate`, `build`, the decision about each child and the status
//! are pure: no client, no clock.
#![forbid(unsafe_code)]

mod apply;
mod args;
mod autoscale;
mod build;
mod check;
mod child_action;
mod children;
mod dereference;
mod digest;
mod limits;
mod metrics;
mod model_outcomes;
mod names;
mod observed;
mod pod_events;
mod reconcile;
mod record;
mod refusal;
mod renewals;
mod report;
mod respawns;
mod rollout;
pub mod run;
mod scrape;
mod server_state;
mod settings;
mod status;
mod traffic;
mod validate;
mod watched_child;
mod watched_pod;
mod watches;

pub use build::{BuildContext, BuiltInOptions, build};
pub use validate::validate;
