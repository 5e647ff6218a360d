//! Parses and checks the command line of `albacore-server`: models, addresses and processes.
#![forbid(unsafe_code)]

mod args;
mod container_args;
mod kserve_args;
mod limits;

pub use args::{
    Args, LoadReportMode, ModelControlMode, ModelSource, ParamsEndpoint, PolicyName, PreferName,
    ServerConfig,
};
pub use container_args::{ContainerArgs, PlatformRoutes};
pub use kserve_args::KserveArgs;
