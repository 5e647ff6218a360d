//! Events on standard output: one JSON object per line.

use std::io::Write as _;
use std::net::SocketAddr;

use serde::Serialize;

use albacore_engine::{EngineEvent, kind_name};

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ServerEvent {
    /// Both ports are bound.
    Listening {
        /// The HTTP address, with the port that was bound.
        http: SocketAddr,
        grpc: SocketAddr,
    },
    /// A worker process was started.
    WorkerStarted { worker: usize, pid: i32 },
    /// A worker process died and will be restarted.
    WorkerDied {
        worker: usize,
        pid: i32,
        cause: String,
    },
    /// All workers are running: the server accepts requests.
    Ready,
    /// A model, or a new version of it, is served.
    ModelLoaded {
        model: String,
        source: String,
        /// SHA-256 of the model file.
        sha256: String,
        /// Version in the store: the ETag of an object, the digest of an artifact.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<String>,
    },
    /// An API call unloaded a model.
    ModelUnloaded { model: String },
    /// A model could not be loaded. Its previous version stays in service and loading is retried,
    /// unless an API call unloaded it.
    ModelFailed {
        model: String,
        source: String,
        /// The cause and the remedy.
        error: String,
    },
    /// A new settings file is effective.
    SettingsApplied {
        /// SHA-256 of the file.
        sha256: String,
    },
    /// A new settings file is invalid; the previous one stays effective.
    SettingsRefused {
        /// The cause and the remedy.
        error: String,
    },
    /// Parameters of the params stream are effective.
    ParametersApplied {
        /// `metadata.generation` of their deployment.
        generation: u64,
    },
    /// Parameters of the params stream are invalid; the previous ones stay effective.
    ParametersRefused {
        /// The field and the problem.
        error: String,
    },
    /// The params stream ended or cannot be opened; its last parameters are retained for a while.
    ParametersLost {
        /// The value of `--params`.
        place: String,
        /// The cause; reported again only when it changes.
        error: String,
    },
    /// The params stream was lost for too long; the settings are effective again.
    ParametersForgotten {
        /// The value of `--params`.
        place: String,
    },
    /// Policy `auto` decided whether batches of a model and kind are deferred.
    BatchingChosen {
        model: String,
        kind: &'static str,
        deferred: bool,
        /// The reason, with the figures.
        reason: String,
    },
    /// The front died; this front has replaced it and taken over its workers.
    FrontDied {
        pid: i32,
        cause: String,
        /// Number of its connections, which were reset.
        connections: u64,
    },
    /// This front has replaced one of another binary version.
    Upgraded { version: &'static str },
    /// The server no longer accepts connections.
    Draining,
    /// All accepted requests were answered and all workers have exited.
    Stopped,
}

impl From<EngineEvent> for ServerEvent {
    fn from(event: EngineEvent) -> Self {
        match event {
            EngineEvent::WorkerStarted { worker, pid } => Self::WorkerStarted { worker, pid },
            EngineEvent::WorkerExited { worker, pid, cause } => {
                Self::WorkerDied { worker, pid, cause }
            }
            EngineEvent::BatchingChosen {
                model,
                kind,
                choice,
            } => Self::BatchingChosen {
                model,
                kind: kind_name(kind),
                deferred: choice.is_deferred,
                reason: choice.to_string(),
            },
        }
    }
}

/// Writes an event. Errors are ignored: a closed standard output does not stop the server.
pub fn emit(line: &ServerEvent) {
    if let Ok(mut text) = serde_json::to_string(line) {
        text.push('\n');
        let mut stdout = std::io::stdout().lock();
        let _ = stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_documented_form() {
        let text = |line| serde_json::to_string(&line).unwrap();
        let http = "127.0.0.1:8080".parse().unwrap();
        let grpc = "127.0.0.1:8081".parse().unwrap();
        assert_eq!(
            text(ServerEvent::Listening { http, grpc }),
            r#"{"event":"listening","http":"127.0.0.1:8080","grpc":"127.0.0.1:8081"}"#
        );
        let died = EngineEvent::WorkerExited {
            worker: 0,
            pid: 7,
            cause: "signal 9".into(),
        };
        assert_eq!(
            text(died.into()),
            r#"{"event":"worker_died","worker":0,"pid":7,"cause":"signal 9"}"#
        );
        assert_eq!(text(ServerEvent::Ready), r#"{"event":"ready"}"#);
    }
}
