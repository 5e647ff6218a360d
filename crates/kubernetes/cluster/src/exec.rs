//! Runs a program in a container, writes its input and reads its output, with the rights of the
//! user at the prompt.

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
    /// Why it failed, as the node reports it; `None` if it exited with 0.
    pub failure: Option<String>,
}

impl Cluster {
    /// Runs `command` in a container of a pod and waits for its end.
    ///
    /// # Errors
    /// The API server refuses (it needs the right to `pods/exec`), the node cannot be reached, or
    /// the program does not end in time.
    pub async fn exec(
        &self,
        pod: &ObjectKey,
        container: &str,
        command: &[&str],
    ) -> Result<ExecOutput, ClusterError> {
        self.exec_with_input(pod, container, command, &[]).await
    }

    /// As [`Cluster::exec`], with `input` on standard input. The program must know where that
    /// ends: not every API server passes on that it is closed.
    ///
    /// # Errors
    /// As [`Cluster::exec`].
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
                    // A program that ends early says why itself.
                    drop(stdin.write_all(input).await);
                    drop(stdin.flush().await);
                }
                std::future::pending().await
            };
            // All at once: a full pipe would block the others.
            let read = async { tokio::join!(read(output), read(error)) };
            let (output, error) = tokio::select! {
                done = read => done,
                never = write => never,
            };
            Ok((end(process).await, output, error))
        };
        match tokio::time::timeout(EXEC_TIME_MAX, running).await {
            Ok(Ok((status, output, error))) => of_status(action, status, output, &error),
            Ok(Err(error)) => Err(self.explain(&action, error)),
            Err(_) => Err(ClusterError::TimedOut {
                action,
                seconds: EXEC_TIME_MAX.as_secs(),
            }),
        }
    }

    /// Runs `command` in a container of a pod and hands each line of its output to `take` as it
    /// comes, until it ends or `take` returns `false`. It may run as long as a line comes within
    /// `silence_max`.
    ///
    /// # Errors
    /// As [`Cluster::exec`]; silence.
    pub async fn exec_lines(
        &self,
        pod: &ObjectKey,
        container: &str,
        command: &[&str],
        silence_max: Duration,
        take: &mut dyn FnMut(&str) -> bool,
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
            return of_status(action, None, Vec::new(), &[]);
        };
        let mut output = BufReader::new(output);
        // What a program prints on standard error while it prints lines is little: it waits.
        let mut line = Vec::new();
        // bound: `silence_max` for each line.
        loop {
            line.clear();
            let mut part = (&mut output).take(EXEC_LINE_BYTES_MAX);
            let read = part.read_until(b'\n', &mut line);
            let read = tokio::time::timeout(silence_max, read).await;
            // A broken connection ends the output without a status.
            let bytes = read.map_err(|_| silent(&action))?.unwrap_or(0);
            if bytes == 0 || !line.ends_with(b"\n") {
                break;
            }
            if !take(&String::from_utf8_lossy(&line)) {
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
        of_status(action, status, Vec::new(), &error)
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

/// How the program ended; `None` if the connection broke before.
async fn end(mut process: AttachedProcess) -> Option<Status> {
    process.take_status()?.await
}

fn of_status(
    action: String,
    status: Option<Status>,
    output: Vec<u8>,
    error: &[u8],
) -> Result<ExecOutput, ClusterError> {
    let status = status.ok_or(ClusterError::Broken { action })?;
    let is_failure = status.status.as_deref() != Some("Success");
    Ok(ExecOutput {
        output,
        error: String::from_utf8_lossy(error).trim().to_owned(),
        failure: is_failure.then(|| status.message.unwrap_or_default()),
    })
}

/// Reads a stream up to a bound or until the connection breaks.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // A truncated output is noticed by the caller, who parses it as JSON.
        let _ = stream.take(EXEC_BYTES_MAX).read_to_end(&mut bytes).await;
    }
    bytes
}
