//! `albacore bench routing`: Envoy and gRPC clients in front of servers, one of which is slow and
//! one of which is killed every 2 s.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use albacore_bench::{FEATURES, random_model};
use albacore_command::{Failure, print};
use albacore_random::SplitMix64;
use albacore_routing_bench::{Arm, Options, Outcome, Programs, Row, Setting};

use crate::bench_serve::parse_time;

const MODEL: &str = "model";

/// SHAP values of ten rows take about a millisecond of CPU time: the router, which takes a fifth of
/// that per request, and the generator leave most of two cpus to the servers.
const TREES: usize = 200;
const ROWS: usize = 10;

/// Number of distinct requests, sent round-robin.
const REQUESTS: usize = 16;

/// The arguments of `albacore bench routing`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchRoutingArgs {
    /// Folder with envoy and grpc-client, as printed by `tests/routing/programs.sh`
    #[arg(long, value_name = "FOLDER")]
    programs: PathBuf,
    /// Path of albacore-server [default: next to this program]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Routers and policies to compare; all by default
    #[arg(long = "arm", value_name = "ROUTER/POLICY", value_delimiter = ',', value_parser = parse_arm,
          default_values_t = Arm::ALL.map(Arm::name))]
    arms: Vec<String>,
    /// Number of servers, including the slow one
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    servers: u32,
    /// CPU share of each server
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, value_parser = parse_share)]
    cpus: f64,
    /// Factor by which the CPU share of the slow server is smaller
    #[arg(long, value_name = "FACTOR", default_value_t = 3.0, value_parser = parse_factor)]
    slow: f64,
    /// Latency objective; answers later than this after the intended time are bad
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_time)]
    objective: Duration,
    /// Loads, as a percentage of the capacity that remains despite kills
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [80],
          value_parser = clap::value_parser!(u32).range(1..=200))]
    load: Vec<u32>,
    /// Interval between kills
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    kill_every: Duration,
    /// Duration of each round of an arm, not including the 2 s and the blackout of its weights
    /// before it
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_time)]
    length: Duration,
    /// Number of rounds in which all arms run in turn
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seed of the times of requests and of the choice of servers to kill
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn parse_arm(text: &str) -> Result<String, String> {
    match Arm::from_name(text) {
        Some(arm) => Ok(arm.name()),
        None => {
            let names = Arm::ALL.map(Arm::name).join(", ");
            Err(format!("{text} is not an arm: write one of {names}"))
        }
    }
}

fn parse_number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| format!("write a number from {least} to {most}"))
}

fn parse_share(text: &str) -> Result<f64, String> {
    parse_number(text, 0.05, 1.0)
}

fn parse_factor(text: &str) -> Result<f64, String> {
    parse_number(text, 1.0, 10.0)
}

/// Measures all arms and prints the results.
///
/// # Errors
/// A program does not start, or the caller is not root.
pub(crate) fn run(args: &BenchRoutingArgs) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("albacore-routing-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|e| Failure::file(&folder, &e))?;
    let measured = options(args, folder.clone()).and_then(|options| {
        let mut progress = |what: &str| {
            // Standard error, because the output only contains the table.
            let _ = writeln!(std::io::stderr(), "measuring {what}");
        };
        Ok(albacore_routing_bench::run(&options, &mut progress)?)
    });
    // Also after an error; errors are ignored: it is a temporary folder.
    let _ = std::fs::remove_dir_all(&folder);
    print(&text(args, &measured?))
}

fn options(args: &BenchRoutingArgs, folder: PathBuf) -> Result<Options, Failure> {
    let model = folder.join("model.json");
    std::fs::write(&model, random_model(TREES)).map_err(|e| Failure::file(&model, &e))?;
    let server = match &args.server {
        Some(server) => server.clone(),
        None => std::env::current_exe()
            .map_err(|e| Failure::Failed(format!("cannot find the path of this program: {e}")))?
            .with_file_name("albacore-server"),
    };
    let mut shares = vec![args.cpus; args.servers as usize];
    shares[0] /= args.slow;
    let mut random = SplitMix64::new(args.seed);
    let values = ROWS * FEATURES as usize;
    let mut request = || -> Vec<f32> {
        let unit = |bits: u64| (bits >> 40) as f32 / (1_u64 << 24) as f32;
        let value = |random: &mut SplitMix64| unit(random.draw()) * 4.0 - 2.0;
        (0..values).map(|_| value(&mut random)).collect()
    };
    Ok(Options {
        programs: Programs {
            server,
            envoy: args.programs.join("envoy"),
            grpc_client: args.programs.join("grpc-client"),
        },
        setting: Setting {
            model: (MODEL.to_owned(), model),
            output: Some("contribs".to_owned()),
            features: FEATURES as usize,
            requests: (0..REQUESTS).map(|_| request()).collect(),
            objective: args.objective,
            shares,
        },
        arms: args
            .arms
            .iter()
            .filter_map(|name| Arm::from_name(name))
            .collect(),
        loads: args.load.clone(),
        rounds: args.rounds,
        length: args.length,
        kill_every: args.kill_every,
        seed: args.seed,
        folder,
    })
}

fn text(args: &BenchRoutingArgs, outcome: &Outcome) -> String {
    let capacities: Vec<String> = outcome
        .capacities
        .iter()
        .map(|capacity| format!("{capacity:.0}"))
        .collect();
    let mut out = format!(
        "{} servers of {} cpu, the first of {:.2} times less; SHAP values of {ROWS} rows, \
         objective {:?}; one is killed every {:?}.\n\
         Requests a second of each server alone: {}. Kills leave {:.0} of that; a start takes {} ms.\n\
         The simulated central scheduler: {}\n\n\
         | Router | Load, % | Sent/s | Good/s | Of central, % | Bad, % | p50, ms | p99, ms | \
         Refused | Lost | Kills | Interruption p99, ms | Router, cpu | |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        args.servers,
        args.cpus,
        args.slow,
        args.objective,
        args.kill_every,
        capacities.join(", "),
        outcome.remaining,
        outcome.reference.down.as_millis(),
        outcome.reference.command(),
    );
    for row in &outcome.rows {
        // infallible: writing to a String
        let _ = writeln!(out, "{}", line(row));
    }
    out
}

fn line(row: &Row) -> String {
    let figures = &row.figures;
    let report = &figures.report;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let sent = report.sent as f64 / figures.length.as_secs_f64().max(1e-9);
    // Arrivals are random, so the reference is scaled to the requests that were sent.
    let central = row.central / row.rate * sent;
    format!(
        "| {} | {} | {sent:.1} | {:.1} | {:.1} | {:.2} | {:.1} | {:.1} | {} | {} | {} | {:.1} | {:.2} | {} |",
        row.arm.name(),
        row.load,
        report.goodput,
        100.0 * report.goodput / central.max(1e-9),
        100.0 * report.bad_rate,
        ms(report.p50),
        ms(report.p99),
        report.shed,
        figures.lost,
        figures.kills,
        ms(figures.interruption_p99()),
        figures.router_cpus(),
        match row.is_generator_late {
            true => format!("generator late: {:.1} ms", ms(report.lag_p99)),
            false => String::new(),
        },
    )
}
