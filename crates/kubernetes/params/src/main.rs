//! `albacore-params`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    albacore_params::main()
}
