//! Calls of Triton that this server has not.

/// Calls of Triton that this server has not, and says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsupportedCall {
    CudaSharedMemory,
    Trace,
    Logging,
}

impl UnsupportedCall {
    /// By its name over gRPC.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "CudaSharedMemoryStatus"
            | "CudaSharedMemoryRegister"
            | "CudaSharedMemoryUnregister" => Some(Self::CudaSharedMemory),
            "TraceSetting" => Some(Self::Trace),
            "LogSettings" => Some(Self::Logging),
            _ => None,
        }
    }

    /// Why not, and what to use instead.
    #[must_use]
    pub const fn refusal(self) -> &'static str {
        match self {
            Self::CudaSharedMemory => {
                "CUDA shared memory is not supported: this server computes on cpus; use system \
                 shared memory"
            }
            Self::Trace => {
                "trace settings are not supported: replies carry server-timing, and /metrics the \
                 stages of requests"
            }
            Self::Logging => {
                "log settings are not supported: the environment of the server sets what it logs"
            }
        }
    }
}
