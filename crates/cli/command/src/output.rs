//! Writes to standard output, whose reader may close its end.

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Failure;

/// The forms in which a command can print its result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OutputFormat {
    /// Human-readable text
    Text,
    /// One JSON object on one line
    Json,
    /// SVG image
    Svg,
}

/// The forms in which `albacore run` prints its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum RunOutput {
    /// A table on a terminal, JSON lines otherwise
    Auto,
    /// A live table
    Table,
    /// One JSON object per event, one event per line
    Json,
}

/// Writes `text` to standard output. A closed pipe (`| head`) is not an error.
///
/// # Errors
/// [`Failure::Failed`] if writing to standard output fails for any other reason.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Failed(format!(
            "cannot write to standard output: {e}"
        ))),
        _ => Ok(()),
    }
}

/// Writes `value` as one line of JSON, so that the JSON of every command can be read line by line.
///
/// # Errors
/// Same as [`print()`]; [`Failure::Broken`] if the value cannot be encoded as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let line = serde_json::to_string(value);
    let line = line.map_err(|e| Failure::Broken(format!("the output is not JSON: {e}")))?;
    print(&format!("{line}\n"))
}
