//! Options of `albacore run`.

use std::net::SocketAddr;
use std::path::PathBuf;

use albacore_command::RunOutput;
use albacore_topology::CpuSet;

#[derive(Clone, Debug)]
pub struct Options {
    /// The InferenceDeployment; edits that can be applied to a running server are applied.
    pub file: PathBuf,
    /// Where the built-in server listens for HTTP.
    pub http: SocketAddr,
    /// Where the built-in server listens for gRPC.
    pub grpc: SocketAddr,
    /// The cpus that everything runs on; `None`: those of the mask that it was started with.
    pub cpus: Option<CpuSet>,
    pub output: RunOutput,
}
