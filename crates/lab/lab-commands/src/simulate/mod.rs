//! `albacore simulate`: simulates a scenario and prints figures, traces or charts.

mod args;
mod cluster;
mod compare;
mod day;
mod example;
mod progress;
mod timeline;

use std::fs;
use std::path::Path;

use albacore_command::{Failure, print, print_json};
use albacore_simulator::{
    Figures, Scenario, ScenarioError, Source, Watcher, goodput, run_watched, trace,
};
use serde_json::json;

use self::args::SimulateOutput;
use self::progress::Progress;

pub(crate) use self::args::SimulateArgs;

/// Maximum size of a scenario or of a file that it references: enough for 50 million arrivals.
const FILE_BYTES_MAX: u64 = 2 << 30;

/// Reads and simulates the scenario, and prints the result.
///
/// # Errors
/// Conflicting options, or a scenario that is rejected with line and key.
pub(crate) fn run(args: &SimulateArgs) -> Result<(), Failure> {
    let output = args.output;
    if args.is_example {
        return example::run(output.unwrap_or(SimulateOutput::Text));
    }
    let scenario = read(args)?;
    match output {
        Some(SimulateOutput::Text) if !args.is_cluster => {
            let what = "--output text is only supported with --example and --cluster";
            return Err(Failure::Usage(what.to_owned()));
        }
        Some(SimulateOutput::Svg) if !args.is_compare && !args.is_day => {
            let what = "--output svg is only supported with --compare, --day and --example";
            return Err(Failure::Usage(what.to_owned()));
        }
        _ => {}
    }
    if args.is_trace {
        return print(&trace(&scenario));
    }
    let is_drawn = matches!(scenario.source, Source::Drawn { .. });
    if !is_drawn && (args.is_goodput || args.is_compare || args.is_day || args.is_cluster) {
        let what = "a list of arrivals has one rate: --goodput, --compare, --day and --cluster \
                    need arrivals.process poisson, gamma or uniform";
        return Err(Failure::Usage(what.to_owned()));
    }
    if args.is_cluster {
        let is_text = output == Some(SimulateOutput::Text);
        return cluster::run(&scenario, &args.cluster, args.seeds, is_text);
    }
    let is_picture = output == Some(SimulateOutput::Svg);
    if args.is_day {
        return day::run(&scenario, args.day_seconds, is_picture);
    }
    if args.is_compare {
        return compare::run(&scenario, &args.policies, is_picture);
    }
    let value = match args.is_goodput {
        true => find_goodput(&scenario, args.seeds),
        false => json_of(&run_once(&scenario)),
    };
    print_json(&value)
}

fn find_goodput(scenario: &Scenario, seeds: u32) -> serde_json::Value {
    let mut progress = Progress::new();
    let found: Vec<f64> = (0..u64::from(seeds))
        .map(|n| {
            let seed = scenario.seed + n;
            let scenario = Scenario {
                seed,
                ..scenario.clone()
            };
            goodput(&scenario, &mut |requests| progress.add(requests))
        })
        .collect();
    let mean = found.iter().sum::<f64>() / found.len() as f64;
    json!({ "goodput": round(mean, 1), "seeds": found.iter().map(|g| round(*g, 1)).collect::<Vec<_>>() })
}

/// Displays the progress of a run.
struct ProgressWatcher(Progress, u64);

impl Watcher for ProgressWatcher {
    fn should_continue(&mut self, arrived: u64, of: u64, _bad: &[u64]) -> bool {
        self.0.set_total(of);
        self.0.add(arrived - self.1);
        self.1 = arrived;
        true
    }
}

fn run_once(scenario: &Scenario) -> Figures {
    run_watched(scenario, &mut ProgressWatcher(Progress::new(), 0))
}

fn json_of(figures: &Figures) -> serde_json::Value {
    let ms = |nanos: albacore_batching::Nanos| round(nanos.0 as f64 / 1e6, 3);
    json!({
        "offered": figures.offered,
        "bad": figures.bad,
        "bad_rate": round(figures.bad_rate, 6),
        "worst_model_bad_rate": round(figures.worst_model_bad_rate, 6),
        "idle_share": round(figures.idle_share, 6),
        "workers_used": figures.workers_used,
        "batch_median": figures.batch_median,
        "batch_mean": round(figures.batch_mean, 3),
        "queue_p50_ms": ms(figures.queue_p50),
        "queue_p99_ms": ms(figures.queue_p99),
        "good_per_second": round(figures.good_per_second, 1),
    })
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

fn read(args: &SimulateArgs) -> Result<Scenario, Failure> {
    let path = args.file.as_deref().unwrap_or(Path::new(""));
    let text = read_text(path).map_err(|e| Failure::Usage(format!("{}: {e}", path.display())))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let read_file = |name: &str| read_text(&folder.join(name));
    Scenario::read(&text, &args.sets, &read_file).map_err(|error| {
        let file = match &error {
            ScenarioError::Scenario(_) => format!("{}: ", path.display()),
            ScenarioError::File { .. } => String::new(),
        };
        Failure::Usage(format!("{file}{error}"))
    })
}

fn read_text(path: &Path) -> Result<String, String> {
    let length = fs::metadata(path).map_err(|e| e.to_string())?.len();
    if length > FILE_BYTES_MAX {
        return Err(format!(
            "the file has {length} bytes, more than {FILE_BYTES_MAX}"
        ));
    }
    fs::read_to_string(path).map_err(|e| e.to_string())
}
