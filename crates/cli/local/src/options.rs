//! Options of `albacore run`.

use std::net::SocketAddr;
use std::path::PathBuf;

use albacore_command::RunOutput;

#[derive(Clone, Debug)]
pub struct Options {
    /// The InferenceDeployment; edits that can be applied to a running server are applied.
    pub file: PathBuf,
    /// Where the built-in server listens for HTTP.
    pub http: SocketAddr,
    /// Where the built-in server listens for gRPC.
    pub grpc: SocketAddr,
    pub output: RunOutput,
}
