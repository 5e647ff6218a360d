//! Command line arguments.

mod cluster_plan;
mod plan;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use albacore_command::{OutputFormat, RunOutput};
use albacore_topology::CpuSet;
use clap::{Parser, Subcommand, ValueEnum};

use crate::predict_command::PredictOptions;

pub(crate) use cluster_plan::{ClusterPlanArgs, DiffArgs};
pub(crate) use plan::{
    DistancesArg, FileArg, ModeArg, ObstacleArg, PlanArgs, PolicyArg, ThreadArg, mode_name,
};

/// Fast, predictable CPU inference: plans, applies and enforces the placement of every serving
/// thread.
#[derive(Debug, Parser)]
#[command(name = "albacore", version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show which CPUs share cores and caches
    Topology(TopologyArgs),
    /// Plan the CPU of every thread of every worker, for this machine or for the nodes of a cluster
    Plan(PlanArgs),
    /// Show which threads an edited deployment would move in a cluster, by node and pod
    ///
    /// Nothing is changed. Exit code 0: no thread would move. 1: some would; as with `kubectl
    /// diff`, a difference is not a failure. Above 1: the difference could not be determined (2: no
    /// cluster, no such deployment, or a node that is not known; 64: the file or an option is
    /// invalid).
    Diff(DiffArgs),
    /// Predict rows with a tree model
    Predict(PredictArgs),
    /// Inspect a model file
    #[command(subcommand)]
    Model(ModelCommand),
    /// Benchmark parts of Albacore against alternatives
    #[command(disable_help_flag = true)]
    Bench(LaboratoryArgs),
    /// Compare placement policies over a grid of workers, threads, models and requests
    #[command(disable_help_flag = true)]
    Experiment(LaboratoryArgs),
    /// Find workers, threads, placement and batching for a latency objective, by measurement
    #[command(disable_help_flag = true)]
    Tune(LaboratoryArgs),
    /// Serve a deployment on this machine and keep every thread placed as planned
    Run(RunArgs),
    /// Simulate batch scheduling: goodput, late requests and idle workers of a scenario
    #[command(disable_help_flag = true)]
    Simulate(LaboratoryArgs),
    /// Assign models to sub-clusters: balanced rate and memory, few changes
    #[command(disable_help_flag = true)]
    Partition(LaboratoryArgs),
    /// Show the deployments of a cluster: pods, workers, threads, CPUs, drift
    Status(StatusArgs),
    /// Explain why a deployment of a cluster is not ready, not placed or misses its objective
    Explain(ExplainArgs),
    /// Show the deployments whose pods an upgrade of the operator restarts
    Upgrade(UpgradeArgs),
    /// Reset the affinity masks of local processes, or of the pods of a node, to all CPUs of their
    /// cgroup
    Restore(RestoreArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Show the properties of a model, and the kernel used for each number of rows on this CPU
    Show {
        /// Model file: XGBoost .ubj or .json, or LightGBM text
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Arguments of a laboratory command, passed on unchanged.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct LaboratoryArgs {
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    pub(crate) arguments: Vec<OsString>,
}

/// Selection of the cluster, with the defaults of kubectl.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// Namespace [default: that of the context; for upgrade: all]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Path of the kubeconfig [default: as for kubectl: KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// Selection of the cluster of a node.
#[derive(Debug, clap::Args)]
pub(crate) struct NodeClusterArgs {
    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME", requires = "node")]
    pub(crate) context: Option<String>,
    /// Path of the kubeconfig [default: as for kubectl: KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE", requires = "node")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// InferenceDeployment to show in full, or pod/NAME [default: all in the namespace]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Show the deployments of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["name", "namespace"])]
    pub(crate) all_namespaces: bool,
    /// Also show every thread, as the agents of the nodes see it now (requires permission to exec
    /// into their pods)
    #[arg(long, requires = "name")]
    pub(crate) threads: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// Name of the InferenceDeployment, or pod/NAME
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Print a JSON object instead of text
    #[arg(long = "json")]
    pub(crate) is_json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UpgradeArgs {
    /// Only show the deployments; required, because nothing else is supported
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Server image of the upgrade [default: that of this program's version]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) server_image: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Output format: text or json
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// Processes of this machine; their descendants are included
    #[arg(required_unless_present = "node", value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pids: Vec<i32>,
    /// Only print how many threads would be reset
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Node of a cluster: its agent resets every mask and then leaves the pods alone
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pids", "dry_run"])]
    pub(crate) node: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: NodeClusterArgs,
}

/// Selection of the machine.
#[derive(Debug, clap::Args)]
pub(crate) struct MachineArgs {
    /// Machine: an hwloc synthetic string such as "pack:1 l3:1 core:16 pu:2", or a directory with a
    /// copy of /sys/devices/system [default: this machine]
    #[arg(long, value_name = "SPEC")]
    pub(crate) topology: Option<String>,
    /// CPUs that may be used, such as 0-3,8 [default: all]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpuset: Option<CpuSet>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopologyArgs {
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    /// Measure the latency between the CPUs of this machine that this process may use; takes some
    /// seconds, best on an idle machine
    #[arg(long)]
    pub(crate) measure: bool,
    /// With --measure: output file, for `albacore plan --distances`
    #[arg(long, value_name = "FILE", requires = "measure")]
    pub(crate) write: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PredictArgs {
    /// Model file: XGBoost .ubj or .json, or LightGBM text
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    /// Rows: a float32 or float64 array of shape (rows, features); NaN means missing
    #[arg(long, value_name = "FILE.npy")]
    pub(crate) data: PathBuf,
    /// Output file
    #[arg(long, value_name = "FILE.npy")]
    pub(crate) output: PathBuf,
    /// What to predict
    #[arg(long, value_enum, default_value_t = OutputKind::Value)]
    pub(crate) kind: OutputKind,
    #[command(flatten)]
    pub(crate) options: PredictOptions,
    /// Number of threads; the result does not depend on it [default: one per usable CPU]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// InferenceDeployment file; its placement and mode can be edited while it runs
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// HTTP listen address of the built-in server
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) http: SocketAddr,
    /// gRPC listen address of the built-in server
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    pub(crate) grpc: SocketAddr,
    /// CPUs for the server and this program, such as 0-3,8 [default: those of the affinity mask at
    /// startup]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<CpuSet>,
    /// Output format: a live table, or one JSON object per event; auto: a table on a terminal
    #[arg(long, value_enum, default_value_t = RunOutput::Auto)]
    pub(crate) output: RunOutput,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum OutputKind {
    /// The model's prediction
    Value,
    /// The raw score, before the objective's transformation (XGBoost's output_margin)
    #[value(alias = "output_margin")]
    Margin,
    /// SHAP values: one for each feature, then the bias (pred_contribs)
    #[value(alias = "pred_contribs")]
    Contribs,
    /// SHAP interaction values: one for each pair of features, with the bias as last row and column
    /// (pred_interactions)
    #[value(alias = "pred_interactions")]
    Interactions,
    /// The leaf of each tree that the row falls into (pred_leaf)
    #[value(alias = "pred_leaf")]
    Leaf,
}

#[cfg(test)]
mod tests {
    use super::Args;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }
}
