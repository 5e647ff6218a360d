//! Why a request gets no result, once for both protocols: an HTTP status and a gRPC code of one
//! cause.
//!
//! 429 and `RESOURCE_EXHAUSTED` say "overloaded"; 503 and `UNAVAILABLE` only "this server is going
//! away or not there yet": clients and proxies retry the latter by themselves, and retries multiply
//! an overload.

use std::borrow::Cow;
use std::time::Duration;

use hyper::StatusCode;
use tonic::Code;

use albacore_connections::HeadError;
use albacore_engine::{Failure, Refusal};

/// The cause of a refusal, which decides both codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The request itself is wrong; sent again unchanged it fails again.
    Invalid,
    /// No such model, version or path.
    NotFound,
    /// The path exists, the method does not.
    Method,
    /// The body stopped arriving.
    Slow,
    /// More bytes or rows than one request may hold.
    TooLarge,
    /// A content type or encoding that is not understood.
    MediaType,
    /// The queue is full.
    Overloaded,
    /// The server shuts down, or cannot compute yet.
    Unavailable,
    /// The request's own time was over before it could be queued.
    Expired,
    /// Accepted, and failed all the same.
    Failed,
    /// A call or a coding that this server does not have.
    Unimplemented,
}

impl Cause {
    /// The status of an HTTP reply.
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Overloaded => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Expired => StatusCode::GATEWAY_TIMEOUT,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        }
    }

    /// The code of a gRPC reply.
    pub(super) const fn code(self) -> Code {
        match self {
            Self::Invalid | Self::TooLarge | Self::MediaType => Code::InvalidArgument,
            Self::NotFound => Code::NotFound,
            Self::Method | Self::Unimplemented => Code::Unimplemented,
            Self::Slow | Self::Expired => Code::DeadlineExceeded,
            Self::Overloaded => Code::ResourceExhausted,
            Self::Unavailable => Code::Unavailable,
            Self::Failed => Code::Internal,
        }
    }
}

/// A request that gets no result, with the sentence that its sender reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct Refused {
    /// What decides the codes.
    pub(super) cause: Cause,
    /// One sentence: what is wrong, where, and what to do.
    pub(super) message: Cow<'static, str>,
    /// When trying again makes sense.
    pub(super) retry_after: Option<Duration>,
}

impl Refused {
    /// A refusal without advice on when to retry.
    pub(super) fn new(cause: Cause, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            cause,
            message: message.into(),
            retry_after: None,
        }
    }

    /// The request is wrong.
    pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Cause::Invalid, message)
    }

    /// `Retry-After` in whole seconds, rounded up: HTTP knows nothing finer.
    pub(super) fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after
            .map(|after| after.as_millis().div_ceil(1000).max(1) as u64)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let (cause, retry_after) = match &refusal {
            Refusal::QueueFull { retry_after, .. }
            | Refusal::Late { retry_after, .. }
            | Refusal::MemoryFull { retry_after, .. } => (Cause::Overloaded, Some(*retry_after)),
            Refusal::NoWorkers { retry_after } => (Cause::Unavailable, Some(*retry_after)),
            Refusal::Draining => (Cause::Unavailable, None),
            Refusal::Expired => (Cause::Expired, None),
            Refusal::TooLarge { .. } => (Cause::TooLarge, None),
            Refusal::NoSuchOutput { .. } | Refusal::Invalid(_) => (Cause::Invalid, None),
        };
        Self {
            cause,
            message: refusal.to_string().into(),
            retry_after,
        }
    }
}

impl From<HeadError> for Refused {
    fn from(error: HeadError) -> Self {
        let cause = match error {
            HeadError::UnknownTransferEncoding => Cause::Unimplemented,
            _ => Cause::Invalid,
        };
        Self::new(cause, error.to_string())
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        let cause = match &failure {
            Failure::Poisonous { .. } | Failure::Compute { .. } => Cause::Failed,
            Failure::Stopped => Cause::Unavailable,
        };
        Self::new(cause, failure.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_queue_is_told_as_overload() {
        let full = Refusal::QueueFull {
            retry_after: Duration::from_millis(1200),
            queued_rows: 9,
            rows_max: 9,
        };
        let refused = Refused::from(full);
        assert_eq!(refused.cause.status().as_u16(), 429);
        assert_eq!(refused.cause.code(), Code::ResourceExhausted);
        assert_eq!(refused.retry_after_seconds(), Some(2));
        let draining = Refused::from(Refusal::Draining);
        assert_eq!(draining.cause.status().as_u16(), 503);
        assert_eq!(draining.cause.code(), Code::Unavailable);
    }
}
