use std::path::PathBuf;

/// Errors of an experiment or its report.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read, or results cannot be written.
    #[error("{}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The file is not a valid experiment.
    #[error("{}: {what}", path.display())]
    Spec { path: PathBuf, what: String },
    /// The folder contains results that this run cannot extend.
    #[error("{}: {what}", path.display())]
    Journal { path: PathBuf, what: String },
    /// The job of a cluster rejects a file, or has no results that match those of the client.
    #[error("{what}")]
    Job { what: String },
    #[error(transparent)]
    Os(#[from] albacore_os::OsError),
    /// The topology or the number of cpus of this machine cannot be read.
    #[error("this machine: {0}")]
    Machine(String),
    /// SIGINT or SIGTERM.
    #[error("interrupted after {done} of {all} windows: run the same command again to continue")]
    Interrupted { done: usize, all: usize },
}
