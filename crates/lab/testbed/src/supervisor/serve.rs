//! Executes commands for every client that connects: access to a machine whose namespaces cannot be
//! joined. It listens in a network that is removed with its test.
//!
//! A client sends the words of a command as a line of JSON, then the standard input of the command,
//! and shuts down its write side. It receives the output, then the result of the command as JSON,
//! then the length of that JSON in eight bytes, big endian.

use std::io::{Error, Read as _, Result, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

/// The result of a command.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct CommandResult {
    /// Its exit code; `None` if it was killed by a signal, or could not be started.
    pub(crate) code: Option<i32>,
    /// Its standard error.
    pub(crate) stderr: String,
}

/// Serves at this address.
///
/// # Errors
/// The address is in use.
pub fn serve(address: &str) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    // bound: the lifetime of the node
    loop {
        let (stream, _) = listener.accept()?;
        std::thread::spawn(move || {
            if let Err(error) = answer(stream) {
                eprintln!("{error}");
            }
        });
    }
}

fn answer(mut stream: TcpStream) -> Result<()> {
    let mut line = Vec::new();
    let mut byte = [0];
    // bound: the length of one command; reads no byte of its input
    while stream.read(&mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    let words: Vec<String> = serde_json::from_slice(&line).map_err(Error::other)?;
    let ended = run(&stream, &words).unwrap_or_else(|error| CommandResult {
        code: None,
        stderr: format!("{words:?}: {error}"),
    });
    let ended = serde_json::to_vec(&ended).map_err(Error::other)?;
    stream.write_all(&ended)?;
    stream.write_all(&(ended.len() as u64).to_be_bytes())?;
    stream.shutdown(Shutdown::Both)
}

fn run(stream: &TcpStream, words: &[String]) -> Result<CommandResult> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| Error::other("no command"))?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(OwnedFd::from(stream.try_clone()?))
        .stdout(OwnedFd::from(stream.try_clone()?))
        .stderr(Stdio::piped())
        .spawn()?
        .wait_with_output()?;
    Ok(CommandResult {
        code: output.status.code(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
