//! From an `InferenceDeployment` to running pods and a status that tells the truth.
//!
//! `dereference -> validate -> build -> apply -> report`, a type between each two; `build` and the
//! status are pure.
#![forbid(unsafe_code)]

mod build;
mod children;
mod digest;
mod limits;
mod names;
mod observed;
mod settings;
mod state;
mod status;
mod step;
mod validate;

pub use build::{Surroundings, build};
pub use children::{Child, ChildKind};
pub use observed::{Live, PodSeen, Told, Workload};
pub use state::{Latency, Loading, ModelState, Requests, ServerState, Workers};
pub use status::{Facts, Verdict, status_of};
pub use validate::{Valid, validate};
