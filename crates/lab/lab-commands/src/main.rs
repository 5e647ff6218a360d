//! The program `albacore-lab`: `albacore bench`, `experiment`, `partition` and `albacore simulate`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    albacore_lab_commands::run(std::env::args_os())
}
