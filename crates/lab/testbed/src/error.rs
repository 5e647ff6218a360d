//! Errors of control planes and nodes.

use std::path::PathBuf;

/// Error of starting a control plane or a node; names the program and quotes its log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// The programs could not be built.
    #[error("{} ended with {status}: what it wrote is above", script.display())]
    Build {
        script: PathBuf,
        status: std::process::ExitStatus,
    },
    /// A program of this workspace could not be built.
    #[error("cargo build --package {name}: {status}")]
    Product {
        /// The package, which has the same name as its program.
        name: String,
        status: std::process::ExitStatus,
    },
    /// A program that should have been built is missing.
    #[error("{}: not found; run `cargo build --workspace --bins`", program.display())]
    NoProduct { program: PathBuf },
    /// The executable is not in a target folder of cargo.
    #[error("{}: not in a target folder of cargo, where the other programs are", program.display())]
    NoTest { program: PathBuf },
    /// A program did not start.
    #[error("cannot start {program}")]
    Start {
        program: &'static str,
        source: albacore_os::OsError,
    },
    /// A program exited unexpectedly.
    #[error("{program} ended with {status}; its log: {tail}")]
    Ended {
        program: &'static str,
        status: std::process::ExitStatus,
        /// The last lines of its log.
        tail: String,
    },
    /// A program was not ready in time.
    #[error("{program} is not ready after {seconds} s; its log: {tail}")]
    NotReady {
        program: &'static str,
        seconds: u64,
        /// The last lines of its log.
        tail: String,
    },
    /// A node or its network could not be started.
    #[error("the node: {message}")]
    Node {
        /// The log of the process that failed.
        message: String,
    },
    /// A certificate could not be created.
    #[error("cannot create a certificate for {name}")]
    Certificate { name: String, source: rcgen::Error },
    /// A kubectl command failed.
    #[error("kubectl {command}: {message}")]
    Kubectl { command: String, message: String },
    /// A file or folder could not be used.
    #[error("cannot access {}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl TestbedError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
