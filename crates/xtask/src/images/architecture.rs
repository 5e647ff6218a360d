//! The CPU architectures for which images and released programs are built.

use std::io::{Error, ErrorKind, Result};

/// A CPU architecture, ordered by its OCI name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    pub const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// The architecture of this machine.
    ///
    /// # Errors
    /// No release is built for it.
    pub fn of_this_machine() -> Result<Self> {
        let own = |architecture: &Self| architecture.cpu() == std::env::consts::ARCH;
        Self::ALL.into_iter().find(own).ok_or_else(|| {
            let arch = std::env::consts::ARCH;
            let text = format!("images are made on x86_64 and aarch64; this machine is {arch}");
            Error::new(ErrorKind::Unsupported, text)
        })
    }

    /// The name used by OCI, Go and Kubernetes.
    #[must_use]
    pub const fn oci(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The name in target triples of Rust and of C compilers.
    #[must_use]
    pub const fn cpu(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// The Rust target for static programs.
    #[must_use]
    pub fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.cpu())
    }
}
