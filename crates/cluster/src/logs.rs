//! Structured logs on stderr.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;

use crate::ClusterError;

/// How log lines are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("\"{other}\" is no log format: write text or json")),
        }
    }
}

/// Starts logs of this process. `filter` is in the words of `RUST_LOG`, e.g. `info` or `debug,kube_client=info`.
///
/// # Errors
/// `filter` cannot be read, or logs were started before.
pub fn start_logs(format: LogFormat, filter: &str) -> Result<(), ClusterError> {
    // The client logs every answer 5xx and every lost watch as its own; whoever asked says it better. A filter that names
    // it comes later, and wins.
    let filter = format!("kube_client=off,kube_runtime=off,{filter}");
    let filter = EnvFilter::try_new(&filter).map_err(|error| ClusterError::Logs {
        what: format!("{filter}: {error}"),
    })?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => logs.with_ansi(false).try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| ClusterError::Logs {
        what: error.to_string(),
    })
}
