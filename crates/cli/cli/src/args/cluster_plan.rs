//! Command line arguments of plans for the nodes of a cluster.

use std::path::PathBuf;

use albacore_command::OutputFormat;

use super::ClusterArgs;

/// Options of `albacore plan` that select a local machine, or a problem other than a deployment's.
const LOCAL: [&str; 12] = [
    "workers",
    "threads",
    "mode",
    "policy",
    "current",
    "explain",
    "time_limit",
    "obstacle",
    "move_cost",
    "distances",
    "topology",
    "cpuset",
];

/// Options of `albacore plan` that select a cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Plans for a cluster")]
pub(crate) struct ClusterPlanArgs {
    /// With -f: plan a new pod of the deployment on each node of the cluster that kubectl would
    /// use; implied by the options below, and by the name kubectl-albacore
    #[arg(long, requires = "file", conflicts_with_all = LOCAL)]
    pub(crate) cluster: bool,
    /// Only this node; can be repeated [default: all]
    #[arg(long, value_name = "NAME", requires = "file", conflicts_with_all = LOCAL)]
    pub(crate) node: Vec<String>,
    /// Namespace of a deployment whose file specifies none [default: that of the context]
    #[arg(short, long, value_name = "NAME", requires = "file", conflicts_with_all = LOCAL)]
    pub(crate) namespace: Option<String>,
    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME", requires = "file", conflicts_with_all = LOCAL)]
    pub(crate) context: Option<String>,
    /// Path of the kubeconfig [default: as for kubectl: KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE", requires = "file", conflicts_with_all = LOCAL)]
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl ClusterPlanArgs {
    /// Whether any of these options is given.
    pub(crate) fn is_given(&self) -> bool {
        let is_somewhere = self.context.is_some() || self.kubeconfig.is_some();
        self.cluster || !self.node.is_empty() || self.namespace.is_some() || is_somewhere
    }

    /// The arguments that select the cluster.
    pub(crate) fn cluster(&self) -> ClusterArgs {
        ClusterArgs {
            namespace: self.namespace.clone(),
            context: self.context.clone(),
            kubeconfig: self.kubeconfig.clone(),
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// InferenceDeployment file, as it would be applied
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Only this node; can be repeated [default: all nodes with pods of the deployment]
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Vec<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Output format: text or json
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}
