//! Command line arguments.

mod cluster_plan;
mod plan;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use albacore_command::{Output, RunOutput};
use albacore_topology::CpuSet;
use clap::{Parser, Subcommand, ValueEnum};

use crate::predict_command::PredictOptions;

pub(crate) use cluster_plan::{ClusterPlanArgs, DiffArgs};
pub(crate) use plan::{
    DistancesArg, FileArg, Mode, ObstacleArg, PlanArgs, Policy, ThreadArg, mode_name,
};

/// Fast, predictable CPU inference: plans, runs and keeps the placement of every serving thread.
#[derive(Debug, Parser)]
#[command(name = "albacore", version, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show which cpus share which cores and caches
    Topology(TopologyArgs),
    /// Decide on which cpu every thread of every worker should run, here or on nodes of a cluster
    Plan(PlanArgs),
    /// Show what an edited deployment would move in a cluster: threads, by node and pod
    ///
    /// Nothing is changed. Exit code 0: nothing would move. 1: something would, as in scripts with
    /// `kubectl diff`, where a difference is no failure. Above 1: that could not be found out (2:
    /// no cluster, no such deployment, or a node that is not known; 64: the file or an option is
    /// invalid).
    Diff(DiffArgs),
    /// Predict rows with a tree model
    Predict(PredictArgs),
    /// Look into a model file
    #[command(subcommand)]
    Model(ModelCommand),
    /// Measure parts of Albacore beside others
    #[command(disable_help_flag = true)]
    Bench(LaboratoryArgs),
    /// Compare policies of placement over a grid of workers, threads, models and requests
    #[command(disable_help_flag = true)]
    Experiment(LaboratoryArgs),
    /// Find workers, threads, placement and batching for a latency objective, by measurement
    #[command(disable_help_flag = true)]
    Tune(LaboratoryArgs),
    /// Serve a deployment on this machine and keep every thread where the plan says
    Run(RunArgs),
    /// Simulate batch scheduling: goodput, late requests and idle workers of a scenario
    #[command(disable_help_flag = true)]
    Simulate(LaboratoryArgs),
    /// Decide which models share a sub-cluster: balanced rate and memory, few changes
    #[command(disable_help_flag = true)]
    Partition(LaboratoryArgs),
    /// Show deployments of a cluster: pods, workers, threads, cpus, drift
    Status(StatusArgs),
    /// Say what keeps a deployment of a cluster from being ready, placed and in time
    Explain(ExplainArgs),
    /// Show whose pods an upgrade of the operator restarts
    Upgrade(UpgradeArgs),
    /// Give threads all cpus of their cgroup again: of processes here, or of the pods of a
    /// cluster's node
    Restore(RestoreArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    /// Show what a model is, and which kernel takes how many rows on this cpu
    Show {
        /// The model: XGBoost .ubj or .json, or LightGBM text
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// The arguments of a command of the laboratory, passed on as they are.
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

/// Which cluster is meant, found as kubectl finds it.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// The namespace [default: that of the context; of upgrade: all]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The kubeconfig [default: as kubectl: KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// Which cluster a node is of.
#[derive(Debug, clap::Args)]
pub(crate) struct NodeClusterArgs {
    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", requires = "node")]
    pub(crate) context: Option<String>,
    /// The kubeconfig [default: as kubectl: KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE", requires = "node")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// The InferenceDeployment, shown in full, or pod/NAME [default: all of the namespace]
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Those of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["name", "namespace"])]
    pub(crate) all_namespaces: bool,
    /// Every thread, too, as the agents of the nodes see them now (needs the right to run a program
    /// in their pods)
    #[arg(long, requires = "name")]
    pub(crate) threads: bool,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The InferenceDeployment, or pod/NAME
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// Print one JSON object instead of sentences
    #[arg(long = "json")]
    pub(crate) is_json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UpgradeArgs {
    /// Only show it; nothing else is offered
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The server image that the upgrade brings [default: that of this program's version]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) server_image: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
    /// How to print it: text or json
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// Processes of this machine; those below them are meant too
    #[arg(required_unless_present = "node", value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pids: Vec<i32>,
    /// Only tell how many threads it would be
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// A node of a cluster: its agent gives every mask back and leaves the pods alone from then on
    #[arg(long, value_name = "NAME", conflicts_with_all = ["pids", "dry_run"])]
    pub(crate) node: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: NodeClusterArgs,
}

/// Which machine is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct MachineArgs {
    /// The machine: an hwloc synthetic string such as "pack:1 l3:1 core:16 pu:2", or a directory
    /// with a copy of /sys/devices/system [default: this machine]
    #[arg(long, value_name = "SPEC")]
    pub(crate) topology: Option<String>,
    /// Only these cpus may be used, such as 0-3,8 [default: all]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpuset: Option<CpuSet>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TopologyArgs {
    #[command(flatten)]
    pub(crate) machine: MachineArgs,
    /// Measure the latency between the cpus of this machine that this process may use: some
    /// seconds, best on an idle machine
    #[arg(long)]
    pub(crate) measure: bool,
    /// With --measure: the file to write, for `albacore plan --distances`
    #[arg(long, value_name = "FILE", requires = "measure")]
    pub(crate) write: Option<PathBuf>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PredictArgs {
    /// The model: XGBoost .ubj or .json, or LightGBM text
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    /// The rows: a float32 or float64 array of shape (rows, features); NaN is missing
    #[arg(long, value_name = "FILE.npy")]
    pub(crate) data: PathBuf,
    /// Where to write the result
    #[arg(long, value_name = "FILE.npy")]
    pub(crate) output: PathBuf,
    /// What to predict
    #[arg(long, value_enum, default_value_t = Kind::Value)]
    pub(crate) kind: Kind,
    #[command(flatten)]
    pub(crate) options: PredictOptions,
    /// Threads that share the rows; the result does not depend on it [default: one for each usable
    /// cpu]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The InferenceDeployment; its placement and mode may be edited while it runs
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Where the built-in server listens for HTTP
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub(crate) http: SocketAddr,
    /// Where the built-in server listens for gRPC
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    pub(crate) grpc: SocketAddr,
    /// The cpus that the server and this program use, such as 0-3,8 [default: those of the mask
    /// that it is started with]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<CpuSet>,
    /// A live table, or one JSON object an event; auto: a table on a terminal
    #[arg(long, value_enum, default_value_t = RunOutput::Auto)]
    pub(crate) output: RunOutput,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Kind {
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
    /// The leaf that each tree takes the row to (pred_leaf)
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
