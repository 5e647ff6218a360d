//! `albacore bench deferral`: what deferring gains live, beside what policy `auto` predicts.
//!
//! A server is started under each policy, and the highest rate of one-row SHAP requests within the
//! objective is searched. The prediction is that of the last server, from the costs that it learned
//! under this load.

use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_bench::{Bench, Found, Spec, highest};
use albacore_command::{Failure, print};

use crate::bench_serve::parse_time;
use crate::local_server::{LocalServer, random_model};

/// Name of the model in requests.
const MODEL: &str = "wide";

/// More than a core's caches hold: there batching pays.
const TREES: usize = 1_000;

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

fn start(args: &BenchDeferralArgs, policy: &[&str], model: &Path) -> Result<LocalServer, Failure> {
    let mut arguments = vec![
        "--workers".to_owned(),
        args.workers.to_string(),
        "--model".to_owned(),
        format!("{MODEL}={}", model.display()),
        "--slo".to_owned(),
        format!("{}us", args.objective.as_micros()),
    ];
    arguments.extend(policy.iter().map(|&argument| argument.to_owned()));
    LocalServer::start(args.server.as_deref(), &arguments)
}

fn bench(server: &LocalServer, args: &BenchDeferralArgs) -> Result<Bench, Failure> {
    Ok(Bench::new(Spec {
        url: format!("http://{}", server.http),
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

/// Searches the goodput of each policy; prints.
///
/// # Errors
/// The server does not start, or does not answer.
pub(crate) fn run(args: &BenchDeferralArgs) -> Result<(), Failure> {
    let model = std::env::temp_dir().join(format!("albacore-wide-{}.json", std::process::id()));
    std::fs::write(&model, random_model(TREES)).map_err(|e| Failure::file(&model, &e))?;
    let measured = measure(args, &model);
    // Also after a failure; the folder is one of temporary files.
    let _ = std::fs::remove_file(&model);
    measured
}

fn measure(args: &BenchDeferralArgs, model: &Path) -> Result<(), Failure> {
    let mut goodputs = Vec::new();
    for (name, policy) in POLICIES {
        let server = start(args, policy, model)?;
        let bench = bench(&server, args)?;
        bench.warm()?;
        let found: Found = highest(&bench, &mut |_| Ok::<(), Failure>(()))?;
        let state = server.model_state(0)?;
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
