//! Standard output, with a reader that may go away.

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Failure;

/// The forms in which a command can print its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Output {
    /// For people
    Text,
    /// For programs: one object on one line
    Json,
    /// A picture
    Svg,
}

/// The forms in which `albacore run` prints its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum RunOutput {
    /// A table on a terminal, JSON lines otherwise
    Auto,
    /// A live table
    Table,
    /// One JSON object an event, one event a line
    Json,
}

/// Writes `text` to standard output. A reader that closed its end (`| head`) is no failure.
///
/// # Errors
/// [`Failure::Failed`] if standard output cannot be written for another reason.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Failed(format!(
            "cannot write to standard output: {e}"
        ))),
        _ => Ok(()),
    }
}

/// Writes `value` as one line of JSON, so that every command's JSON can be read line by line.
///
/// # Errors
/// As [`print()`]; [`Failure::Broken`] for a value that is not JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value);
    let line = line.map_err(|e| Failure::Broken(format!("the output is not JSON: {e}")))?;
    print(&format!("{line}\n"))
}
