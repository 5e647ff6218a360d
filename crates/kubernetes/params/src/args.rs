//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use albacore_program::LogArgs;
use clap::Parser;

/// Hands every serving pod of a node the parameters of its own deployment.
///
/// Exit codes: 0 stopped when asked, 1 failed, 64 bad usage.
#[derive(Debug, Parser)]
#[command(name = "albacore-params", version)]
pub(crate) struct Args {
    /// The pipe (FIFO) that the agent creates and writes; waited for if it does not exist.
    #[arg(long, value_name = "PATH", env = "ALBACORE_FEED")]
    pub(crate) feed: PathBuf,
    /// The pipe (FIFO) that the agent creates and reads, for the latencies that pods report.
    /// Default: reports are refused.
    #[arg(long, value_name = "PATH", env = "ALBACORE_REPORTS")]
    pub(crate) reports: Option<PathBuf>,
    /// Where to serve gRPC; a pod is identified by the address that it connects from.
    #[arg(
        long,
        value_name = "ADDR",
        env = "ALBACORE_GRPC",
        required_unless_present = "unix"
    )]
    pub(crate) grpc: Option<SocketAddr>,
    /// Serve gRPC on a unix socket, for the user --uid alone: the parameters of the one pod of the
    /// feed that has no address.
    #[arg(long, value_name = "PATH", requires = "uid", env = "ALBACORE_UNIX")]
    pub(crate) unix: Option<PathBuf>,
    /// The user whose connections the socket of --unix accepts.
    #[arg(long, value_name = "UID", requires = "unix", env = "ALBACORE_UID")]
    pub(crate) uid: Option<u32>,
    /// Where to serve /livez, /readyz and /metrics. Default: nowhere.
    #[arg(long, value_name = "ADDR", env = "ALBACORE_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) logs: LogArgs,
}
