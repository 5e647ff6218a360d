//! Structured logging to stderr.

use std::str::FromStr;

use tracing_subscriber::EnvFilter;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!(
                "\"{other}\" is not a log format: write text or json"
            )),
        }
    }
}

/// The arguments of every long-running program for its logs.
#[derive(Clone, Debug, clap::Args)]
pub struct LogArgs {
    /// Log format: text or json.
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        env = "ALBACORE_LOG",
        global = true
    )]
    log: LogFormat,
    /// Log filter, in the syntax of RUST_LOG.
    #[arg(
        long,
        value_name = "FILTER",
        default_value = "info",
        env = "ALBACORE_LOG_FILTER",
        global = true
    )]
    log_filter: String,
}

impl LogArgs {
    /// Initializes logging of this process.
    ///
    /// # Errors
    /// As [`start_logs`].
    pub fn start(&self) -> Result<(), LogsError> {
        start_logs(self.log, &self.log_filter)
    }
}

/// Logging cannot be initialized.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// The filter cannot be parsed.
    #[error("invalid log filter {filter:?}: write a level such as info, or target=level")]
    Filter {
        /// The rejected filter.
        filter: String,
        source: tracing_subscriber::filter::ParseError,
    },
    /// Logging is already initialized in this process.
    #[error("logging is already initialized")]
    Started,
}

/// Initializes logging of this process. `filter` has the syntax of `RUST_LOG`, e.g. `info` or
/// `debug,kube_client=info`.
///
/// # Errors
/// `filter` cannot be parsed, or logs were started before.
pub fn start_logs(format: LogFormat, filter: &str) -> Result<(), LogsError> {
    // The Kubernetes client logs every 5xx response and every lost watch; our own messages are more
    // specific. A user filter for it is appended, and therefore overrides this one.
    let whole = format!("kube_client=off,kube_runtime=off,{filter}");
    let whole = EnvFilter::try_new(&whole).map_err(|source| LogsError::Filter {
        filter: filter.to_owned(),
        source,
    })?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(whole)
        .with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => logs.with_ansi(false).try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
    started.map_err(|_| LogsError::Started)
}

#[cfg(test)]
mod tests {
    use super::{LogFormat, LogsError, start_logs};

    #[test]
    fn a_format_or_a_filter_that_is_none_is_named() {
        let wrong: Result<LogFormat, String> = "xml".parse();
        assert_eq!(
            wrong,
            Err("\"xml\" is not a log format: write text or json".to_owned())
        );
        let wrong = start_logs(LogFormat::Json, "info,=,");
        let Err(LogsError::Filter { filter, .. }) = wrong else {
            panic!("{wrong:?}");
        };
        assert_eq!(filter, "info,=,");
    }
}
