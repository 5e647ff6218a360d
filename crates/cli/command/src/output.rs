//! Standard output, with a reader that may go away.

use std::io::{self, Write as _};

use clap::ValueEnum;
use serde_json::Value;

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
/// As [`print()`].
pub fn print_json(value: &Value) -> Result<(), Failure> {
    print(&format!("{value}\n"))
}
