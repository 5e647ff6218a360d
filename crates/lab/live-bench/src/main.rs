//! `albacore-live-bench`: the program of `make demo`.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use albacore_live_bench::demo;

const USAGE: &str = "usage: albacore-live-bench demo";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)
        .unwrap_or(Path::new("."));
    let command = std::env::args().nth(1).unwrap_or_default();
    let result = match command.as_str() {
        "demo" => demo::run(root),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(64);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("albacore-live-bench {command}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
