//! The `albacore` command: shows machines, plans, predicts, serves. Each subcommand is one module.
#![forbid(unsafe_code)]

mod args;
mod cluster_access;
mod cluster_plan;
mod draw;
mod experiment_node;
mod json;
mod laboratory;
mod limits;
mod machine;
mod measure;
mod model_command;
mod plan_command;
mod planning;
mod predict_command;
mod restore_command;
mod restore_node;
mod status_command;
mod topology_command;
mod tune_in_cluster;
mod upgrade_command;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use albacore_command::{Failure, report_refused_arguments};
use albacore_local::Options;
use args::{Args, Command, ModelCommand};
use clap::Parser as _;

/// Runs the command line `arguments` (starting with the program's name) and returns the exit code:
/// 0 success, 1 failure or differences, 2 not compared, 64 bad usage, 70 broken invariant.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let is_plugin = arguments.first().is_some_and(|name| is_plugin(name));
    let done = match Args::try_parse_from(arguments) {
        Ok(Args {
            command: Command::Diff(args),
        }) => cluster_plan::diff(&args),
        Ok(args) => dispatch(&args.command, is_plugin).map(|()| false),
        Err(refused) => return report_refused_arguments(&refused),
    };
    match done {
        Ok(false) => ExitCode::SUCCESS,
        // Same as `kubectl diff`.
        Ok(true) => ExitCode::FAILURE,
        Err(failure) => failure.report(),
    }
}

/// Whether this program was started by kubectl, or under the name that kubectl looks for.
fn is_plugin(program: &OsStr) -> bool {
    let name = Path::new(program).file_name();
    name.is_some_and(|name| name.to_string_lossy().starts_with("kubectl-albacore"))
}

fn dispatch(command: &Command, is_plugin: bool) -> Result<(), Failure> {
    match command {
        Command::Topology(args) => topology_command::run(args),
        Command::Plan(args) if args.is_for_cluster(is_plugin) => cluster_plan::plan(args),
        Command::Plan(args) => plan_command::run(args),
        Command::Diff(args) => cluster_plan::diff(args).map(drop),
        Command::Predict(args) => predict_command::run(args),
        Command::Model(ModelCommand::Show { file }) => model_command::show(file),
        Command::Bench(args) => laboratory::run("bench", &args.arguments),
        Command::Experiment(args) if experiment_node::selects_cluster(&args.arguments) => {
            experiment_node::run(&args.arguments)
        }
        Command::Experiment(args) => laboratory::run("experiment", &args.arguments),
        Command::Tune(args) if tune_in_cluster::selects_cluster(&args.arguments) => {
            tune_in_cluster::run(&args.arguments)
        }
        Command::Tune(args) => laboratory::run("tune", &args.arguments),
        Command::Partition(args) => laboratory::run("partition", &args.arguments),
        Command::Run(args) => albacore_local::run(&Options {
            file: args.file.clone(),
            http: args.http,
            grpc: args.grpc,
            cpus: args.cpus.clone(),
            output: args.output,
        }),
        Command::Simulate(args) => laboratory::run("simulate", &args.arguments),
        Command::Status(args) => status_command::run(args),
        Command::Explain(args) => status_command::explain(args),
        Command::Upgrade(args) => upgrade_command::run(args),
        Command::Restore(args) => restore_command::run(args),
    }
}
