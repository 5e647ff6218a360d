//! The command line.

use std::path::PathBuf;

use albacore_os::HostRoot;
use albacore_plan::Enforcement;
use albacore_program::LogFormat;
use clap::{Args as Group, Parser, Subcommand, ValueEnum};

/// Places the threads of this node's serving pods, keeps them there and reports it.
///
/// Exit codes: 0 stopped when asked, 1 failed, 64 bad usage.
#[derive(Debug, Parser)]
#[command(name = "albacore-agent", version)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) daemon: Daemon,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What every form of the program takes.
#[derive(Clone, Debug, Group)]
pub(crate) struct Common {
    /// The node that this process runs on.
    #[arg(long, value_name = "NAME", env = "NODE_NAME", global = true)]
    pub(crate) node_name: Option<String>,
    /// procfs of the node. With another than /proc nothing is ever written.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/proc",
        env = "ALBACORE_PROC",
        global = true
    )]
    pub(crate) proc: PathBuf,
    /// The node's cgroups.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/sys/fs/cgroup",
        env = "ALBACORE_CGROUP",
        global = true
    )]
    pub(crate) cgroup: PathBuf,
    /// sysfs.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/sys",
        env = "ALBACORE_SYS",
        global = true
    )]
    pub(crate) sys: PathBuf,
    /// The cluster and the user. Default: the service account of this pod; KUBECONFIG is not read.
    #[arg(long, value_name = "FILE", env = "ALBACORE_KUBECONFIG", global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// How log lines are printed: text or json.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        env = "ALBACORE_LOG",
        global = true
    )]
    pub(crate) log: LogFormat,
    /// What is logged, as in RUST_LOG.
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "info",
        env = "ALBACORE_LOG_FILTER",
        global = true
    )]
    pub(crate) log_filter: String,
    /// The file that is touched while the agent works.
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/run/albacore/heartbeat",
        env = "ALBACORE_HEARTBEAT",
        global = true
    )]
    pub(crate) heartbeat: PathBuf,
}

impl Common {
    /// Where the kernel's trees are.
    pub(crate) fn host(&self) -> HostRoot {
        HostRoot {
            proc: self.proc.clone(),
            sys: self.sys.clone(),
            cgroup: self.cgroup.clone(),
        }
    }
}

/// What the agent alone takes.
#[derive(Clone, Debug, Group)]
pub(crate) struct Daemon {
    /// Whether masks are written. A deployment or the node's annotation can only be stricter.
    #[arg(
        long,
        value_name = "HOW",
        default_value = "Enforce",
        env = "ALBACORE_ENFORCEMENT"
    )]
    pub(crate) enforcement: EnforcementFlag,
    /// The pipe to albacore-params; made if it is not there. Default: none.
    #[arg(long, value_name = "PATH", env = "ALBACORE_FEED")]
    pub(crate) feed: Option<PathBuf>,
    /// The pipe from albacore-params, for latencies that pods on trial report; made if it is not
    /// there. Default: none.
    #[arg(long, value_name = "PATH", env = "ALBACORE_REPORTS")]
    pub(crate) reports: Option<PathBuf>,
    /// How births of threads are noticed.
    #[arg(
        long,
        value_name = "HOW",
        default_value = "polling",
        env = "ALBACORE_EVENTS"
    )]
    pub(crate) events: EventSource,
}

/// `Enforce` or `Observe`, as in deployments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum EnforcementFlag {
    /// Masks are written.
    #[value(name = "Enforce", alias = "enforce")]
    Enforce,
    /// Everything but writing is done.
    #[value(name = "Observe", alias = "observe")]
    Observe,
}

impl From<EnforcementFlag> for Enforcement {
    fn from(flag: EnforcementFlag) -> Self {
        match flag {
            EnforcementFlag::Enforce => Self::Enforce,
            EnforcementFlag::Observe => Self::Observe,
        }
    }
}

/// How births of threads are noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum EventSource {
    /// By looking.
    Polling,
    /// By the kernel's process events: needs the host's pid and network namespaces.
    Connector,
}

/// What else the program does.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Print every thread of this node's pods as JSON: what is planned, what its mask is.
    Dump {
        /// Only this pod.
        #[arg(long, value_name = "NS/NAME")]
        pod: Option<String>,
    },
    /// Give back every mask of this node's pods. An agent that runs pins them again: set the node's
    /// annotation first.
    Restore,
    /// Sleep for a minute: the throw-away child with which the kernel is tried.
    #[command(hide = true)]
    Idle,
    /// Say by the exit code whether the agent of this container works.
    Alive,
}
