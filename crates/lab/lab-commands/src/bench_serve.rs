//! `albacore bench serve`: open-loop benchmark of a server of the Open Inference Protocol v2.
//!
//! Send times are drawn before the run, independent of the server; latencies count from those
//! times. A run in which the generator itself was late is not valid for the server, and fails.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use albacore_bench::{Bench, Probe, Schedule, Spec, comparison, find_highest_rate, print as drawn};
use albacore_command::{Failure, OutputFormat, print, print_json};

/// The arguments of `albacore bench serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchServeArgs {
    /// Server URL: http://HOST:PORT or grpc://HOST:PORT
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Model name; several names separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    pub(crate) model: Vec<String>,
    /// Requests per second, one run each
    #[arg(long, value_name = "LIST", value_delimiter = ',', required_unless_present_any = ["is_search", "arrivals"])]
    pub(crate) rate: Vec<f64>,
    /// Find the highest rate within the objective instead
    #[arg(long = "search", conflicts_with = "rate")]
    pub(crate) is_search: bool,
    /// Duration of each run
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub(crate) length: Duration,
    /// Latency objective; answers later than this after the intended time are bad
    #[arg(long, value_name = "TIME", default_value = "25ms", value_parser = parse_time)]
    pub(crate) objective: Duration,
    /// Percentage of requests that must be good for a rate to be within the objective
    #[arg(long, value_name = "P", default_value_t = 99.0, value_parser = parse_percentile)]
    pub(crate) percentile: f64,
    /// Arrival process: poisson, gamma:SHAPE (bursty below 1), or a file with one time in seconds
    /// per line
    #[arg(long, value_name = "HOW", default_value = "poisson")]
    pub(crate) arrivals: String,
    /// Request mix: [MODEL/][OUTPUT:]ROWS[=SHARE], separated by commas, such as
    /// output:1=9,contribs:10=1. An entry without MODEL applies to every model in equal parts
    #[arg(long, value_name = "LIST", default_value = "1")]
    pub(crate) mix: String,
    /// Number of values per row, for every model [default: from the server's metadata]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) features: Option<u32>,
    /// Name of the input tensor [default: from the server's metadata, or input]
    #[arg(long, value_name = "NAME")]
    pub(crate) input: Option<String>,
    /// Encoding of rows and results over HTTP: as text or as bytes
    #[arg(long, value_enum, default_value_t = Form::Json)]
    pub(crate) form: Form,
    /// Maximum number of connections, opened as needed
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub(crate) connections: u32,
    /// Seed of the request times and rows
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Processes of the server on this machine; reports their CPU time, including their descendants
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Vec<u32>,
    /// Also simulate each run with the costs that the server has learned and with its policy: bad
    /// share, rows per batch, idle share of the workers and latencies, live and simulated, for each
    /// class of --mix and for all. --objective must be that of all models in the server's settings
    #[arg(long = "against-simulation", conflicts_with_all = ["is_search", "picture"])]
    pub(crate) is_against_simulation: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    pub(crate) output: OutputFormat,
    /// Also write an SVG image to this file
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) picture: Option<PathBuf>,
}

impl BenchServeArgs {
    fn spec(&self) -> Spec {
        Spec {
            url: self.url.clone(),
            models: self.model.clone(),
            rates: self.rate.clone(),
            is_search: self.is_search,
            length: self.length,
            objective: self.objective,
            percentile: self.percentile,
            arrivals: self.arrivals.clone(),
            mix: self.mix.clone(),
            features: self.features.map(|features| features as usize),
            input: self.input.clone(),
            is_binary: self.form == Form::Binary,
            connections: self.connections as usize,
            seed: self.seed,
            pids: self.pid.clone(),
        }
    }
}

/// Encoding of tensors over HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Form {
    /// JSON
    Json,
    /// Binary data after the JSON
    Binary,
}

