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
        /// The HTTP address, with the port that was really bound.
        http: SocketAddr,
        grpc: SocketAddr,
    },
    /// A worker process was started.
    WorkerStarted { worker: usize, pid: i32 },
    /// A worker process died and will be started again.
    WorkerDied {
        worker: usize,
        pid: i32,
        cause: String,
    },
    /// Every worker is up: requests can be sent.
    Ready,
    /// A model, or another version of it, is served.
    ModelLoaded {
        model: String,
        source: String,
        /// SHA-256 of its file.
        sha256: String,
        /// What its store calls this version: the ETag of an object, the digest of an artifact.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<String>,
    },
    /// A call unloaded a model.
    ModelUnloaded { model: String },
    /// A model could not be loaded; its previous version is still served, and loading is retried,
    /// unless a call unloaded it.
    ModelFailed {
        model: String,
        source: String,
        /// Why, and what to do.
        error: String,
    },
    /// A new settings file is in force.
    SettingsApplied {
        /// SHA-256 of the file.
        sha256: String,
    },
    /// A new settings file is invalid; the previous one stays in force.
    SettingsRefused {
        /// Why, and what to do.
        error: String,
    },
    /// Parameters of the params stream are in force.
    ParametersApplied {
        /// `metadata.generation` of their deployment.
        generation: u64,
    },
    /// Parameters of the params stream are invalid; the previous ones stay in force.
    ParametersRefused {
        /// Which field, and why.
        error: String,
    },
    /// The params stream ended or cannot be opened; its last parameters stay in force for a while.
    ParametersLost {
        /// The value of `--params`.
        place: String,
        /// Why; reported again only when it changes.
        error: String,
    },
    /// The params stream was lost for so long that the settings are in force again.
    ParametersForgotten {
        /// The value of `--params`.
        place: String,
    },
    /// Policy `auto` chose whether batches of a model and kind are deferred.
    BatchingChosen {
        model: String,
        kind: &'static str,
        deferred: bool,
        /// Why, with the figures.
        reason: String,
    },
    /// The front died; this one has taken its place, with its workers.
    FrontDied {
        pid: i32,
        cause: String,
        /// Its connections, which were reset.
        connections: u64,
    },
    /// This front has taken the place of one of another binary.
    Upgraded { version: &'static str },
    /// The server no longer accepts connections.
    Draining,
    /// All accepted requests are answered, and all workers have ended.
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

/// Writes an event. A closed standard output does not stop the server.
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
