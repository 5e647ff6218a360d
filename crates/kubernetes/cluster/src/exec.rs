//! Runs a program in a container, writes its input and reads its output, with the permissions of
//! the user of the command line.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube_client::Api;
use kube_client::api::{AttachParams, AttachedProcess};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};

use crate::limits::{EXEC_BYTES_MAX, EXEC_INPUT_BUFFER, EXEC_LINE_BYTES_MAX, EXEC_TIME_MAX};
use crate::{Cluster, ClusterError, ObjectKey};

/// The output of a program that ran in a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecOutput {
    pub output: Vec<u8>,
    /// Standard error, as text.
    pub error: String,
    /// Error reported by the node; `None` if the program exited with 0.
    pub failure: Option<String>,
}

impl Cluster {
    /// Runs `command` in a container of a pod and waits until it exits.
    ///
    /// # Errors
    /// The API server rejects the request (it requires permission for `pods/exec`), the node is
    /// unreachable, or the program does not exit before the timeout.
    pub async fn exec(
        &self,
        pod: &ObjectKey,
        container: &str,
        command: &[&str],
    ) -> Result<ExecOutput, ClusterError> {
        self.exec_with_input(pod, container, command, &[]).await
    }

    /// Like [`Cluster::exec`], with `input` on standard input. The program must detect the end of
    /// the input itself, because not every API server forwards that it is closed.
    ///
    /// # Errors
    /// Same as [`Cluster::exec`].
    pub async fn exec_with_input(
        &self,
        pod: &ObjectKey,
        container: &str,
        command: &[&str],
        input: &[u8],
    ) -> Result<ExecOutput, ClusterError> {
        let action = exec_action(pod, command);
        let running = async {
            let mut process = self
                .start(pod, container, command, !input.is_empty())
                .await?;
            let (output, error) = (process.stdout(), process.stderr());
            let mut stdin = process.stdin();
            let write = async {
                if let Some(stdin) = &mut stdin {
                    // A program that exits early reports the reason itself.
                    drop(stdin.write_all(input).await);
                    drop(stdin.flush().await);
                }
                std::future::pending().await
            };
            // Concurrently, because a full pipe would block the others.
            let read = async { tokio::join!(read(output), read(error)) };
            let (output, error) = tokio::select! {
                done = read => done,
                never = write => never,
            };
            Ok((end(process).await, output, error))
        };
        match tokio::time::timeout(EXEC_TIME_MAX, running).await {
            Ok(Ok((status, output, error))) => exec_output(action, status, output, &error),
            Ok(Err(error)) => Err(self.explain(&action, error)),
            Err(_) => Err(ClusterError::TimedOut {
                action,
                seconds: EXEC_TIME_MAX.as_secs(),
            }),
        }
    }

    /// Runs `command` in a container of a pod and passes each line of its output to `take`, until
    /// it exits or `take` returns `false`. It may run as long as each line follows within
    /// `silence_max`.
    ///
    /// # Errors
    /// Same as [`Cluster::exec`]; no line within `silence_max`.
    pub async fn exec_lines(
        &self,
        pod: &ObjectKey,
        container: &str,
        command: &[&str],
        silence_max: Duration,
        on_line: &mut dyn FnMut(&str) -> bool,
    ) -> Result<ExecOutput, ClusterError> {
        let action = exec_action(pod, command);
        let silent = |action: &str| ClusterError::TimedOut {
            action: action.to_owned(),
            seconds: silence_max.as_secs(),
        };
        let started = self.start(pod, container, command, false);
        let started = tokio::time::timeout(EXEC_TIME_MAX, started).await;
        let started = started.map_err(|_| silent(&action))?;
        let mut process = started.map_err(|error| self.explain(&action, error))?;
        let error = process.stderr();
        let Some(output) = process.stdout() else {
            return exec_output(action, None, Vec::new(), &[]);
        };
        let mut output = BufReader::new(output);
        // Standard error is read at the end, because little is written to it while lines are
        // printed.
        let mut line = Vec::new();
        // bound: `silence_max` for each line.
        loop {
            line.clear();
            let mut part = (&mut output).take(EXEC_LINE_BYTES_MAX);
            let read = part.read_until(b'\n', &mut line);
            let read = tokio::time::timeout(silence_max, read).await;
            // A closed connection ends the output without a status.
            let bytes = read.map_err(|_| silent(&action))?.unwrap_or(0);
            if bytes == 0 || !line.ends_with(b"\n") {
                break;
            }
            if !on_line(&String::from_utf8_lossy(&line)) {
                return Ok(ExecOutput {
                    output: Vec::new(),
                    error: String::new(),
                    failure: None,
                });
            }
        }
        let finish = async {
            let error = read(error).await;
            (error, end(process).await)
        };
        let finished = tokio::time::timeout(silence_max, finish).await;
        let (error, status) = finished.map_err(|_| silent(&action))?;
        exec_output(action, status, Vec::new(), &error)
    }

    async fn start(
        &self,
        pod: &ObjectKey,
        container: &str,
        command: &[&str],
        has_input: bool,
    ) -> Result<AttachedProcess, kube_client::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let wanted = AttachParams::default()
            .container(container)
            .stdin(has_input)
            .stdout(true)
            .stderr(true)
            .max_stdin_buf_size(EXEC_INPUT_BUFFER);
        let command = command.iter().copied();
        api.exec(&pod.name, command, &wanted).await
    }
}

fn exec_action(pod: &ObjectKey, command: &[&str]) -> String {
    format!("run {} in pod {pod}", command.first().unwrap_or(&""))
}

/// The exit status of the program; `None` if the connection was closed before.
async fn end(mut process: AttachedProcess) -> Option<Status> {
    process.take_status()?.await
}

fn exec_output(
    action: String,
    status: Option<Status>,
    output: Vec<u8>,
    error: &[u8],
) -> Result<ExecOutput, ClusterError> {
    let status = status.ok_or(ClusterError::ConnectionClosed { action })?;
    let is_failure = status.status.as_deref() != Some("Success");
    Ok(ExecOutput {
        output,
        error: String::from_utf8_lossy(error).trim().to_owned(),
        failure: is_failure.then(|| status.message.unwrap_or_default()),
    })
}

/// Reads a stream up to a size limit or until the connection is closed.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // The caller detects a truncated output, because it parses it as JSON.
        let _ = stream.take(EXEC_BYTES_MAX).read_to_end(&mut bytes).await;
    }
    bytes
}
