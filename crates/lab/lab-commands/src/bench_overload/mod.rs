//! `albacore bench overload`: measures the goodput of a server under heavy overload.
//!
//! For each kind of request, the peak is the highest goodput of closed loops with few connections.
//! Closed loops with many connections, whose clients resend immediately after a refusal, and an
//! open loop at ten times the peak or at the limit of the generator, are run in alternation with
//! it: a drift of the machine's speed affects all goodputs, but their ratios less. The server
//! shares its cpus with the generator, so the figures are lower bounds.

mod kinds;

use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_bench::random_model;
use albacore_command::{Failure, print};
use albacore_load::{Load, Report, Shape, drive, poisson};

use crate::bench_serve::parse_time;
use crate::local_server::LocalServer;
use kinds::{RequestKind, kind_of};

const MODEL: &str = "model";

/// Connections of the closed loops in the search for the peak.
const PEAK_CONNECTIONS: [usize; 5] = [2, 4, 8, 16, 32];

/// Intended overload, as a multiple of the peak.
const TIMES_PEAK: f64 = 10.0;

/// Time after which memory should not grow.
const MEMORY_SETTLED: Duration = Duration::from_secs(2);

/// 99th percentile of the generator's lag above which the load was not as intended.
const LAG_MAX: Duration = Duration::from_millis(2);

/// The arguments of `albacore bench overload`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchOverloadArgs {
    /// Path of albacore-server [default: next to this program]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Number of worker processes
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Number of trees of the model, each of depth 6
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    trees: u32,
    /// Latency objective of every request
    #[arg(long, value_name = "TIME", default_value = "25ms", value_parser = parse_time)]
    objective: Duration,
    /// Numbers of connections of the closed loops, one run each
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [64, 1024],
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    connections: Vec<u32>,
    /// Maximum number of requests per second that the generator sends in an open loop
    #[arg(long, value_name = "RATE", default_value_t = 20_000.0)]
    open_rate_max: f64,
    /// Number of connections of the open loop. A refusal may occupy one for half a second; with the
    /// default no request waits for a connection
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    open_connections: u32,
    /// Kinds of requests, one line each: predict1, predict10, contribs1, contribs10, interactions1
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',',
          default_values_t = RequestKind::ALL.map(|kind| kind.name().to_owned()), value_parser = parse_kind)]
    kinds: Vec<String>,
    /// Duration of each run
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    length: Duration,
    /// Number of rounds in which all loads run in turn; the figures are medians
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
}

fn parse_kind(text: &str) -> Result<String, String> {
    match kind_of(text) {
        Some(kind) => Ok(kind.name().to_owned()),
        None => {
            let names = RequestKind::ALL.map(RequestKind::name).join(", ");
            Err(format!("{text} is not a kind: write one of {names}"))
        }
    }
}

/// Loads a server with each kind of request and prints the results.
///
/// # Errors
/// The server does not start, or the generator fails.
pub(crate) fn run(args: &BenchOverloadArgs) -> Result<(), Failure> {
    let file = format!("albacore-overload-{}.json", std::process::id());
    let model = std::env::temp_dir().join(file);
    let text = random_model(args.trees as usize);
    std::fs::write(&model, text).map_err(|e| Failure::file(&model, &e))?;
    let measured = measure(args, &model);
    // Also after an error; errors are ignored: it is a temporary file.
    let _ = std::fs::remove_file(&model);
    measured
}

fn measure(args: &BenchOverloadArgs, model: &Path) -> Result<(), Failure> {
    let arguments = [
        "--workers".to_owned(),
        args.workers.to_string(),
        "--model".to_owned(),
        format!("{MODEL}={}", model.display()),
        "--slo".to_owned(),
        format!("{MODEL}={}us", args.objective.as_micros()),
    ];
    print(
        "kind           load                   sent/s   good/s   of peak  refused/s failed/s   late/s  \
         memory at 2 s and at the end, MiB\n",
    )?;
    for kind in args.kinds.iter().filter_map(|name| kind_of(name)) {
        // Each kind has its own server, so that memory of one kind does not affect another.
        let server = LocalServer::start(args.server.as_deref(), &arguments)?;
        let bench = Bench {
            args,
            server: &server,
            kind,
        };
        bench.print_lines(&bench.run_interleaved()?)?;
    }
    Ok(())
}

/// One kind of request to one server.
struct Bench<'a> {
    args: &'a BenchOverloadArgs,
    server: &'a LocalServer,
    kind: RequestKind,
}

