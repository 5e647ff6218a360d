//! `albacore tune`: finds workers, threads, placement and batching for a latency objective.

use std::path::PathBuf;
use std::time::Duration;

use albacore_command::{Failure, print};
use albacore_tune::{ApplyRequest, TuneError, TuneRequest, Watching, apply, tune, write_results};

use crate::bench_serve::{parse_percentile, parse_time};

/// The arguments of `albacore tune`.
#[derive(Debug, clap::Args)]
pub(crate) struct TuneArgs {
    /// The InferenceDeployment; it is changed with --apply alone
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// The latency objective [default: the strictest of the file's models]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    latency: Option<Duration>,
    /// Percent of requests that have to be within the objective [default: as the file says]
    #[arg(long, value_name = "P", value_parser = parse_percentile)]
    percentile: Option<f64>,
    /// Requests a second that all pods together have to carry [default: as many as possible]
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    rate: Option<f64>,
    /// When requests come: poisson, gamma:SHAPE (less than 1 in bursts), or a file of times in
    /// seconds, a line each
    #[arg(long, value_name = "HOW", default_value = "poisson")]
    arrivals: String,
    /// What requests ask for: [MODEL/][OUTPUT:]ROWS[=SHARE], several with commas, such as
    /// output:1=9,contribs:10=1. Without MODEL it is asked of every model in equal parts
    #[arg(long, value_name = "LIST", default_value = "1")]
    mix: String,
    /// Time for measurements
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = parse_time)]
    time: Duration,
    /// The same seed gives the same arrivals and rows
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where results are written [default: tune-NAME]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Write the chosen values into the file
    #[arg(long)]
    apply: bool,
    /// With --apply: the server that runs from the file, under its clients' load, http://HOST:PORT.
    /// The file is as before again if the server becomes worse
    #[arg(long, value_name = "URL", requires = "apply")]
    watch: Option<String>,
    /// How long the server is watched before, and again after the change
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    watch_time: Duration,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    let rate = rate.filter(|rate| (0.1..=1e7).contains(rate));
    rate.ok_or_else(|| "a number of requests a second from 0.1 to 10000000 is due".to_owned())
}

/// Tunes and writes the results.
///
/// # Errors
/// A bad file or option, an objective that nothing meets, a server that does not start, a signal.
pub(crate) fn run(args: &TuneArgs) -> Result<(), Failure> {
    let stem = args.file.file_stem().unwrap_or_default();
    let folder = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("tune-{}", stem.to_string_lossy())));
    let request = TuneRequest {
        file: args.file.clone(),
        folder: folder.clone(),
        latency: args.latency,
        percentile: args.percentile,
        mix: args.mix.clone(),
        arrivals: args.arrivals.clone(),
        rate: args.rate,
        time: args.time,
        seed: args.seed,
    };
    let changes = ApplyRequest {
        file: args.file.clone(),
        server: args.watch.clone(),
        time: args.watch_time,
    };
    let watching = Watching::check(&changes).map_err(failure)?;
    let outcome = tune(&request, &mut |line| eprintln!("{line}")).map_err(failure)?;
    let patched = write_results(&outcome, &folder).map_err(failure)?;
    print(&format!(
        "{}\nReport: {}\nThe file with these values: {}\n",
        outcome.summary(),
        folder.join("report.html").display(),
        patched.display()
    ))?;
    if !args.apply {
        return Ok(());
    }
    let applied = apply(&changes, &watching, &outcome, &mut |line| {
        eprintln!("{line}")
    });
    print(&(applied.map_err(failure)? + "\n"))
}

pub(crate) fn failure(error: TuneError) -> Failure {
    match error {
        TuneError::Usage(_) | TuneError::Deployment(_) | TuneError::Patch { .. } => {
            Failure::Usage(error.to_string())
        }
        TuneError::Bench(error) => error.into(),
        _ => Failure::Failed(error.to_string()),
    }
}
