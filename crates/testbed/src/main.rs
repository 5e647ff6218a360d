//! What tests leave to a process of its own: `keep` holds a network and a node for a test and takes both down, however
//! the test ends; `init` is the node's first process; `pause` is the process of a pod's sandbox.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use albacore_testbed::keep;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let verb = arguments.next().unwrap_or_default();
    let folder = arguments.next().map(PathBuf::from);
    let done = match (verb.to_str(), folder) {
        (Some("keep"), Some(folder)) => keep::keep(&folder),
        (Some("init"), Some(folder)) => keep::init(&folder),
        (Some("pause"), None) => keep::pause(),
        _ => Err(std::io::Error::other(
            "usage: albacore-testbed keep FOLDER | init FOLDER | pause; tests start it",
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("albacore-testbed: {error}");
            ExitCode::FAILURE
        }
    }
}
