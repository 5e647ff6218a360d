//! Reads from the API server without a process for each: tests ask hundreds of times until
//! something is so, and every start of kubectl takes a tenth of a second of a cpu.

use std::ffi::OsString;
use std::io::{Error, Read as _, Result, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::limits::READ_TIME_MAX;
use crate::{Program, TestbedError};

/// `kubectl proxy` with the rights of a kubeconfig, behind a socket in a folder.
#[derive(Debug)]
pub(crate) struct ApiProxy {
    /// Ends the program with this value.
    _program: Program,
    socket: PathBuf,
}

impl ApiProxy {
    /// Starts it with the command line `kubectl`; it answers soon after.
    pub(crate) fn start(
        kubectl: &[OsString],
        config: &Path,
        folder: &Path,
    ) -> std::result::Result<Self, TestbedError> {
        let socket = folder.join("proxy.sock");
        let mut words = kubectl.to_vec();
        words.push("proxy".into());
        for (flag, path) in [("kubeconfig", config), ("unix-socket", &socket)] {
            words.push(format!("--{flag}={}", path.display()).into());
        }
        let log = folder.join("proxy.log");
        Ok(Self {
            _program: Program::start("kubectl proxy", Path::new(&words[0]), &words[1..], log)?,
            socket,
        })
    }

    /// The body of the answer to a GET of `path`. A status other than 200 is an error that begins
    /// with its number.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(READ_TIME_MAX))?;
        // Answers to HTTP/1.0 end with the connection and are not in chunks.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        match head.split(' ').nth(1) {
            Some("200") => Ok(body.to_owned()),
            status => Err(Error::other(format!("{} {body}", status.unwrap_or("none")))),
        }
    }
}
