//! The architectures that images and released programs are made for.

use std::io::{Error, ErrorKind, Result};

/// A kind of cpu, ordered by its name at the OCI.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    pub const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// That of this machine.
    ///
    /// # Errors
    /// Nothing is released for it.
    pub fn of_this_machine() -> Result<Self> {
        let own = |architecture: &Self| architecture.cpu() == std::env::consts::ARCH;
        Self::ALL.into_iter().find(own).ok_or_else(|| {
            let arch = std::env::consts::ARCH;
            let text = format!("images are made on x86_64 and aarch64; this machine is {arch}");
            Error::new(ErrorKind::Unsupported, text)
        })
    }

    /// The name at the OCI, at Go and at Kubernetes.
    #[must_use]
    pub const fn oci(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The name in targets of Rust and of C compilers.
    #[must_use]
    pub const fn cpu(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// Rust's target of static programs.
    #[must_use]
    pub fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.cpu())
    }
}
