//! `albacore bench isolation`: measures the effect of a flood on a model with little load.
//!
//! A victim sends single rows at times drawn before the run. At the same time a closed loop of
//! clients floods another model, or other outputs of the same one, and resends immediately after a
//! refusal.

mod floods;

use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_bench::random_model;
use albacore_command::{Failure, print};
use albacore_load::{
    InferRequest, Load, Report, Request, Sample, Shape, WireFormat, drive, poisson,
};

use crate::bench_serve::parse_time;
use crate::local_server::LocalServer;
use floods::{Flood, flood_of};
pub(crate) use floods::{INPUT, rows};

/// The model with few requests.
const VICTIM: &str = "victim";

/// The flooded model.
const FLOODED: &str = "flooded";

/// Trees of both models: ten rows of SHAP values take about a millisecond.
const TREES: usize = 200;

/// Connections of the victim: enough that one is always idle.
const VICTIM_CONNECTIONS: usize = 64;

/// Warm-up per class of requests, in which its cost is learned.
const WARMUP: Duration = Duration::from_secs(1);

/// The arguments of `albacore bench isolation`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchIsolationArgs {
    /// Path of albacore-server [default: next to this program]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Number of worker processes
    #[arg(long, value_name = "W", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Latency objective of the victim model
    #[arg(long, value_name = "TIME", default_value = "25ms", value_parser = parse_time)]
    objective: Duration,
    /// Latency objective of the flooded model
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_time)]
    flood_objective: Duration,
    /// Requests per second to the victim model, one row each
    #[arg(long, value_name = "RATE", default_value_t = 200.0)]
    rate: f64,
    /// Numbers of connections of the flood, one run each
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [4, 64, 256, 1024],
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    connections: Vec<u32>,
    /// Kinds of flood requests, one run each: predict, contribs, interactions, invalid, or siblings
    /// (contribs of the victim's own model)
    #[arg(long = "flood", value_name = "KIND", value_delimiter = ',',
          default_values_t = Flood::ALL.map(|flood| flood.name().to_owned()), value_parser = parse_flood)]
    floods: Vec<String>,
    /// Duration of each run
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    length: Duration,
}

fn parse_flood(text: &str) -> Result<String, String> {
    match flood_of(text) {
        Some(flood) => Ok(flood.name().to_owned()),
        None => {
            let names = Flood::ALL.map(Flood::name).join(", ");
            Err(format!("{text} is not a flood: write one of {names}"))
        }
    }
}

/// Runs each flood together with the victim and prints the results.
///
/// # Errors
/// The server does not start, or the generator fails.
pub(crate) fn run(args: &BenchIsolationArgs) -> Result<(), Failure> {
    let file = format!("albacore-isolation-{}.json", std::process::id());
    let model = std::env::temp_dir().join(file);
    std::fs::write(&model, random_model(TREES)).map_err(|e| Failure::file(&model, &e))?;
    let measured = measure(args, &model);
    // Also after an error; errors are ignored: it is a temporary file.
    let _ = std::fs::remove_file(&model);
    measured
}

fn measure(args: &BenchIsolationArgs, model: &Path) -> Result<(), Failure> {
    let path = model.display();
    let micros = |time: Duration| format!("{}us", time.as_micros());
    let arguments = [
        "--workers".to_owned(),
        args.workers.to_string(),
        "--model".to_owned(),
        format!("{VICTIM}={path}"),
        "--model".to_owned(),
        format!("{FLOODED}={path}"),
        "--slo".to_owned(),
        format!("{VICTIM}={}", micros(args.objective)),
        "--slo".to_owned(),
        format!("{FLOODED}={}", micros(args.flood_objective)),
    ];
    let server = LocalServer::start(args.server.as_deref(), &arguments)?;
    warm(&server)?;
    print(
        "flood         connections  victim: refused   late  other      p50      p99 ms  \
         flood: good/s refused/s other/s\n",
    )?;
    let (alone, _) = one_run(args, &server, None)?;
    print_line(args, "none", 0, &alone, None)?;
    for &connections in &args.connections {
        for flood in args.floods.iter().filter_map(|name| flood_of(name)) {
            let (victim, flooded) = one_run(args, &server, Some((flood, connections)))?;
            print_line(args, flood.name(), connections, &victim, flooded.as_ref())?;
        }
    }
    Ok(())
}

/// Prediction requests with one row.
fn victim_requests(server: &LocalServer) -> Vec<Request> {
    floods::rows()
        .map(|row| {
            let call = InferRequest {
                model: VICTIM,
                input: floods::INPUT,
                output: None,
                values: &row,
                features: row.len(),
            };
            call.request(WireFormat::Json, server.http)
        })
        .collect()
}

fn warm(server: &LocalServer) -> Result<(), Failure> {
    let mut loads = vec![victim_requests(server)];
    loads.extend(Flood::ALL.map(|flood| flood.requests(server.http)));
    for requests in loads {
        run_load(Load {
            requests,
            shape: Shape::Closed(WARMUP),
            connections: 2,
        })?;
    }
    Ok(())
}

fn run_load(load: Load) -> Result<Vec<Sample>, Failure> {
    drive(load).map_err(|e| Failure::Failed(format!("the load generator: {e}")))
}

/// Runs the victim together with a flood; returns the figures of both.
fn one_run(
    args: &BenchIsolationArgs,
    server: &LocalServer,
    flood: Option<(Flood, u32)>,
) -> Result<(Report, Option<Report>), Failure> {
    let flooding = flood.map(|(flood, connections)| {
        let load = Load {
            requests: flood.requests(server.http),
            shape: Shape::Closed(args.length),
            connections: connections as usize,
        };
        std::thread::spawn(move || run_load(load))
    });
    let victim = run_load(Load {
        requests: victim_requests(server),
        shape: Shape::Open(poisson(args.rate, args.length, 1)),
        connections: VICTIM_CONNECTIONS,
    })?;
    let flooded = flooding.map(|flooding| {
        let ended = flooding.join();
        ended.unwrap_or_else(|_| Err(Failure::Failed("the flood's generator failed".to_owned())))
    });
    let flooded = flooded.transpose()?;
    let objective = match flood {
        Some((Flood::Siblings, _)) => args.objective,
        _ => args.flood_objective,
    };
    Ok((
        Report::of(&victim, args.length, args.objective),
        flooded.map(|samples| Report::of(&samples, args.length, objective)),
    ))
}

fn print_line(
    args: &BenchIsolationArgs,
    name: &str,
    connections: u32,
    victim: &Report,
    flooded: Option<&Report>,
) -> Result<(), Failure> {
    let percent = |count: usize| 100.0 * count as f64 / victim.sent.max(1) as f64;
    let others = victim.sent - victim.good - victim.shed - victim.late;
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut line = format!(
        "{name:13} {connections:11} {:15.2} % {:4.1} % {:4.1} % {:8.2} {:8.2}    ",
        percent(victim.shed),
        percent(victim.late),
        percent(others),
        ms(victim.p50),
        ms(victim.p99),
    );
    if let Some(flooded) = flooded {
        let rate = |count: usize| count as f64 / args.length.as_secs_f64();
        let others = flooded.sent - flooded.good - flooded.shed;
        line += &format!(
            "{:13.0} {:9.0} {:7.0}",
            flooded.goodput,
            rate(flooded.shed),
            rate(others)
        );
    }
    print(&(line.trim_end().to_owned() + "\n"))
}
