//! The `albacore` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    albacore_cli::run(std::env::args_os())
}
