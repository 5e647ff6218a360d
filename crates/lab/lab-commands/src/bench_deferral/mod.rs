//! `albacore bench deferral`: measures where batching and deferral are beneficial, and compares
//! with the predictions of policy `auto`.
//!
//! First, batches of several kinds and models are timed. Then servers with different policies get
//! the same load in alternation, round by round, so that other load on the machine affects all of
//! them.

mod cases;
mod costs;

use std::path::PathBuf;
use std::time::Duration;

use albacore_bench::{ModelShape, random_model_of};
use albacore_command::Failure;

use crate::bench_serve::parse_time;
use cases::CASES;

/// Name of the model in requests.
const MODEL: &str = "wide";

/// The arguments of `albacore bench deferral`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchDeferralArgs {
    /// Path of albacore-server [default: next to this program]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Number of worker processes
    #[arg(long, value_name = "W", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Number of runs of each policy at each load; the search for the goodput has three times as
    /// many
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Duration of each run
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    length: Duration,
    /// Percentage of the requests that must be answered in time
    #[arg(long, value_name = "P", default_value_t = 99.0)]
    percentile: f64,
    /// Skip the cost table
    #[arg(long)]
    without_costs: bool,
}

/// A model in a temporary file, which is removed on drop.
struct ModelFile(PathBuf);

impl ModelFile {
    fn create(shape: ModelShape) -> Result<Self, Failure> {
        let file = Self(std::env::temp_dir().join(format!(
            "albacore-{}-{}-{}-{}.json",
            std::process::id(),
            shape.trees,
            shape.leaves,
            shape.features
        )));
        std::fs::write(&file.0, random_model_of(shape)).map_err(|e| Failure::file(&file.0, &e))?;
        Ok(file)
    }

    /// The value of `--model`.
    fn argument(&self) -> String {
        format!("{MODEL}={}", self.0.display())
    }
}

impl Drop for ModelFile {
    fn drop(&mut self) {
        // Errors are ignored: it is a temporary file.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs the benchmark and prints the results.
///
/// # Errors
/// A server does not start, or does not answer.
pub(crate) fn run(args: &BenchDeferralArgs) -> Result<(), Failure> {
    if !args.without_costs {
        costs::print_costs(args.server.as_deref())?;
    }
    CASES.iter().try_for_each(|case| case.run(args))
}
