//! `albacore-server`: the supervisor, and the fronts and workers as subcommands.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use albacore_server::run;

/// For static builds: with musl's own allocator a request costs up to 25 % more CPU time.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // First, because a worker must be up within milliseconds.
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == albacore_worker::SUBCOMMAND => {
            albacore_worker::main(arguments.filter_map(|argument| argument.into_string().ok()))
        }
        Some(first) if first == albacore_supervision::SUBCOMMAND => run::front_main(arguments),
        _ => run::main(),
    }
}
