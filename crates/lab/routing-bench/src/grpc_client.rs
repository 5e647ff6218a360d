//! The client in `tests/routing/client`: grpc-go, which balances load by a service config.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use albacore_load::{Request, Sample, StageTimes};
use serde_json::json;

use crate::arms::Policy;
use crate::error::RoutingError;
use crate::manifest;

/// Size of the gRPC frame header, which grpc-go writes itself.
const FRAME_BYTES: usize = 5;

/// Whether the client requests load reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadReports {
    /// In the trailer of each response.
    Requested,
    NotRequested,
}

/// A run of the client, which is killed on drop.
#[derive(Debug)]
pub struct GrpcClient {
    program: PathBuf,
    child: Child,
    output: BufReader<ChildStdout>,
}

/// Results seen by the client.
#[derive(Clone, Debug, Default)]
pub struct ClientResults {
    /// By intended time.
    pub samples: Vec<Sample>,
    /// Server of each sample; `None` if it was sent to none.
    pub servers: Vec<Option<SocketAddr>>,
    /// CPU time of the client, which sends and routes.
    pub cpu: Duration,
}

/// Load that a client sends.
#[derive(Clone, Copy, Debug)]
pub struct ClientLoad<'a> {
    /// Sent round-robin.
    pub requests: &'a [Request],
    pub times: &'a [Duration],
    pub reports: LoadReports,
}

impl GrpcClient {
    /// Starts sending; returns when the client's clock starts. `policy` replaces that of the
    /// manifest. Its files are written to `folder`.
    ///
    /// # Errors
    /// The client does not start.
    pub fn start(
        program: &Path,
        folder: &Path,
        servers: &[SocketAddr],
        policy: Option<Policy>,
        sending: &ClientLoad<'_>,
    ) -> Result<Self, RoutingError> {
        let ClientLoad {
            requests,
            times,
            reports,
        } = *sending;
        let mut files = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let file = folder.join(format!("message-{index}"));
            let message = request.body.get(FRAME_BYTES..).unwrap_or_default();
            std::fs::write(&file, message).map_err(RoutingError::file(&file))?;
            files.push(file);
        }
        let times = times.iter().map(|time| time.as_nanos() as u64);
        let order = json!({
            "servers": servers,
            "service_config": manifest::service_config(policy)?,
            "message_files": files,
            "times": times.collect::<Vec<_>>(),
            "reports": reports == LoadReports::Requested,
        });
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(RoutingError::file(program))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let Some((mut input, output)) = input.zip(output) else {
            let what = format!("{}: has no input and output", program.display());
            return Err(RoutingError::Failed(what));
        };
        let mut client = Self {
            program: program.to_owned(),
            child,
            output: BufReader::new(output),
        };
        let written = input.write_all(order.to_string().as_bytes());
        written.map_err(RoutingError::file(program))?;
        drop(input);
        match client.line()?.as_str() {
            "start" => Ok(client),
            said => Err(client.unexpected(said)),
        }
    }

    fn line(&mut self) -> Result<String, RoutingError> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line);
        read.map_err(RoutingError::file(&self.program))?;
        Ok(line.trim_end().to_owned())
    }

    fn unexpected(&self, said: &str) -> RoutingError {
        let program = self.program.display();
        RoutingError::Failed(format!("{program}: unexpected output {said:?}"))
    }

    /// Waits until all requests are answered.
    ///
    /// # Errors
    /// The client fails.
    pub fn finish(mut self) -> Result<ClientResults, RoutingError> {
        let mut answered = ClientResults::default();
        // bound: the requests, and the final line
        loop {
            let line = self.line()?;
            if let Some(nanos) = line.strip_prefix("cpu ").and_then(|it| it.parse().ok()) {
                answered.cpu = Duration::from_nanos(nanos);
                return Ok(answered);
            }
            let Some((sample, server)) = parse(&line) else {
                return Err(self.unexpected(&line));
            };
            answered.samples.push(sample);
            answered.servers.push(server);
        }
    }
}

impl Drop for GrpcClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parses a line: intended time, lag and latency in nanoseconds, gRPC code, server.
fn parse(line: &str) -> Option<(Sample, Option<SocketAddr>)> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[intended, lag, latency, code, server] = words.as_slice() else {
        return None;
    };
    let nanos = |text: &str| Some(Duration::from_nanos(text.parse().ok()?));
    let (intended, lag) = (nanos(intended)?, nanos(lag)?);
    let sample = Sample {
        intended,
        sent: intended + lag,
        latency: nanos(latency)?,
        status: http_status(code.parse().ok()?),
        stages: StageTimes::default(),
        request: 0,
        lag,
    };
    Some((sample, server.parse().ok()))
}

/// The HTTP status that corresponds to a gRPC code.
fn http_status(code: u32) -> u16 {
    match code {
        0 => 200,
        4 => 504,
        8 => 429,
        14 => 503,
        _ => 500,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_client_is_a_sample() {
        let (sample, server) = parse("1000 20 3000 8 127.0.0.1:81").unwrap();
        let nanos = Duration::from_nanos;
        assert_eq!((sample.intended, sample.sent), (nanos(1000), nanos(1020)));
        assert_eq!((sample.latency, sample.status), (nanos(3000), 429));
        assert_eq!(server, "127.0.0.1:81".parse().ok());
        let (sample, server) = parse("1000 20 3000 14 -").unwrap();
        assert_eq!((sample.status, server), (503, None));
        assert!(parse("1000 20 3000 8").is_none());
    }
}