/// Maximum length of a run and of an objective: an hour.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// Parses a number with its unit, us, ms, s or m.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err("expected a number with us, ms, s or m".to_owned()),
    };
    let number: f64 = digits.parse().map_err(|_| "expected a number".to_owned())?;
    let time = Duration::try_from_secs_f64(number * unit).map_err(|e| e.to_string())?;
    match time {
        Duration::ZERO => Err("expected a time above zero".to_owned()),
        time if time > TIME_MAX => Err("expected at most an hour".to_owned()),
        time => Ok(time),
    }
}

pub(crate) fn parse_percentile(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok();
    let percent = percent.filter(|percent| (50.0..100.0).contains(percent));
    percent.ok_or_else(|| "expected a number from 50 to less than 100".to_owned())
}

/// Measures each rate, or searches for the highest one, and prints the results.
///
/// # Errors
/// Invalid options, a server that cannot be reached, or a generator that fell behind its schedule.
pub(crate) fn run(args: &BenchServeArgs) -> Result<(), Failure> {
    let bench = Bench::new(args.spec())?;
    let schedules = bench.schedules()?;
    bench.warm()?;
    if args.is_against_simulation {
        return run_against_simulation(&bench, &schedules, args.output);
    }
    let mut probes = Vec::new();
    let mut on_progress = |probe: Probe| -> Result<(), Failure> {
        if args.output == OutputFormat::Text {
            let heading = probes.is_empty().then(|| drawn::heading(&bench));
            print(&format!(
                "{}{}",
                heading.unwrap_or_default(),
                drawn::row(&probe)
            ))?;
        }
        probes.push(probe);
        Ok(())
    };
    let found = if args.is_search {
        Some(find_highest_rate(&bench, &mut on_progress)?)
    } else {
        for schedule in schedules {
            on_progress(bench.probe(&schedule)?)?;
        }
        None
    };
    probes.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    match args.output {
        OutputFormat::Text => print(&drawn::ending(&bench, &probes, found))?,
        OutputFormat::Json => print_json(&drawn::json(&bench, &probes, found))?,
        OutputFormat::Svg => print(&drawn::picture(&bench, &probes))?,
    }
    if let Some(file) = &args.picture {
        std::fs::write(file, drawn::picture(&bench, &probes))
            .map_err(|e| Failure::file(file, &e))?;
    }
    let behind = probes.iter().find(|probe| probe.is_generator_late);
    behind.filter(|_| !args.is_search).map_or(Ok(()), refuse)
}

/// Runs each rate live and in simulation.
fn run_against_simulation(
    bench: &Bench,
    schedules: &[Schedule],
    output: OutputFormat,
) -> Result<(), Failure> {
    if output == OutputFormat::Svg {
        let what = "--output svg is not supported with --against-simulation";
        return Err(Failure::Usage(what.to_owned()));
    }
    let mut all = Vec::new();
    for schedule in schedules {
        let comparison = bench.compare(schedule)?;
        if output == OutputFormat::Text {
            let heading = all.is_empty().then(comparison::heading);
            let row = comparison::table(&comparison);
            print(&format!("{}{row}", heading.unwrap_or_default()))?;
        }
        all.push(comparison);
    }
    if output == OutputFormat::Json {
        print_json(&comparison::json(&all))?;
    }
    let behind = all
        .iter()
        .find(|comparison| comparison.probe.is_generator_late);
    behind.map_or(Ok(()), |comparison| refuse(&comparison.probe))
}

fn refuse(probe: &Probe) -> Result<(), Failure> {
    Err(Failure::Failed(format!(
        "at {:.0} requests per second the load generator was {:.1} ms behind its schedule (99th \
         percentile): the results are invalid; reduce the rate, or send from a machine with idle \
         cpus",
        probe.rate,
        probe.report.lag_p99.as_secs_f64() * 1e3
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse_time("25ms"), Ok(Duration::from_millis(25)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        for text in ["", "5", "ms", "0s", "-1s", "2h", "3000m", "nans"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
