//! Options of `albacore run`.

use std::net::SocketAddr;
use std::path::PathBuf;

use albacore_command::RunOutput;
use albacore_topology::CpuSet;

#[derive(Clone, Debug)]
pub struct Options {
    /// The InferenceDeployment; edits that a running server supports are applied.
    pub file: PathBuf,
    /// HTTP listening address of the built-in server.
    pub http: SocketAddr,
    /// gRPC listening address of the built-in server.
    pub grpc: SocketAddr,
    /// The CPUs for all processes; `None` for those of the inherited mask.
    pub cpus: Option<CpuSet>,
    pub output: RunOutput,
}
