//! Command line arguments of plans for the nodes of a cluster.

use std::path::PathBuf;

use albacore_command::Output;

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

/// Options of `albacore plan` that mean a cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Plans for a cluster")]
pub(crate) struct ClusterPlanArgs {
    /// With -f: what a new pod of the deployment would get on each node of the cluster that kubectl
    /// would reach; implied by the options below, and by the name kubectl-albacore
    #[arg(long, requires = "file", conflicts_with_all = LOCAL)]
    pub(crate) cluster: bool,
    /// Only this node; several, each once more with --node [default: all]
    #[arg(long, value_name = "NAME", requires = "file", conflicts_with_all = LOCAL)]
    pub(crate) node: Vec<String>,
    /// The namespace of a deployment whose file names none [default: that of the context]
    #[arg(short, long, value_name = "NAME", requires = "file", conflicts_with_all = LOCAL)]
    pub(crate) namespace: Option<String>,
    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", requires = "file", conflicts_with_all = LOCAL)]
    pub(crate) context: Option<String>,
    /// The kubeconfig [default: as kubectl: KUBECONFIG, then ~/.kube/config]
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
    /// The InferenceDeployment as it would be applied
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Only this node; several, each once more with --node [default: all with pods of it]
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Vec<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// How to print it: text or json
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}
