//! `albacore-agent`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    albacore_agent::program::main()
}
