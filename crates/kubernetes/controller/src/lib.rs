//! The controller: reconciles each `InferenceDeployment` into its pods and reports its status.
//!
//! A reconcile is `observe -> validate -> build -> apply -> report`. Each step passes one type
//! to the next: the observed deployment, the valid deployment, the desired children, the result of
//! the apply, the status. `validate`, `build`, the decision about each child and the computation of
//! the status are pure: they use no client and no clock.
#![forbid(unsafe_code)]

mod apply;
mod args;
mod autoscale;
mod build;
mod check;
mod child_action;
mod children;
mod digest;
mod limits;
mod metrics;
mod model_outcomes;
mod names;
mod observe;
mod observed;
mod pod_events;
mod reconcile;
mod record;
mod rejected_write;
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
