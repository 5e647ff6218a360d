//! The `albacore` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    albacore_cli::run(std::env::args_os())
}
