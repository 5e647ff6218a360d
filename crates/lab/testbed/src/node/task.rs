//! A command that runs inside a node: as a process of this machine, or on the remote end of a
//! connection.

use std::io::{Error, Read as _, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus, Output};

use crate::supervisor::CommandResult;

/// A running command of a node. It has a standard input, and most commands exit at its end.
#[derive(Debug)]
pub struct Task(Transport);

#[derive(Debug)]
enum Transport {
    Child(Child),
    Connection(TcpStream),
}

impl Task {
    /// A child process with piped input and output.
    pub(super) fn of(child: Child) -> Self {
        Self(Transport::Child(child))
    }

    /// A command executed by `albacore-testbed serve` over a connection.
    pub(super) fn at(mut stream: TcpStream, words: &[&str]) -> Result<Self> {
        let mut line = serde_json::to_vec(words).map_err(Error::other)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        Ok(Self(Transport::Connection(stream)))
    }

    /// Writes all of `input` to its standard input.
    ///
    /// # Errors
    /// It no longer reads.
    pub fn feed(&mut self, input: &mut dyn std::io::Read) -> Result<()> {
        match &mut self.0 {
            Transport::Child(child) => match &mut child.stdin {
                Some(stdin) => std::io::copy(input, stdin).map(drop),
                None => Err(Error::other("it has no standard input")),
            },
            Transport::Connection(stream) => std::io::copy(input, stream).map(drop),
        }
    }

    /// Closes its standard input, and waits for its exit.
    ///
    /// # Errors
    /// It no longer exists.
    pub fn end(self) -> Result<Output> {
        match self.0 {
            // Waiting closes the standard input.
            Transport::Child(child) => child.wait_with_output(),
            Transport::Connection(mut stream) => {
                stream.shutdown(Shutdown::Write)?;
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes)?;
                split_reply(bytes)
                    .ok_or_else(|| Error::other("the response of the node is truncated"))
            }
        }
    }
}

/// Splits the reply: output, then the result, then the length of the result.
fn split_reply(mut bytes: Vec<u8>) -> Option<Output> {
    let length = bytes.split_off(bytes.len().checked_sub(8)?);
    let length = usize::try_from(u64::from_be_bytes(length.try_into().ok()?)).ok()?;
    let ended = bytes.split_off(bytes.len().checked_sub(length)?);
    let ended: CommandResult = serde_json::from_slice(&ended).ok()?;
    Some(Output {
        // Wait status of the kernel: exit code in the high byte, signal in the low byte.
        status: ExitStatus::from_raw(ended.code.map_or(9, |code| code << 8)),
        stdout: bytes,
        stderr: ended.stderr.into_bytes(),
    })
}
