//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use albacore_program::LogArgs;
use clap::Parser;

/// Sends every serving pod of a node the parameters of its deployment.
///
/// Exit codes: 0 stopped when asked, 1 failed, 64 bad usage.
#[derive(Debug, Parser)]
#[command(name = "albacore-params", version)]
pub(crate) struct Args {
    /// The pipe (FIFO) that the agent creates and writes; if it does not exist, the program waits.
    #[arg(long, value_name = "PATH", env = "ALBACORE_FEED")]
    pub(crate) feed: PathBuf,
    /// The pipe (FIFO) that the agent creates and reads, for the latencies that pods report;
    /// without it, reports are refused.
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
    /// A unix socket on which to serve gRPC to the user --uid only: the parameters of the one pod
    /// of the feed without an address.
    #[arg(long, value_name = "PATH", requires = "uid", env = "ALBACORE_UNIX")]
    pub(crate) unix: Option<PathBuf>,
    /// The only user whose connections the socket of --unix accepts.
    #[arg(long, value_name = "UID", requires = "unix", env = "ALBACORE_UID")]
    pub(crate) uid: Option<u32>,
    /// Where to serve /livez, /readyz and /metrics; without it, they are not served.
    #[arg(long, value_name = "ADDR", env = "ALBACORE_LISTEN")]
    pub(crate) listen: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) logs: LogArgs,
}
