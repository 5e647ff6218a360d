use std::path::PathBuf;

/// Why an experiment or its report fails.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read, or results cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The file is no valid experiment.
    #[error("{}: {what}", path.display())]
    Spec { path: PathBuf, what: String },
    /// The folder has results that this run cannot be added to.
    #[error("{}: {what}", path.display())]
    Journal { path: PathBuf, what: String },
    /// The job of a cluster cannot take a file, or has no results for whoever asks.
    #[error("{what}")]
    Job { what: String },
    #[error(transparent)]
    Os(#[from] albacore_os::OsError),
    /// The machine's topology is not understood.
    #[error("this machine: {0}")]
    Machine(String),
    /// SIGINT or SIGTERM.
    #[error("interrupted after {done} of {all} windows: run the same command again to go on")]
    Interrupted { done: usize, all: usize },
}
