//! Commands of the laboratory (`bench`, `experiment`, `partition`, `simulate`, `tune`): the program
//! `albacore-lab` beside this one runs them, so that what is shipped to nodes and clusters links no
//! simulator and no load generator.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use albacore_command::{Failure, program_beside};

/// Replaces this process by `albacore-lab COMMAND ARGUMENTS`; returns only if that fails.
pub(crate) fn run(command: &str, arguments: &[OsString]) -> Result<(), Failure> {
    execute(command, arguments).map(|never| match never {})
}

fn execute(command: &str, arguments: &[OsString]) -> Result<Infallible, Failure> {
    let program = program_beside("albacore-lab")?;
    let error = Command::new(&program).arg(command).args(arguments).exec();
    Err(Failure::file(&program, &error))
}
