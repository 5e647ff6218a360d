//! Real routers in front of real servers: Envoy and clients of grpc-go with several policies,
//! beside the simulated central scheduler. What `albacore bench routing` runs.
//!
//! Every pod is a server with all its processes in a cgroup of its own, whose cpu quota makes it
//! slow and through which it is killed as a whole, as a pod is.
#![forbid(unsafe_code)]

mod arms;
mod cgroup;
mod envoy;
mod error;
mod figures;
mod grpc_client;
mod kills;
mod manifest;
mod pod;
mod reference;
mod run;

pub use arms::{Arm, Policy, Router, Weights};
pub use cgroup::CpuCgroup;
pub use envoy::{Envoy, EnvoyHost};
pub use error::RoutingError;
pub use figures::Figures;
pub use grpc_client::{Answered, GrpcClient, LoadReports, Sending};
pub use kills::{Kill, Kills, while_killing};
pub use pod::{Pod, PodOptions, free_address};
pub use reference::Reference;
pub use run::{Options, Outcome, Programs, Row, Setting, run};
