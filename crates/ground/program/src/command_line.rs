//! Command-line parsing and exit codes: 0 done, 1 failed, 64 bad usage, 70 broken invariant.

use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

/// Exit code for invalid usage (EX_USAGE).
pub const EXIT_USAGE: u8 = 64;

/// Exit code for a broken invariant (EX_SOFTWARE).
pub const EXIT_BROKEN_INVARIANT: u8 = 70;

/// Parses the arguments of this process.
///
/// # Errors
/// Returns the exit code: success after printing help or the version, otherwise [`EXIT_USAGE`]
/// after printing the error to stderr.
pub fn parse_arguments<A: Parser>() -> Result<A, ExitCode> {
    parse_arguments_from(std::env::args_os())
}

/// As [`parse_arguments`], with an explicit program name and arguments.
///
/// # Errors
/// As [`parse_arguments`].
pub fn parse_arguments_from<A: Parser>(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<A, ExitCode> {
    A::try_parse_from(arguments).map_err(|error| {
        // A failure to print help or the error is ignored.
        let _ = error.print();
        match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
            _ => ExitCode::from(EXIT_USAGE),
        }
    })
}

/// Converts the result of `program` to its exit code; prints an error with its causes to stderr.
pub fn exit_code<E: Display>(program: &str, result: Result<ExitCode, E>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("{program}: {error:#}");
        ExitCode::FAILURE
    })
}
