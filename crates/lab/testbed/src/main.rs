//! Helper processes of tests: `supervise` owns the network and the node of a test and removes both,
//! however the test ends; `init` is the init process of a node, `guest` that of an emulated node,
//! where `serve` executes commands of tests and `watch` prints changes of a pod's masks; `pause` is
//! the process of a pod's sandbox.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use albacore_testbed::supervisor;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["supervise", device @ ("bridge" | "device"), folder] => {
            supervisor::supervise(Path::new(folder), device == "bridge")
        }
        ["init", folder] => supervisor::init(Path::new(folder)),
        ["guest", folder] => supervisor::guest(Path::new(folder)),
        ["serve", address] => supervisor::serve(address),
        ["watch", uid] => supervisor::watch(uid),
        ["pause"] => supervisor::pause(),
        _ => Err(std::io::Error::other(
            "usage: albacore-testbed supervise bridge|device FOLDER | init|guest FOLDER | serve ADDRESS | watch UID | pause; tests start it",
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("albacore-testbed: {error}");
            ExitCode::FAILURE
        }
    }
}
