//! How a command can fail, and the exit code of each way.

use std::process::ExitCode;

pub(crate) use albacore_local::sentence;

/// Exit code of [`Failure::Usage`] (EX_USAGE of sysexits.h).
const USAGE: u8 = 64;
/// Exit code of [`Failure::Broken`] (EX_SOFTWARE of sysexits.h).
const BROKEN: u8 = 70;

/// Why a command failed: one sentence that names file, field and value and says what to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// What was asked cannot be asked.
    Usage(String),
    /// It could be asked, but it could not be done.
    Failed(String),
    /// Something that this program guarantees does not hold: a bug.
    Broken(String),
    /// The built-in server failed with this exit code and has said why on standard error.
    Told(u8),
}

impl Failure {
    /// [`Failure::Usage`] of an option's value.
    pub(crate) fn usage(option: &str, error: &dyn std::error::Error) -> Self {
        Self::Usage(format!("{option}: {}", sentence(error)))
    }

    /// [`Failure::Failed`] because of a file.
    pub(crate) fn file(path: &std::path::Path, error: &dyn std::error::Error) -> Self {
        Self::Failed(format!("{}: {}", path.display(), sentence(error)))
    }

    /// The sentence.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Usage(text) | Self::Failed(text) | Self::Broken(text) => text,
            Self::Told(_) => "the server said why",
        }
    }

    /// Says it on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        let (code, text) = match self {
            Self::Usage(text) => (USAGE, text.clone()),
            Self::Failed(text) => (1, text.clone()),
            Self::Broken(text) => (BROKEN, format!("broken invariant, please report: {text}")),
            Self::Told(code) => return ExitCode::from(*code),
        };
        eprintln!("albacore: {text}");
        ExitCode::from(code)
    }
}

/// Prints clap's message: help and version are no failures, all else is bad usage.
pub(crate) fn report_refused_arguments(refused: &clap::Error) -> ExitCode {
    let is_failure = refused.use_stderr();
    match refused.print() {
        Ok(()) if !is_failure => ExitCode::SUCCESS,
        Ok(()) => ExitCode::from(USAGE),
        Err(_) => ExitCode::FAILURE,
    }
}

impl From<albacore_local::Failure> for Failure {
    fn from(failure: albacore_local::Failure) -> Self {
        use albacore_local::Failure as Run;
        match failure {
            Run::Failed(text) => Self::Failed(text),
            Run::Broken(text) => Self::Broken(text),
            Run::Told(code) => Self::Told(code),
        }
    }
}

impl From<albacore_bench::BenchError> for Failure {
    fn from(error: albacore_bench::BenchError) -> Self {
        let text = sentence(&error);
        match error {
            albacore_bench::BenchError::Usage(_) => Self::Usage(text),
            _ => Self::Failed(text),
        }
    }
}
