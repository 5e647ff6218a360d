//! `albacore bench scheduler`: runs only the scheduler, on real threads in real time.
//!
//! Each model has a thread that draws its requests, manages its queue and answers grants; one
//! thread manages the ranks. Two message rings per model are their only shared state. Workers are
//! simulated: they are busy for the time of the profile. The deadline of a request counts from its
//! intended arrival time, so the lag of the generator counts as lateness.

mod ring;
mod threads;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::ring::Ring;
use self::threads::{AssignerThread, Links, ModelThread, QueueCounts};
use albacore_command::{Failure, print_json};

/// The arguments of `albacore bench scheduler`.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchSchedulerArgs {
    /// Requests per second over all models, one run each
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          default_value = "100000,250000,500000,1000000,1500000",
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) rates: Vec<u64>,
    /// Measured duration of each run, in seconds
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Number of models, each with its own thread
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) models: u32,
    /// Number of workers, which are not run
    #[arg(long, value_name = "N", default_value_t = 2048,
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) workers: u32,
}

/// Warm-up of a run.
const WARMUP: Duration = Duration::from_millis(500);

/// Runs each rate and prints one line of JSON per rate.
///
/// # Errors
/// A thread of the scheduler panicked (a bug), or standard output cannot be written.
pub(crate) fn run(args: &BenchSchedulerArgs) -> Result<(), Failure> {
    for &rate in &args.rates {
        let line = run_one(args, rate as f64)?;
        print_json(&line)?;
    }
    Ok(())
}

fn run_one(args: &BenchSchedulerArgs, rate: f64) -> Result<Value, Failure> {
    let links: Vec<Links> = (0..args.models)
        .map(|_| Links {
            to_assigner: Ring::new(),
            to_model: Ring::new(),
        })
        .collect();
    let (is_measured, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let begin = Instant::now();
    let share = rate / f64::from(args.models);
    let (counts, decisions, seconds) = thread::scope(|scope| {
        let models: Vec<_> = links
            .iter()
            .zip(1_u64..)
            .map(|(links, seed)| {
                let (is_measured, is_over) = (&is_measured, &is_over);
                let thread = ModelThread::new(links, share, seed, begin);
                scope.spawn(move || thread.run(is_measured, is_over))
            })
            .collect();
        let assigner = AssignerThread::new(&links, args.workers as usize, begin);
        let assigner = scope.spawn(|| assigner.run(&is_measured, &is_over));
        thread::sleep(WARMUP);
        is_measured.store(true, Ordering::Relaxed);
        let measured = Instant::now();
        thread::sleep(Duration::from_secs(args.seconds));
        let seconds = measured.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        let counts: Result<Vec<QueueCounts>, _> =
            models.into_iter().map(|model| model.join()).collect();
        (counts, assigner.join(), seconds)
    });
    let panicked = |_| Failure::Broken("a thread of the scheduler panicked".to_owned());
    let (counts, decisions) = (counts.map_err(panicked)?, decisions.map_err(panicked)?);
    let all = counts
        .into_iter()
        .fold(QueueCounts::default(), QueueCounts::and);
    let good = all.requests.saturating_sub(all.bad);
    Ok(json!({
        "offered_per_second": rate,
        "taken_in_per_second": (all.requests as f64 / seconds).round(),
        "good_per_second": (good as f64 / seconds).round(),
        "bad_share": all.bad as f64 / all.requests.max(1) as f64,
        "batches_per_second": (all.batches as f64 / seconds).round(),
        "decisions_per_second": (decisions as f64 / seconds).round(),
        "lag_us_p50": all.lag(0.5),
        "lag_us_p99": all.lag(0.99),
        "lag_us_p999": all.lag(0.999),
        "lag_us_max": all.lag(1.0),
    }))
}
