//! `albacore bench deferral`: what deferring gains live, beside what policy `auto` predicts.
//!
//! A server is started under each policy, and the highest rate of one-row SHAP requests within the
//! objective is searched. The prediction is that of the last server, from the costs that it learned
//! under this load.

mod wide_model;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use albacore_bench::{Bench, Found, Spec, highest};
use albacore_command::{Failure, print};
use albacore_load::get;
use serde_json::Value;

use crate::bench_serve::parse_time;

/// Name of the model in requests.
const MODEL: &str = "wide";

/// The name of a policy and the arguments of the server.
const POLICIES: [(&str, &[&str]); 3] = [
    ("eager", &["--policy", "eager"]),
    ("deferred", &["--policy", "deferred"]),
    ("auto", &["--policy", "auto"]),
];

/// The arguments of `albacore bench deferral`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchDeferralArgs {
    /// The program albacore-server [default: beside this program]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Worker processes
    #[arg(long, value_name = "W", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: u32,
    /// The objective of the server; later answers are bad
    #[arg(long, value_name = "TIME", default_value = "25ms", value_parser = parse_time)]
    objective: Duration,
    /// How long each run is
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    length: Duration,
}

/// A server that ends when it is dropped.
struct Server {
    child: Child,
    http: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its workers end with it. It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(args: &BenchDeferralArgs, policy: &[&str], model: &Path) -> Result<Self, Failure> {
        let program = match &args.server {
            Some(program) => program.clone(),
            None => std::env::current_exe()
                .map_err(|e| Failure::Failed(format!("this program: {e}")))?
                .with_file_name("albacore-server"),
        };
        let failed = |what: &str| Failure::Failed(format!("{}: {what}", program.display()));
        let mut child = Command::new(&program)
            .args(["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"])
            .args(["--workers", &args.workers.to_string()])
            .arg("--model")
            .arg(format!("{MODEL}={}", model.display()))
            .args(["--slo", &format!("{}us", args.objective.as_micros())])
            .args(policy)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::file(&program, &e))?;
        let output = child.stdout.take().ok_or_else(|| failed("has no output"))?;
        let mut server = Self {
            child,
            http: SocketAddr::from(([127, 0, 0, 1], 0)),
        };
        // The server goes on without a reader of its events.
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            match event["event"].as_str() {
                Some("listening") => {
                    let http = event["http"].as_str().and_then(|text| text.parse().ok());
                    server.http = http.ok_or_else(|| failed("reports no address"))?;
                }
                Some("ready") => return Ok(server),
                _ => {}
            }
        }
        Err(failed("ended before it was ready"))
    }

    fn bench(&self, args: &BenchDeferralArgs) -> Result<Bench, Failure> {
        Ok(Bench::new(Spec {
            url: format!("http://{}", self.http),
            models: vec![MODEL.to_owned()],
            rates: Vec::new(),
            is_search: true,
            length: args.length,
            objective: args.objective,
            percentile: 99.0,
            arrivals: "poisson".to_owned(),
            mix: "contribs:1".to_owned(),
            features: None,
            input: None,
            is_binary: true,
            connections: 256,
            seed: 1,
            pids: Vec::new(),
        })?)
    }

    /// The model's part of the server's state.
    fn model_state(&self) -> Result<Value, Failure> {
        let path = "/albacore/v1/state";
        let (_, body) =
            get(self.http, path).map_err(|e| Failure::Failed(format!("{path}: {e}")))?;
        let state: Value = serde_json::from_slice(&body).unwrap_or_default();
        Ok(state["models"][0].clone())
    }
}

/// Searches the goodput of each policy; prints.
///
/// # Errors
/// The server does not start, or does not answer.
pub(crate) fn run(args: &BenchDeferralArgs) -> Result<(), Failure> {
    let model = std::env::temp_dir().join(format!("albacore-wide-{}.json", std::process::id()));
    std::fs::write(&model, wide_model::wide_model()).map_err(|e| Failure::file(&model, &e))?;
    let measured = measure(args, &model);
    // Also after a failure; the folder is one of temporary files.
    let _ = std::fs::remove_file(&model);
    measured
}

fn measure(args: &BenchDeferralArgs, model: &Path) -> Result<(), Failure> {
    let mut goodputs = Vec::new();
    for (name, policy) in POLICIES {
        let server = Server::start(args, policy, model)?;
        let bench = server.bench(args)?;
        bench.warm()?;
        let found: Found = highest(&bench, &mut |_| Ok::<(), Failure>(()))?;
        let state = server.model_state()?;
        let cost = &state["latency"][0];
        print(&format!(
            "{name:9} {:7.0} requests/s in time, alpha {:.0} us, beta {:.0} us\n",
            found.goodput,
            cost["alpha_us"].as_f64().unwrap_or(f64::NAN),
            cost["beta_us"].as_f64().unwrap_or(f64::NAN),
        ))?;
        if let Some(choice) = state["batching"].get(0) {
            let text = choice["explanation"].as_str().unwrap_or_default();
            print(&format!("          {text}\n"))?;
        }
        goodputs.push((found.goodput, state));
    }
    let [(eager, _), (deferred, _), (auto, state)] = &goodputs[..] else {
        return Ok(());
    };
    let percent = |of: f64| (of / eager - 1.0) * 100.0;
    let predicted = &state["batching"][0]["goodput_gain_ratio"];
    print(&format!(
        "live gain of deferring {:.1} %, of auto {:.1} %; predicted {:.1} % (a bound for even arrivals)\n",
        percent(*deferred),
        percent(*auto),
        predicted.as_f64().unwrap_or(f64::NAN) * 100.0,
    ))
}
