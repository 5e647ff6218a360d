//! What tests leave to a process of its own: `keep` holds a network and a node for a test and takes
//! both down, however the test ends; `init` is the node's first process, `guest` that of an
//! emulated node, where `serve` lets tests in and `watch` says what the kernel does with a pod's
//! masks; `pause` is the process of a pod's sandbox.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use albacore_testbed::keep;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["keep", folder] => keep::keep(Path::new(folder)),
        ["init", folder] => keep::init(Path::new(folder)),
        ["guest", folder] => keep::guest(Path::new(folder)),
        ["serve", address] => keep::serve(address),
        ["watch", uid] => keep::watch(uid),
        ["pause"] => keep::pause(),
        _ => Err(std::io::Error::other(
            "usage: albacore-testbed keep|init|guest FOLDER | serve ADDRESS | watch UID | pause; tests start it",
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
