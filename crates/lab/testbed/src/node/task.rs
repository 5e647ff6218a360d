//! A command that runs inside a node: as a process of this machine, or at the other end of a
//! connection.

use std::io::{Error, Read as _, Result, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus, Output};

use crate::supervisor::CommandResult;

/// A running command of a node. It has an input, and most commands end with that.
#[derive(Debug)]
pub struct Task(Way);

#[derive(Debug)]
enum Way {
    Child(Child),
    Connection(TcpStream),
}

impl Task {
    /// One of this machine, whose input and outputs are pipes.
    pub(super) fn of(child: Child) -> Self {
        Self(Way::Child(child))
    }

    /// One at the other end of a connection to `albacore-testbed serve`.
    pub(super) fn at(mut stream: TcpStream, words: &[&str]) -> Result<Self> {
        let mut line = serde_json::to_vec(words).map_err(Error::other)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        Ok(Self(Way::Connection(stream)))
    }

    /// Gives it all of `input`.
    ///
    /// # Errors
    /// It reads no more.
    pub fn feed(&mut self, input: &mut dyn std::io::Read) -> Result<()> {
        match &mut self.0 {
            Way::Child(child) => match &mut child.stdin {
                Some(stdin) => std::io::copy(input, stdin).map(drop),
                None => Err(Error::other("it has no input")),
            },
            Way::Connection(stream) => std::io::copy(input, stream).map(drop),
        }
    }

    /// Ends its input, and waits for its own end.
    ///
    /// # Errors
    /// It is gone.
    pub fn end(self) -> Result<Output> {
        match self.0 {
            // Waiting closes the input.
            Way::Child(child) => child.wait_with_output(),
            Way::Connection(mut stream) => {
                stream.shutdown(Shutdown::Write)?;
                let mut bytes = Vec::new();
                stream.read_to_end(&mut bytes)?;
                take_apart(bytes).ok_or_else(|| Error::other("the node's answer is cut off"))
            }
        }
    }
}

/// Output, then how it ended, then the length of that.
fn take_apart(mut bytes: Vec<u8>) -> Option<Output> {
    let length = bytes.split_off(bytes.len().checked_sub(8)?);
    let length = usize::try_from(u64::from_be_bytes(length.try_into().ok()?)).ok()?;
    let ended = bytes.split_off(bytes.len().checked_sub(length)?);
    let ended: CommandResult = serde_json::from_slice(&ended).ok()?;
    Some(Output {
        // As the kernel packs them: the code above, a signal below.
        status: ExitStatus::from_raw(ended.code.map_or(9, |code| code << 8)),
        stdout: bytes,
        stderr: ended.stderr.into_bytes(),
    })
}
