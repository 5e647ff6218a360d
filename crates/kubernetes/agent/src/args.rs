//! Command line arguments.

use std::path::PathBuf;

use albacore_os::HostRoot;
use albacore_plan::Enforcement;
use albacore_program::LogArgs;
use clap::{Args as Group, Parser, Subcommand, ValueEnum};

use crate::cluster_view::ViewOptions;

/// Places the threads of this node's serving pods, keeps them placed and reports the placement.
///
/// Exit codes: 0 stopped on request, 1 failed, 64 bad usage.
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

/// Arguments of the daemon and of all commands.
#[derive(Clone, Debug, Group)]
pub(crate) struct Common {
    /// Name of the node that this process runs on.
    #[arg(long, value_name = "NAME", env = "NODE_NAME", global = true)]
    pub(crate) node_name: Option<String>,
    /// Mount point of the node's procfs. With a path other than /proc, no mask is written.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/proc",
        env = "ALBACORE_PROC",
        global = true
    )]
    pub(crate) proc: PathBuf,
    /// Mount point of the node's cgroup file system.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/sys/fs/cgroup",
        env = "ALBACORE_CGROUP",
        global = true
    )]
    pub(crate) cgroup: PathBuf,
    /// Mount point of sysfs.
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/sys",
        env = "ALBACORE_SYS",
        global = true
    )]
    pub(crate) sys: PathBuf,
    /// Kubeconfig with the cluster and the user. Default: the service account of this pod;
    /// KUBECONFIG is not read.
    #[arg(long, value_name = "FILE", env = "ALBACORE_KUBECONFIG", global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) logs: LogArgs,
    /// Folder of files with measured distances, one for each type of node, named by the hash of its
    /// topology (`albacore topology --measure`). Default: none.
    #[arg(long, value_name = "DIR", env = "ALBACORE_DISTANCES", global = true)]
    pub(crate) distances: Option<PathBuf>,
    /// Whether pods without an InferenceDeployment can opt in by the annotation albacore.dev/place.
    /// The agent then watches every pod of its node.
    #[arg(
        long,
        value_name = "BY",
        default_value = "annotation",
        env = "ALBACORE_OPT_IN",
        global = true
    )]
    pub(crate) opt_in: OptInFlag,
    /// Heartbeat file, written while the agent works.
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
    /// Selects the API objects that concern `node`.
    pub(crate) fn view(&self, node: &str) -> ViewOptions {
        ViewOptions {
            node_name: node.to_owned(),
            takes_annotations: self.opt_in == OptInFlag::Annotation,
        }
    }

    /// Mount points of procfs, sysfs and cgroupfs.
    pub(crate) fn host(&self) -> HostRoot {
        HostRoot {
            proc: self.proc.clone(),
            sys: self.sys.clone(),
            cgroup: self.cgroup.clone(),
        }
    }
}

/// How pods may opt in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OptInFlag {
    /// By the label of an InferenceDeployment or by the annotation.
    Annotation,
    /// Only by the label of an InferenceDeployment.
    Deployment,
}

/// Arguments of the daemon alone.
#[derive(Clone, Debug, Group)]
pub(crate) struct Daemon {
    /// Whether affinity masks are written. A deployment or the node's annotation can only be
    /// stricter.
    #[arg(
        long,
        value_name = "HOW",
        default_value = "Enforce",
        env = "ALBACORE_ENFORCEMENT"
    )]
    pub(crate) enforcement: EnforcementFlag,
    /// Pipe to albacore-params; created if missing. Default: none.
    #[arg(long, value_name = "PATH", env = "ALBACORE_FEED")]
    pub(crate) feed: Option<PathBuf>,
    /// Pipe from albacore-params with the latencies that pods on trial report; created if missing.
    /// Default: none.
    #[arg(long, value_name = "PATH", env = "ALBACORE_REPORTS")]
    pub(crate) reports: Option<PathBuf>,
    /// How new threads are detected.
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
    /// Everything is done except writing masks.
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

/// How new threads are detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum EventSource {
    /// By polling procfs.
    Polling,
    /// By the kernel's process events; requires the host's pid and network namespaces.
    Connector,
}

/// Commands beside the daemon.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Print every thread of this node's pods as JSON: its planned CPUs and its mask.
    Dump {
        /// Only this pod.
        #[arg(long, value_name = "NS/NAME")]
        pod: Option<String>,
    },
    /// Reset every mask of this node's pods. A running agent pins them again: set the node's
    /// annotation first.
    Restore,
    /// Sleep for a minute, as the temporary child process of the kernel probe.
    #[command(hide = true)]
    Idle,
    /// Check the agent of this container: exit with 0 if it works, else with 1.
    Alive,
}