/// Figures of a run; rates are per second.
struct Figures {
    sent: f64,
    good: f64,
    /// Ratio of the goodput to that of the peak in the same round.
    of_peak: f64,
    /// Rejected by admission control, with 429 or 503.
    refused: f64,
    /// Failed with another error, or without a response.
    failed: f64,
    late: f64,
    /// Memory of the server after [`MEMORY_SETTLED`] and at the end, MiB.
    memory: [f64; 2],
    /// 99th percentile of the generator's lag.
    lag: Duration,
}

/// A load with its runs.
struct Line {
    name: String,
    shape: Shape,
    connections: usize,
    runs: Vec<Figures>,
}

impl Line {
    fn new(name: String, shape: Shape, connections: usize) -> Self {
        Self {
            name,
            shape,
            connections,
            runs: Vec::new(),
        }
    }

    fn median(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        let mut values: Vec<f64> = self.runs.iter().map(figure).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    }
}

impl Bench<'_> {
    fn run(&self, shape: Shape, connections: usize) -> Result<Figures, Failure> {
        let load = Load {
            requests: self.kind.requests(self.server.http),
            shape,
            connections,
        };
        let driving = std::thread::spawn(move || drive(load));
        std::thread::sleep(MEMORY_SETTLED.min(self.args.length));
        let settled = self.server.memory_mib()?;
        let samples = driving
            .join()
            .map_err(|_| Failure::Failed("the load generator failed".to_owned()))?
            .map_err(|e| Failure::Failed(format!("the load generator: {e}")))?;
        let report = Report::of(&samples, self.args.length, self.args.objective);
        let rate = |requests: usize| requests as f64 / self.args.length.as_secs_f64();
        Ok(Figures {
            sent: rate(report.sent),
            good: report.goodput,
            of_peak: 1.0,
            refused: rate(report.shed + report.unavailable),
            failed: rate(report.failed + report.unanswered),
            late: rate(report.late),
            memory: [settled, self.server.memory_mib()?],
            lag: report.lag_p99,
        })
    }

    /// Connections with the best goodput, among few, and that goodput.
    fn peak(&self) -> Result<(usize, f64), Failure> {
        let closed = || Shape::Closed(self.args.length);
        // The first run is discarded: costs are learned.
        self.run(closed(), PEAK_CONNECTIONS[0])?;
        let mut best = (PEAK_CONNECTIONS[0], 0.0);
        for connections in PEAK_CONNECTIONS {
            let good = self.run(closed(), connections)?.good;
            if good > best.1 {
                best = (connections, good);
            }
        }
        Ok(best)
    }

    /// Runs all loads in alternation; the first one is the peak.
    fn run_interleaved(&self) -> Result<Vec<Line>, Failure> {
        let (connections, peak) = self.peak()?;
        let closed = |connections: usize, name: String| {
            Line::new(name, Shape::Closed(self.args.length), connections)
        };
        let many =
            self.args.connections.iter().map(|&connections| {
                closed(connections as usize, format!("{connections} connections"))
            });
        let rate = (TIMES_PEAK * peak).min(self.args.open_rate_max);
        let open = Line::new(
            format!("open loop, {:.1} peaks", rate / peak.max(1.0)),
            Shape::Open(poisson(rate, self.args.length, 1)),
            self.args.open_connections as usize,
        );
        let mut lines = vec![closed(
            connections,
            format!("peak, {connections} connections"),
        )];
        lines.extend(many.chain([open]));
        for _ in 0..self.args.rounds {
            let mut peak = None;
            for line in &mut lines {
                let mut figures = self.run(line.shape.clone(), line.connections)?;
                figures.of_peak = figures.good / f64::max(*peak.get_or_insert(figures.good), 1.0);
                line.runs.push(figures);
            }
        }
        Ok(lines)
    }

    fn print_lines(&self, lines: &[Line]) -> Result<(), Failure> {
        for line in lines {
            let is_late = line.runs.iter().any(|run| run.lag > LAG_MAX);
            let is_open = matches!(line.shape, Shape::Open(_));
            let note = match is_open && is_late {
                true => "  INVALID: the generator was late",
                false => "",
            };
            print(&format!(
                "{:14} {:20} {:8.0} {:8.0} {:7.0} % {:10.0} {:8.0} {:8.0}  {:.1} {:.1}{note}\n",
                self.kind.name(),
                line.name,
                line.median(|it| it.sent),
                line.median(|it| it.good),
                100.0 * line.median(|it| it.of_peak),
                line.median(|it| it.refused),
                line.median(|it| it.failed),
                line.median(|it| it.late),
                line.median(|it| it.memory[0]),
                line.median(|it| it.memory[1]),
            ))?;
        }
        Ok(())
    }
}
