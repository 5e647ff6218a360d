//! Reads from the API server without starting a process per request: tests poll hundreds of times,
//! and every start of kubectl takes 0.1 s of CPU time.

use std::ffi::OsString;
use std::io::{Error, Read as _, Result, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::limits::READ_TIME_MAX;
use crate::{Program, TestbedError};

/// `kubectl proxy` with the permissions of a kubeconfig, behind a Unix socket in a folder.
#[derive(Debug)]
pub(crate) struct ApiProxy {
    /// Killed on drop.
    _program: Program,
    socket: PathBuf,
}

impl ApiProxy {
    /// Starts the proxy with the command line `kubectl`; it becomes ready shortly afterwards.
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

    /// Body of the response to a GET of `path`. A status other than 200 is an error that starts
    /// with the status.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(READ_TIME_MAX))?;
        // HTTP/1.0: the end of the connection delimits the body, and there is no chunked encoding.
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
