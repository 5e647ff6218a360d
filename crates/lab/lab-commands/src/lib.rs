//! The subcommands of `albacore` for measurement and simulation, which no server or controller
//! needs: `simulate`, `partition`, `experiment`, `tune` and `bench`. One module each: `Args` are
//! its options, `run` executes it. `albacore` starts the program `albacore-lab` for them.
#![forbid(unsafe_code)]

mod bench_command;
mod bench_deferral;
mod bench_engine;
mod bench_front;
mod bench_isolation;
mod bench_overload;
mod bench_routing;
mod bench_scheduler;
mod bench_serve;
mod bench_solver;
mod bench_tune;
mod experiment_command;
mod laboratory_job_command;
mod local_server;
mod partition;
mod simulate;
mod tune_command;

use std::ffi::OsString;
use std::process::ExitCode;

use albacore_command::{Failure, report_refused_arguments};
use clap::{Parser, Subcommand};

use crate::bench_command::BenchCommand;
use crate::experiment_command::ExperimentArgs;
use crate::laboratory_job_command::LaboratoryJobCommand;
use crate::partition::PartitionArgs;
use crate::simulate::SimulateArgs;
use crate::tune_command::TuneArgs;

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
    /// Benchmark parts of Albacore against alternatives
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Compare placement policies over a grid of workers, threads, models and requests
    Experiment(ExperimentArgs),
    #[command(subcommand, hide = true)]
    LaboratoryJob(LaboratoryJobCommand),
    /// Assign models to sub-clusters: balanced rate and memory, few changes
    Partition(PartitionArgs),
    /// Simulate batch scheduling: goodput, late requests and idle workers of a scenario
    Simulate(SimulateArgs),
    /// Find workers, threads, placement and batching for a latency objective, by measurement
    Tune(TuneArgs),
}

/// Runs the command line `arguments`, which starts with the program's name. Exit codes: 0 success,
/// 1 failure, 64 invalid usage, 70 violated invariant.
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
        LabCommand::Bench(command) => command.run(),
        LabCommand::Experiment(args) => experiment_command::run(args),
        LabCommand::LaboratoryJob(command) => command.run(),
        LabCommand::Partition(args) => partition::run(args),
        LabCommand::Simulate(args) => simulate::run(args),
        LabCommand::Tune(args) => tune_command::run(args),
    }
}
