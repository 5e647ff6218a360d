//! Calls of Triton and SageMaker that this server does not support.

/// A call of Triton or SageMaker that the server rejects explicitly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsupportedCall {
    CudaSharedMemory,
    Trace,
    Logging,
    /// SageMaker's calls for multi-model containers.
    MultiModel,
}

impl UnsupportedCall {
    /// Finds a call by its gRPC method name.
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

    /// The error message: the reason and the alternative.
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
                "log settings are not supported: set ALBACORE_LOG in the environment of the server"
            }
            Self::MultiModel => {
                "SageMaker's multi-model endpoints, which load and unload models by a path, are \
                 not supported: this server serves only the models of its arguments or settings. \
                 Create an endpoint with one model, or name all models with --model or --settings \
                 and call them by /models/NAME/invoke"
            }
        }
    }
}
