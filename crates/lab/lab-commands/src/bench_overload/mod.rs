//! `albacore bench overload`: what a server still answers in time where clients ask for far more.
//!
//! For each kind of request the peak is the best goodput of a closed loop with few connections.
//! Beside it stand closed loops with many connections, whose clients resend at once when they are
//! refused, and an open loop at ten times the peak or at what the generator can send. The server
//! shares its cpus with the generator, so the figures are lower bounds.

mod kinds;

use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_bench::random_model;
use albacore_command::{Failure, print};
use albacore_load::{Load, Sample, Shape, drive, percentile, poisson, summarize};

use crate::bench_serve::parse_time;
use crate::local_server::LocalServer;
use kinds::{RequestKind, kind_of};

const MODEL: &str = "model";

/// Connections of the closed loops among which the peak is searched.
const PEAK_CONNECTIONS: [usize; 5] = [2, 4, 8, 16, 32];

/// Connections of the open loop.
const OPEN_CONNECTIONS: usize = 1024;

/// The overload that is asked for.
const TIMES_PEAK: f64 = 10.0;

/// From when on memory should not grow.
const MEMORY_SETTLED: Duration = Duration::from_secs(2);

/// A generator that sends one request in a hundred later than this did not send what it should.
const LAG_MAX: Duration = Duration::from_millis(2);

/// The arguments of `albacore bench overload`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchOverloadArgs {
    /// The program albacore-server [default: beside this program]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Worker processes
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Trees of the model, of depth 6
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    trees: u32,
    /// The objective of every request
    #[arg(long, value_name = "TIME", default_value = "25ms", value_parser = parse_time)]
    objective: Duration,
    /// Connections of the closed loops, one run each
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [64, 1024],
          value_parser = clap::value_parser!(u32).range(1..=65_536))]
    connections: Vec<u32>,
    /// Most requests per second that the generator sends in an open loop
    #[arg(long, value_name = "RATE", default_value_t = 20_000.0)]
    open_rate_max: f64,
    /// What is asked for, one line each: predict1, predict10, contribs1, contribs10, interactions1
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',',
          default_values_t = RequestKind::ALL.map(|kind| kind.name().to_owned()), value_parser = parse_kind)]
    kinds: Vec<String>,
    /// How long each run is
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time)]
    length: Duration,
}

fn parse_kind(text: &str) -> Result<String, String> {
    match kind_of(text) {
        Some(kind) => Ok(kind.name().to_owned()),
        None => {
            let names = RequestKind::ALL.map(RequestKind::name).join(", ");
            Err(format!("{text} is no kind: name one of {names}"))
        }
    }
}

/// Loads a server with each kind of request; prints.
///
/// # Errors
/// The server does not start, or the generator fails.
pub(crate) fn run(args: &BenchOverloadArgs) -> Result<(), Failure> {
    let file = format!("albacore-overload-{}.json", std::process::id());
    let model = std::env::temp_dir().join(file);
    let text = random_model(args.trees as usize);
    std::fs::write(&model, text).map_err(|e| Failure::file(&model, &e))?;
    let measured = measure(args, &model);
    // Also after a failure; the folder is one of temporary files.
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
        "kind           load                   sent/s   good/s   of peak  refused/s   late/s  \
         memory at 2 s and at the end, MiB\n",
    )?;
    for kind in args.kinds.iter().filter_map(|name| kind_of(name)) {
        // Each kind has a server of its own: memory of one is none of another.
        let server = LocalServer::start(args.server.as_deref(), &arguments)?;
        let bench = Bench {
            args,
            server: &server,
            kind,
        };
        let peak = bench.peak()?;
        for &connections in &args.connections {
            let name = format!("{connections} connections");
            let shape = Shape::Closed(args.length);
            let run = bench.run(shape, connections as usize)?;
            bench.print_line(&name, &run, peak, "")?;
        }
        let rate = (TIMES_PEAK * peak).min(args.open_rate_max);
        let times = poisson(rate, args.length, 1);
        let run = bench.run(Shape::Open(times), OPEN_CONNECTIONS)?;
        let note = match run.lag() > LAG_MAX {
            true => "  INVALID: the generator was late",
            false => "",
        };
        let name = format!("open loop, {:.1} peaks", rate / peak.max(1.0));
        bench.print_line(&name, &run, peak, note)?;
    }
    Ok(())
}

/// One kind of request to one server.
struct Bench<'a> {
    args: &'a BenchOverloadArgs,
    server: &'a LocalServer,
    kind: RequestKind,
}

/// What one run gave.
struct Run {
    samples: Vec<Sample>,
    /// Memory of the server after [`MEMORY_SETTLED`] and at the end, MiB.
    memory: [f64; 2],
}

impl Run {
    /// By how much the generator sent one request in a hundred too late.
    fn lag(&self) -> Duration {
        let mut lags: Vec<Duration> = self.samples.iter().map(|sample| sample.lag).collect();
        lags.sort_unstable();
        percentile(&lags, 0.99)
    }
}

impl Bench<'_> {
    fn run(&self, shape: Shape, connections: usize) -> Result<Run, Failure> {
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
        Ok(Run {
            samples,
            memory: [settled, self.server.memory_mib()?],
        })
    }

    fn goodput(&self, run: &Run) -> f64 {
        summarize(&run.samples, self.args.length, self.args.objective).goodput
    }

    /// The best goodput of few clients; prints it.
    fn peak(&self) -> Result<f64, Failure> {
        // The first run is slow: costs are learned.
        self.run(Shape::Closed(self.args.length), PEAK_CONNECTIONS[0])?;
        let mut best: Option<(f64, usize, Run)> = None;
        for connections in PEAK_CONNECTIONS {
            let run = self.run(Shape::Closed(self.args.length), connections)?;
            let goodput = self.goodput(&run);
            if best.as_ref().is_none_or(|(known, ..)| goodput > *known) {
                best = Some((goodput, connections, run));
            }
        }
        let Some((peak, connections, run)) = best else {
            return Ok(0.0);
        };
        self.print_line(&format!("peak, {connections} connections"), &run, peak, "")?;
        Ok(peak)
    }

    fn print_line(&self, name: &str, run: &Run, peak: f64, note: &str) -> Result<(), Failure> {
        let rate = |count: usize| count as f64 / self.args.length.as_secs_f64();
        let count = |is: &dyn Fn(&Sample) -> bool| run.samples.iter().filter(|it| is(it)).count();
        let is_late = |it: &Sample| it.status == 200 && it.latency > self.args.objective;
        let goodput = self.goodput(run);
        let [settled, end] = run.memory;
        print(&format!(
            "{:14} {name:20} {:8.0} {goodput:8.0} {:7.0} % {:10.0} {:8.0}  {settled:.1} {end:.1}{note}\n",
            self.kind.name(),
            rate(run.samples.len()),
            100.0 * goodput / peak.max(1.0),
            rate(count(&|it| it.status != 200)),
            rate(count(&is_late)),
        ))
    }
}
