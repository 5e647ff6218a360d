//! The arguments of `albacore simulate`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::cluster::ClusterArgs;

/// The arguments of `albacore simulate`.
#[derive(Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// Scenario file: workers, models or profiles, arrivals, rate, requests, policy, drop, delays;
    /// see examples/simulate.yaml
    #[arg(
        short,
        long,
        value_name = "FILE",
        required_unless_present = "is_example"
    )]
    pub(crate) file: Option<PathBuf>,
    /// Set a key of the scenario, such as drop.rule=head; can be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Find the highest rate at which at most 1 % of every model's requests are bad
    #[arg(long = "goodput", group = "what")]
    pub(crate) is_goodput: bool,
    /// Number of seeds for --goodput and --cluster, starting with that of the scenario
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) seeds: u32,
    /// Print every batch and every drop
    #[arg(long = "trace", group = "what")]
    pub(crate) is_trace: bool,
    /// Compare policies over a range of loads: goodput, bad rate, idle share, batch sizes
    #[arg(long = "compare", group = "what")]
    pub(crate) is_compare: bool,
    /// Policies for --compare: auto, auto=idle_workers, auto=short_waits, deferred, eager or
    /// timeout=10%, each also with /own, /half, /head or /N for the drop rule
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "auto,deferred,eager,timeout=10%,eager/half"
    )]
    pub(crate) policies: Vec<String>,
    /// Simulate autoscaling over a day of changing load by bad rate and idle share, and by busy
    /// time only, as a standard autoscaler does; the scenario's rate is the peak, its workers are
    /// the maximum
    #[arg(long = "day", group = "what")]
    pub(crate) is_day: bool,
    /// Length of the day of --day, in seconds; a shorter day has the same changes in less time
    #[arg(long, value_name = "N", default_value_t = 86_400,
          value_parser = clap::value_parser!(u64).range(600..=86_400))]
    pub(crate) day_seconds: u64,
    /// Show the article's example: the effect of a gap in the arrivals on eager and on deferred
    /// batches
    #[arg(long = "example", group = "what", conflicts_with_all = ["file", "sets"])]
    pub(crate) is_example: bool,
    /// Compare policies that route requests to pods, each pod with the scenario's workers: total
    /// goodput, and latencies at one rate
    #[arg(long = "cluster", group = "what")]
    pub(crate) is_cluster: bool,
    /// Output format; text is only for --example and --cluster
    #[arg(long, value_enum)]
    pub(crate) output: Option<SimulateOutput>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// Output formats of `albacore simulate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum SimulateOutput {
    /// Human-readable text
    Text,
    /// One JSON object
    Json,
    /// SVG image
    Svg,
}
