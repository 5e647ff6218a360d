//! Errors of commands and their exit codes.

use std::process::ExitCode;

use albacore_values::sentence;

/// Exit code of [`Failure::NotCompared`], as in `kubectl diff`.
const NOT_COMPARED: u8 = 2;
/// Exit code of [`Failure::Usage`] (EX_USAGE of sysexits.h).
const USAGE: u8 = 64;
/// Exit code of [`Failure::Broken`] (EX_SOFTWARE of sysexits.h).
const BROKEN: u8 = 70;

/// Why a command failed: one sentence that names the file, field and value and says how to fix it.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The arguments or the files that they name are invalid. Exit code 64.
    Usage(String),
    /// The request was valid but failed; of `albacore diff`: something would move. Exit code 1.
    Failed(String),
    /// `albacore diff` could not find out what would move. Exit code 2.
    NotCompared(String),
    /// An invariant of this program does not hold: a bug. Exit code 70.
    Broken(String),
    /// The built-in server exited with this code and printed the reason itself.
    ServerFailed(u8),
}

impl Failure {
    /// A [`Failure::Usage`] for the value of an option.
    pub fn usage(option: &str, error: &dyn std::error::Error) -> Self {
        Self::Usage(format!("{option}: {}", sentence(error)))
    }

    /// A [`Failure::Failed`] for a file.
    pub fn file(path: &std::path::Path, error: &dyn std::error::Error) -> Self {
        Self::Failed(format!("{}: {}", path.display(), sentence(error)))
    }

    /// The error message.
    pub fn text(&self) -> &str {
        match self {
            Self::Usage(text)
            | Self::Failed(text)
            | Self::NotCompared(text)
            | Self::Broken(text) => text,
            Self::ServerFailed(_) => "the server printed the reason",
        }
    }

    /// Prints the error message to standard error and returns the exit code.
    pub fn report(&self) -> ExitCode {
        let (code, text) = match self {
            Self::Usage(text) => (USAGE, text.clone()),
            Self::Failed(text) => (1, text.clone()),
            Self::NotCompared(text) => (NOT_COMPARED, text.clone()),
            Self::Broken(text) => (BROKEN, format!("broken invariant, please report: {text}")),
            Self::ServerFailed(code) => return ExitCode::from(*code),
        };
        eprintln!("albacore: {text}");
        ExitCode::from(code)
    }
}

/// Prints clap's message: help and version count as success, everything else as bad usage.
pub fn report_refused_arguments(refused: &clap::Error) -> ExitCode {
    let is_failure = refused.use_stderr();
    match refused.print() {
        Ok(()) if !is_failure => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(USAGE),
        Err(_) => ExitCode::FAILURE,
    }
}
