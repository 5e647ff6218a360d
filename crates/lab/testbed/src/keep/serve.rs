//! Runs commands for whoever connects: the way into a machine whose processes cannot be joined. It
//! answers in a network that ends with its test.
//!
//! A client sends the words of a command as a line of JSON, then its input; the end of that is the
//! end of what is sent. It gets the output as it comes, then how the command ended as JSON, then
//! the length of that in eight bytes.

use std::io::{Error, Read as _, Result, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

/// How a command ended.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Ended {
    /// Its exit code; `None` if a signal ended it, or if it could not be started.
    pub(crate) code: Option<i32>,
    /// What it wrote to its error output.
    pub(crate) said: String,
}

/// Serves at this address.
///
/// # Errors
/// The address is taken.
pub fn serve(address: &str) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    // bound: the life of the node
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
    // bound: the words of one command; not one byte of its input is taken
    while stream.read(&mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    let words: Vec<String> = serde_json::from_slice(&line).map_err(Error::other)?;
    let ended = run(&stream, &words).unwrap_or_else(|error| Ended {
        code: None,
        said: format!("{words:?}: {error}"),
    });
    let ended = serde_json::to_vec(&ended).map_err(Error::other)?;
    stream.write_all(&ended)?;
    stream.write_all(&(ended.len() as u64).to_be_bytes())?;
    stream.shutdown(Shutdown::Both)
}

fn run(stream: &TcpStream, words: &[String]) -> Result<Ended> {
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
    Ok(Ended {
        code: output.status.code(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
