//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use albacore_program::LogArgs;
use clap::Parser;

/// Sends the parameters of its deployment to every serving pod of a node.
///
/// Exit codes: 0 stopped on request, 1 failed, 64 bad usage.
#[derive(Debug, Parser)]
#[command(name = "albacore-params", version)]
pub(crate) struct Args {
    /// Pipe (FIFO) created and written by the agent; the program waits until it exists.
    #[arg(long, value_name = "PATH", env = "ALBACORE_FEED")]
    pub(crate) feed: PathBuf,
    /// Pipe (FIFO) created and read by the agent, for the latencies that pods report; without it,
    /// reports are rejected.
    #[arg(long, value_name = "PATH", env = "ALBACORE_REPORTS")]
    pub(crate) reports: Option<PathBuf>,
    /// Listen address of gRPC; a pod is identified by the source address of its connection.
    #[arg(
        long,
        value_name = "ADDR",
        env = "ALBACORE_GRPC",
        required_unless_present = "unix"
    )]
    pub(crate) grpc: Option<SocketAddr>,
    /// Unix socket on which to serve gRPC to the user --uid only: the parameters of the one pod in
    /// the feed that has no address.
    #[arg(long, value_name = "PATH", requires = "uid", env = "ALBACORE_UNIX")]
    pub(crate) unix: Option<PathBuf>,
    /// The only user that may connect to the socket of --unix.
    #[arg(long, value_name = "UID", requires = "unix", env = "ALBACORE_UID")]
    pub(crate) uid: Option<u32>,
    /// Listen address of /livez, /readyz and /metrics; without it, they are not served.
    #[arg(long, value_name = "ADDR", env = "ALBACORE_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) logs: LogArgs,
}
