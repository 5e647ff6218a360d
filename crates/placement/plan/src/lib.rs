//! Decides the affinity mask of each thread: observation + policy + history of earlier plans ->
//! plan. Pure: time and topology are arguments, and nothing is read or written.
//!
//! Pipeline of types: [`Observation`] -> [`problem`] -> (solver) -> [`plan`] -> [`Plan<Proposed>`]
//! -> [`lint`] -> [`Plan<Linted>`], the only kind that can be executed.
#![forbid(unsafe_code)]

mod drift;
mod fingerprint;
mod front;
pub mod limits;
mod lint;
mod mapping_text;
mod name;
mod observation;
mod plan;
mod plan_history;
mod policy;
mod ranks;
mod roles;
mod server_shape;
mod targets;

pub use albacore_values::{Micros, Pid, Tid};

pub use albacore_topology::DistanceOverrides;
pub use drift::{MaskDrift, MaskDriftCause};
pub use fingerprint::{masks_hash, plan_hash};
pub use front::front_cpus;
pub use lint::{LintError, LintInput, lint};
pub use mapping_text::{MappingTextError, mapping_text, parse_mapping_text};
pub use name::{front_thread_name, parse_front_thread_name, parse_thread_name, thread_name};
pub use observation::{Observation, ObservedThread, Process, ProcessId, ServerKind, ThreadId};
pub use plan::{
    Linted, PlacementWarning, Plan, PlanStep, Proposed, StepKind, Target, ThreadRole, plan, problem,
};
pub use plan_history::{BackOff, PlanHistory};
pub use policy::{Enforcement, MainThread, PlacementMethod, SubjectPolicy};
pub use roles::{Role, Roles, find_roles};
pub use server_shape::ServerShape;
