//! What the server says on its standard output: one JSON object a line.

use std::io::Write as _;
use std::net::SocketAddr;

use serde::Serialize;

use albacore_engine::EngineEvent;

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
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
    /// A model is served, or another edition of it.
    ModelLoaded {
        model: String,
        /// Where it came from.
        source: String,
        /// SHA-256 of its file.
        sha256: String,
    },
    /// A model could not be loaded; what was served of it still is, and it is tried again.
    ModelFailed {
        model: String,
        /// Where it should come from.
        source: String,
        /// Why, and what to do.
        error: String,
    },
    /// A new settings file is in force.
    SettingsApplied {
        /// SHA-256 of the file.
        sha256: String,
    },
    /// A new settings file is wrong; the old one stays in force.
    SettingsRefused {
        /// Why, and what to do.
        error: String,
    },
    /// Parameters of `--params` are in force.
    ParametersApplied {
        /// Of the deployment that they are of.
        generation: u64,
        /// Fields that change nothing in this version.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        unused: Vec<&'static str>,
    },
    /// Parameters of `--params` are wrong; those before stay in force.
    ParametersRefused {
        /// Which field, and why.
        error: String,
    },
    /// `--params` is not there, or not any more; what it said last stays in force for a while.
    ParametersLost {
        /// Where it should be.
        place: String,
        /// Why; told again only when it changes.
        error: String,
    },
    /// `--params` was away for so long that the settings are in force again.
    ParametersForgotten {
        /// Where it should be.
        place: String,
    },
    /// No connection is accepted any more.
    Draining,
    /// Everything that was accepted is answered, no worker is left.
    Stopped,
}

impl From<EngineEvent> for Line {
    fn from(event: EngineEvent) -> Self {
        match event {
            EngineEvent::WorkerStarted { worker, pid } => Self::WorkerStarted { worker, pid },
            EngineEvent::WorkerExited { worker, pid, cause } => {
                Self::WorkerDied { worker, pid, cause }
            }
        }
    }
}

/// Writes a line. A reader that went away is no reason to stop serving.
pub fn say(line: &Line) {
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
    fn lines_are_those_of_the_contract() {
        let text = |line| serde_json::to_string(&line).unwrap();
        let http = "127.0.0.1:8080".parse().unwrap();
        let grpc = "127.0.0.1:8081".parse().unwrap();
        assert_eq!(
            text(Line::Listening { http, grpc }),
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
        assert_eq!(text(Line::Ready), r#"{"event":"ready"}"#);
    }
}
