//! The arguments of `albacore simulate`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::cluster::ClusterArgs;

/// What is asked of a scenario.
#[derive(Debug, clap::Args)]
pub(crate) struct SimulateArgs {
    /// The scenario: workers, models or profiles, arrivals, rate, requests, policy, drop, delays;
    /// see examples/simulate.yaml
    #[arg(
        short,
        long,
        value_name = "FILE",
        required_unless_present = "is_example"
    )]
    pub(crate) file: Option<PathBuf>,
    /// Set a key of the scenario, such as drop.rule=head; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) sets: Vec<String>,
    /// Find the highest rate at which at most 1 % of every model's requests are bad
    #[arg(long = "goodput", group = "what")]
    pub(crate) is_goodput: bool,
    /// How many seeds --goodput and --cluster try, from that of the scenario on
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) seeds: u32,
    /// Print every batch and every drop
    #[arg(long = "trace", group = "what")]
    pub(crate) is_trace: bool,
    /// Run policies side by side over the load: goodput, bad rate, idle share, sizes of batches
    #[arg(long = "compare", group = "what")]
    pub(crate) is_compare: bool,
    /// What --compare compares: auto, auto=idle_workers, auto=short_waits, deferred, eager or
    /// timeout=10%, each also with /own, /half, /head or /N for the drop rule
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "auto,deferred,eager,timeout=10%,eager/half"
    )]
    pub(crate) policies: Vec<String>,
    /// Follow a day of changing load by bad rate and idle share, and by busy time alone, as a stock
    /// autoscaler does; the scenario's rate is that of the peak, its workers are the most there are
    #[arg(long = "day", group = "what")]
    pub(crate) is_day: bool,
    /// How long the day of --day is; shorter ones change as much in less time
    #[arg(long, value_name = "N", default_value_t = 86_400,
          value_parser = clap::value_parser!(u64).range(600..=86_400))]
    pub(crate) day_seconds: u64,
    /// Show the article's example: what a gap in the arrivals does to eager and to deferred batches
    #[arg(long = "example", group = "what", conflicts_with_all = ["file", "sets"])]
    pub(crate) is_example: bool,
    /// Compare ways to route requests to pods, each with the scenario's workers: goodput of all
    /// together, and latencies at one rate
    #[arg(long = "cluster", group = "what")]
    pub(crate) is_cluster: bool,
    /// How to print it; text is for --example and --cluster alone
    #[arg(long, value_enum)]
    pub(crate) output: Option<SimulateOutput>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,
}

/// How the result is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum SimulateOutput {
    /// For people
    Text,
    /// For programs: one object
    Json,
    /// A picture
    Svg,
}
