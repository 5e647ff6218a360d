//! `albacore bench front`: compares the front end with nginx.
//!
//! One row of a small model is requested over HTTP and gRPC; nginx sends a static reply of the same
//! size. Both get the same requests from the same generator, in alternation, on the same cpus.

mod generators;
mod nginx;

use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_bench::{FEATURES, random_model};
use albacore_command::{Failure, print};
use albacore_load::{InferRequest, Request, WireFormat};

use crate::bench_serve::parse_time;
use crate::local_server::LocalServer;
use generators::{Measured, Target, reply_bytes, run_h2load, run_wrk};
use nginx::{Nginx, StaticReplies};

/// Name of the model in requests.
const MODEL: &str = "small";

/// A row takes about a microsecond, so the front end dominates.
const TREES: usize = 20;

/// The arguments of `albacore bench front`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchFrontArgs {
    /// Path of albacore-server [default: next to this program]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Number of worker processes
    #[arg(long, value_name = "W", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// Numbers of connections of the generator, one line each
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 16, 64],
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    connections: Vec<u32>,
    /// Number of runs of each server; the median is reported
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Duration of each run, in whole seconds as required by wrk and h2load
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_whole_seconds)]
    length: Duration,
}

fn parse_whole_seconds(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        time if time.subsec_nanos() == 0 => Ok(time),
        _ => Err("expected whole seconds, for example 2s".to_owned()),
    }
}

/// Protocol of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// JSON over HTTP/1.1, by wrk.
    Http,
    /// HTTP/2 without TLS, one request at a time per connection, by h2load.
    Grpc,
}

impl Protocol {
    const ALL: [Self; 2] = [Self::Http, Self::Grpc];

    const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
        }
    }

    /// A request with one row.
    fn request(self, server: &LocalServer) -> Request {
        let (wire, address) = match self {
            Self::Http => (WireFormat::Json, server.http),
            Self::Grpc => (WireFormat::Grpc, server.grpc),
        };
        let values = vec![0.5; FEATURES as usize];
        let call = InferRequest {
            model: MODEL,
            input: "input",
            output: None,
            values: &values,
            features: values.len(),
        };
        call.request(wire, address)
    }

    fn run(self, target: &Target, connections: u32, length: Duration) -> Result<Measured, Failure> {
        match self {
            Self::Http => run_wrk(target, connections, length),
            Self::Grpc => run_h2load(target, connections, length),
        }
    }
}

/// Measures both protocols and prints the results.
///
/// # Errors
/// nginx, wrk, h2load or the server cannot be started, or does not respond.
pub(crate) fn run(args: &BenchFrontArgs) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("albacore-front-{}", std::process::id()));
    std::fs::create_dir(&folder).map_err(|e| Failure::file(&folder, &e))?;
    let measured = measure(args, &folder);
    // Also after an error; errors are ignored: it is a temporary folder.
    let _ = std::fs::remove_dir_all(&folder);
    measured
}

fn measure(args: &BenchFrontArgs, folder: &Path) -> Result<(), Failure> {
    let model = folder.join("model.json");
    std::fs::write(&model, random_model(TREES)).map_err(|e| Failure::file(&model, &e))?;
    let arguments = [
        "--workers".to_owned(),
        args.workers.to_string(),
        "--model".to_owned(),
        format!("{MODEL}={}", model.display()),
    ];
    let server = LocalServer::start(args.server.as_deref(), &arguments)?;
    let own = |protocol: Protocol| {
        let folder = folder.join(protocol.name());
        Target::new(&folder, protocol.request(&server))
    };
    let (http, grpc) = (own(Protocol::Http)?, own(Protocol::Grpc)?);
    let nginx = Nginx::start(
        folder,
        StaticReplies {
            http_bytes: reply_bytes(&http, true)?,
            grpc_bytes: reply_bytes(&grpc, false)?,
        },
    )?;
    print(
        "          connections   requests/s      p50 us   nginx: /s      p50 us   rate/nginx  p50/nginx\n",
    )?;
    for protocol in Protocol::ALL {
        let (own, beside) = match protocol {
            Protocol::Http => (&http, http.at(nginx.http)),
            Protocol::Grpc => (&grpc, grpc.at(nginx.grpc)),
        };
        for &connections in &args.connections {
            let mut pairs = Vec::new();
            for _ in 0..args.runs {
                let ours = protocol.run(own, connections, args.length)?;
                pairs.push((ours, protocol.run(&beside, connections, args.length)?));
            }
            print_line(protocol, connections, &pairs)?;
        }
    }
    Ok(())
}

fn print_line(
    protocol: Protocol,
    connections: u32,
    pairs: &[(Measured, Measured)],
) -> Result<(), Failure> {
    let median = |value: &dyn Fn(&(Measured, Measured)) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    print(&format!(
        "{:8} {connections:12} {:12.0} {:11.0} {:11.0} {:11.0} {:12.2} {:10.2}\n",
        protocol.name(),
        median(&|(ours, _)| ours.rate),
        median(&|(ours, _)| ours.p50_micros),
        median(&|(_, nginx)| nginx.rate),
        median(&|(_, nginx)| nginx.p50_micros),
        median(&|(ours, nginx)| ours.rate / nginx.rate),
        median(&|(ours, nginx)| ours.p50_micros / nginx.p50_micros),
    ))
}
