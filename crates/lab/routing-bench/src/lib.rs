//! Compares real routers in front of real servers: Envoy and grpc-go clients with several policies,
//! and a simulated central scheduler. The library of `albacore bench routing`.
//!
//! Every pod is a server whose processes all run in one cgroup. Its CPU quota sets the speed of the
//! pod, and the cgroup is killed as a whole, like a pod.
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
pub use grpc_client::{ClientLoad, ClientResults, GrpcClient, LoadReports};
pub use kills::{Kill, Kills, while_killing};
pub use pod::{Pod, PodOptions, free_address};
pub use reference::Reference;
pub use run::{Options, Outcome, Programs, Row, Setting, run};
