//! Runs a program in a container and reads its output, with the rights of the user at the prompt.

use k8s_openapi::api::core::v1::Pod;
use kube_client::Api;
use kube_client::api::AttachParams;
use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::limits::{EXEC_BYTES_MAX, EXEC_TIME_MAX};
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
        let action = format!("run {} in pod {pod}", command.first().unwrap_or(&""));
        let running = tokio::time::timeout(EXEC_TIME_MAX, self.run(pod, container, command));
        match running.await {
            Ok(done) => done.map_err(|error| self.explain(&action, error)),
            Err(_) => Err(ClusterError::TimedOut {
                action,
                seconds: EXEC_TIME_MAX.as_secs(),
            }),
        }
    }

    async fn run(
        &self,
        pod: &ObjectKey,
        container: &str,
        command: &[&str],
    ) -> Result<ExecOutput, kube_client::Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let wanted = AttachParams::default()
            .container(container)
            .stdin(false)
            .stdout(true)
            .stderr(true);
        let command = command.iter().copied();
        let mut process = api.exec(&pod.name, command, &wanted).await?;
        let (output, error) = (process.stdout(), process.stderr());
        let status = process.take_status();
        // Both at once: a full pipe would block the other.
        let (output, error) = tokio::join!(read(output), read(error));
        let failure = match status {
            Some(status) => status.await,
            None => None,
        };
        let failure = failure.filter(|status| status.status.as_deref() != Some("Success"));
        Ok(ExecOutput {
            output,
            error: String::from_utf8_lossy(&error).trim().to_owned(),
            failure: failure.map(|status| status.message.unwrap_or_default()),
        })
    }
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
