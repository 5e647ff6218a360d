//! From a command line to an exit code: 0 done, 1 failed, 64 bad usage, 70 broken invariant.

use std::fmt::Display;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

/// Exit code of a command line that makes no sense.
pub const USAGE: u8 = 64;

/// Exit code of a broken invariant.
pub const BROKEN: u8 = 70;

/// The arguments of this process.
///
/// # Errors
/// The exit code: of success where help or the version was asked for, which is printed, else
/// [`USAGE`] after what is wrong was said on stderr.
pub fn arguments<A: Parser>() -> Result<A, ExitCode> {
    A::try_parse().map_err(|error| {
        // Help that cannot be printed is nobody's loss.
        let _ = error.print();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
            _ => ExitCode::from(USAGE),
        }
    })
}

/// The exit code of `program`; why it failed is said on stderr, with everything under it.
pub fn ended<E: Display>(program: &str, result: Result<ExitCode, E>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("{program}: {error:#}");
        ExitCode::FAILURE
    })
}
