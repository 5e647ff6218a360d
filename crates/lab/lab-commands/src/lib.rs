//! The subcommands of `albacore` that measure and simulate, which no server or controller needs:
//! `simulate`, `partition`, `bench deferral`, `bench engine`, `bench isolation`, `bench serve`,
//! `bench scheduler`, `bench solver`. One module each: `Args` are its options, `run` executes it.
//! `albacore` starts the program `albacore-lab` for them.
#![forbid(unsafe_code)]

mod bench_deferral;
mod bench_engine;
mod bench_isolation;
mod bench_scheduler;
mod bench_serve;
mod bench_solver;
mod local_server;
mod partition;
mod simulate;

use std::ffi::OsString;
use std::process::ExitCode;

use albacore_command::{Failure, report_refused_arguments};
use clap::{Parser, Subcommand};

use crate::bench_deferral::BenchDeferralArgs;
use crate::bench_isolation::BenchIsolationArgs;
use crate::bench_scheduler::BenchSchedulerArgs;
use crate::bench_serve::BenchServeArgs;
use crate::bench_solver::BenchSolverArgs;
use crate::partition::PartitionArgs;
use crate::simulate::SimulateArgs;

/// Albacore's simulator, load generators and benchmarks.
#[derive(Debug, Parser)]
// The name of the program that users call, for messages.
#[command(
    name = "albacore",
    bin_name = "albacore",
    version,
    max_term_width = 100
)]
struct Args {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Measure parts of Albacore beside others
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Decide which models share a sub-cluster: balanced rate and memory, few changes
    Partition(PartitionArgs),
    /// Simulate batch scheduling: goodput, late requests and idle workers of a scenario
    Simulate(SimulateArgs),
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Measure what deferring batches gains live, beside what policy auto predicts
    ///
    /// Starts albacore-server under the policies eager, deferred and auto with a model of 1,000
    /// trees and 100,000 leaves, and searches the highest rate of one-row SHAP requests within the
    /// objective. Needs a machine with cpus for the workers, the server and the generator.
    #[command(verbatim_doc_comment)]
    Deferral(BenchDeferralArgs),
    /// Measure the tree engine: orders on standard input, answers on standard output
    ///
    /// `load MODEL DATA.f32 COLS THREADS` answers `ok`; DATA is raw little-endian float32, NaN is
    /// missing. `check KIND N FILE` writes the outputs of the first N rows as raw float32 and
    /// answers `ok`. `run KIND BATCH TARGET_MS MIN_CALLS` answers a line of JSON: nanoseconds a
    /// row. KIND is predict, contribs or interactions. What cannot be done is answered by `error`
    /// and the reason.
    #[command(verbatim_doc_comment)]
    Engine {
        /// Have one kernel do all [default: what is fastest here]
        #[arg(long, value_name = "NAME")]
        kernel: Option<String>,
    },
    /// Measure what a flood of one model costs another that asks for little
    ///
    /// Single rows at times drawn before the run beside clients that resend at once.
    Isolation(BenchIsolationArgs),
    /// Run the batch scheduler alone on real threads, at rising load: a line of JSON for each rate
    Scheduler(BenchSchedulerArgs),
    /// Load a server of the Open Inference Protocol v2, ours or any other, and tell what it
    /// answers in time
    ///
    /// Open loop: arrivals are drawn before the run, latencies count from the intended times.
    /// Late, shed and failed requests are distinguished. A run in which the generator fell behind
    /// its schedule fails.
    #[command(verbatim_doc_comment)]
    Serve(Box<BenchServeArgs>),
    /// Solve a placement as `albacore plan` does, and by the integer program of the article
    Solver(BenchSolverArgs),
}

/// Runs the command line `arguments`, the program's name first. Exit codes: 0 done, 1 failed, 64
/// bad usage, 70 broken invariant.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let done = match Args::try_parse_from(arguments) {
        Ok(args) => dispatch(&args.command),
        Err(refused) => return report_refused_arguments(&refused),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn dispatch(command: &LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::Bench(BenchCommand::Deferral(args)) => bench_deferral::run(args),
        LabCommand::Bench(BenchCommand::Engine { kernel }) => bench_engine::run(kernel.as_deref()),
        LabCommand::Bench(BenchCommand::Isolation(args)) => bench_isolation::run(args),
        LabCommand::Bench(BenchCommand::Scheduler(args)) => bench_scheduler::run(args),
        LabCommand::Bench(BenchCommand::Serve(args)) => bench_serve::run(args),
        LabCommand::Bench(BenchCommand::Solver(args)) => bench_solver::run(args),
        LabCommand::Partition(args) => partition::run(args),
        LabCommand::Simulate(args) => simulate::run(args),
    }
}
