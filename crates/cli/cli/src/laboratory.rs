//! Commands of the laboratory (`bench`, `experiment`, `partition`, `simulate`, `tune`). They are
//! run by the program `albacore-lab` in the same directory, so that the programs shipped to nodes
//! and clusters do not link the simulator and the load generator.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use albacore_command::{Failure, program_beside};

/// Replaces this process with `albacore-lab COMMAND ARGUMENTS`; returns only on error.
pub(crate) fn run(command: &str, arguments: &[OsString]) -> Result<(), Failure> {
    execute(command, arguments).map(|never| match never {})
}

fn execute(command: &str, arguments: &[OsString]) -> Result<Infallible, Failure> {
    let program = program_beside("albacore-lab")?;
    let error = Command::new(&program).arg(command).args(arguments).exec();
    Err(Failure::file(&program, &error))
}
