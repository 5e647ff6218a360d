//! `albacore-controller`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    albacore_controller::run::main()
}
