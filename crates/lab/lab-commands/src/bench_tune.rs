//! `albacore bench tune`: compares `albacore tune` with the measurement of all its candidates.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use albacore_bench::median;
use albacore_command::{Failure, print};
use albacore_topology::CpuSet;
use albacore_tune::{
    Configuration, Measurement, Outcome, Place, Sustained, TuneOptions, TuneRequest, measure, tune,
    write_results,
};

use crate::tune_command::failure;

/// Windows per configuration in the final comparison.
const COMPARED_WINDOWS: usize = 24;

/// Time of each run of `albacore tune`: its default.
const TIME: Duration = Duration::from_secs(90);

/// The arguments of `albacore bench tune`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchTuneArgs {
    /// InferenceDeployment file
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Request mix, as in albacore tune
    #[arg(long, value_name = "LIST", default_value = "1")]
    mix: String,
    /// Number of runs of albacore tune, each with a different seed
    #[arg(long, value_name = "N", default_value_t = 10)]
    repeat: u64,
    /// Number of windows of 0.4 s for each candidate; 0: candidates are not measured one by one
    #[arg(long, value_name = "N", default_value_t = 12)]
    windows: usize,
    /// CPUs for the servers, as in albacore tune
    #[arg(long, value_name = "LIST")]
    cpus: Option<CpuSet>,
    /// Folder for the results
    #[arg(long, value_name = "FOLDER", default_value = "bench-tune")]
    output: PathBuf,
}

/// Prints a line per run, the best of all candidates, and the sustained rates of the choices and of
/// that one, measured in alternation.
///
/// # Errors
/// As `albacore tune`.
pub(crate) fn run(args: &BenchTuneArgs) -> Result<(), Failure> {
    let request = |name: &str, seed: u64, time: Duration| TuneRequest {
        place: Place::Machine,
        file: args.file.clone(),
        folder: args.output.join(name),
        cpus: args.cpus.clone(),
        options: TuneOptions {
            latency: None,
            percentile: None,
            mix: args.mix.clone(),
            arrivals: "poisson".to_owned(),
            rate: None,
            time,
            seed,
        },
    };
    let mut outcomes = Vec::new();
    for seed in 1..=args.repeat {
        let request = request(&format!("seed-{seed}"), seed, TIME);
        let found = tune(&request, &mut |_| {}).map_err(failure)?;
        write_results(&found, &request.folder).map_err(failure)?;
        print(&line(seed, &found))?;
        outcomes.push(found);
    }
    print(&summary(&outcomes))?;
    let request = request("all", 1, Duration::MAX);
    let best = match args.windows {
        0 => None,
        windows => Some(exhaustive_best(&request, windows, &outcomes)?),
    };
    let chosen: Vec<&Configuration> = outcomes.iter().map(|of| &of.chosen).collect();
    print(&side_by_side(&request, &chosen, best)?)
}

/// The best of all candidates, measured sequentially.
fn exhaustive_best(
    request: &TuneRequest,
    windows: usize,
    outcomes: &[Outcome],
) -> Result<Configuration, Failure> {
    let begin = Instant::now();
    let mut on_progress = |line: &str| eprintln!("{line}");
    let all = measure(request, &Measurement::All, windows, &mut on_progress).map_err(failure)?;
    let seconds = begin.elapsed().as_secs_f64();
    let file = request.folder.join("candidates.json");
    let text = serde_json::to_string_pretty(&all).map_err(|e| e.to_string());
    let written = text.and_then(|text| std::fs::write(&file, text).map_err(|e| e.to_string()));
    written.map_err(|e| Failure::Failed(format!("{}: {e}", file.display())))?;
    let highest = all.iter().max_by(|a, b| a.goodput.total_cmp(&b.goodput));
    let best = highest.map(|of| of.configuration.clone());
    let best = best.ok_or_else(|| Failure::Failed("there is no candidate".to_owned()))?;
    let share = 100.0 * median(outcomes.iter().map(|of| of.seconds)) / seconds;
    let (count, name) = (all.len(), best.name());
    print(&format!(
        "all {count} candidates: {seconds:.0} s; best: {name}; a run of tune takes {share:.1} % of that time\n"
    ))?;
    Ok(best)
}

/// Compares the choices of runs by their sustained rates, measured in alternation window by window,
/// because runs are minutes apart and the machine drifts in the meantime.
fn side_by_side(
    request: &TuneRequest,
    chosen: &[&Configuration],
    best: Option<Configuration>,
) -> Result<String, Failure> {
    let mut distinct: Vec<Configuration> = best.iter().cloned().collect();
    for &of in chosen {
        if !distinct.contains(of) {
            distinct.push(of.clone());
        }
    }
    if let [only] = distinct.as_slice() {
        return Ok(format!("all are {}\n", only.name()));
    }
    let measurement = Measurement::Beside(distinct);
    let all = measure(request, &measurement, COMPARED_WINDOWS, &mut |_| {}).map_err(failure)?;
    let rate_of = |of: &Configuration| {
        let mut all = all.iter();
        let found = all.find(|sustained| sustained.configuration == *of);
        found.map_or(f64::NAN, |sustained| sustained.goodput)
    };
    let rates: Vec<f64> = chosen.iter().map(|of| rate_of(of)).collect();
    let middle = median(rates.iter().copied());
    let apart = rates.iter().map(|rate| (rate / middle - 1.0).abs() * 100.0);
    let mut text = all.iter().map(of_all).collect::<String>();
    text += &format!(
        "side by side the choices are at most {:.1} % apart from their median\n",
        apart.fold(0.0, f64::max)
    );
    if let Some(best) = best {
        let percent = 100.0 * middle / rate_of(&best);
        text += &format!("their median has {percent:.1} % of the best of all\n");
    }
    Ok(text)
}

fn of_all(of: &Sustained) -> String {
    let [low, high] = of.quartiles;
    let (name, rate) = (of.configuration.name(), of.goodput);
    format!("{name}: {rate:.0} requests/s ({low:.0} to {high:.0})\n")
}

/// Sustained rate of the configuration chosen in a run.
fn goodput(outcome: &Outcome) -> f64 {
    outcome.sustained.first().map_or(0.0, |of| of.goodput)
}

fn line(seed: u64, of: &Outcome) -> String {
    let error = of.prediction_error.unwrap_or_default() * 100.0;
    format!(
        "seed {seed}: {}: {:.0} requests/s in {:.0} s, {} rounds, decided: {}, predictions off by {error:.1} %\n",
        of.chosen.name(),
        goodput(of),
        of.seconds,
        of.rounds,
        of.is_decided
    )
}

fn summary(outcomes: &[Outcome]) -> String {
    let rates = || outcomes.iter().map(goodput);
    let (low, high) = rates().fold((f64::MAX, 0.0_f64), |(low, high), rate| {
        (low.min(rate), high.max(rate))
    });
    let middle = median(rates());
    let apart = rates().map(|rate| (rate / middle - 1.0).abs() * 100.0);
    let error = median(outcomes.iter().filter_map(|of| of.prediction_error)) * 100.0;
    format!(
        "{} runs: {middle:.0} requests/s in the median, {low:.0} to {high:.0}, at most {:.1} % apart from it; predictions \
         off by {error:.1} % in the median\n",
        outcomes.len(),
        apart.fold(0.0, f64::max)
    )
}
