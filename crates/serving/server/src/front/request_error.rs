//! Errors of requests; each kind has an HTTP status code and a gRPC code.
//!
//! 429 and `RESOURCE_EXHAUSTED` mean "overloaded"; 503 and `UNAVAILABLE` mean only "shutting down
//! or not ready yet", because clients and proxies retry the latter by default, and retries amplify
//! an overload. With a retry budget, both may be retried on another server: no part of such a
//! request was computed. Errors that must not be retried anywhere are marked
//! ([`ErrorKind::forbids_retries`]). Rationale:
//! `docs/decisions/2026-11-26-refusals-and-retries.md`.

use std::borrow::Cow;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::HeaderName;
use tonic::Code;

use super::limits::BODY_BYTES_MAX;
use albacore_connections::HeadError;
use albacore_engine::{Refusal, RequestFailure};
use albacore_extensions::{RegionError, RepositoryError};
use albacore_live_settings::model_control::ModelControlError;
use albacore_rows::InvalidRows;
use albacore_values::sentence;

/// Reply header that prevents Envoy from retrying, even if it retries every 5xx or gateway error.
pub(super) const ENVOY_RATE_LIMITED: HeaderName = HeaderName::from_static("x-envoy-ratelimited");

/// Kind of an error, which determines both status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// The request is invalid; an unchanged retry fails again.
    Invalid,
    /// Unknown model, version or path.
    NotFound,
    /// The path is known, but not with this method.
    Method,
    /// The body arrived too slowly.
    Slow,
    /// Too many bytes or rows for one request.
    TooLarge,
    /// Unsupported content type or content coding.
    MediaType,
    /// The queue is full.
    Overloaded,
    /// The server is shutting down, or not ready yet.
    Unavailable,
    /// The timeout of the request expired.
    Expired,
    /// The request was accepted, but its computation failed.
    Failed,
    /// A call or a coding that is not implemented.
    Unimplemented,
}

impl ErrorKind {
    /// The HTTP status code.
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

    /// The gRPC code.
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

impl ErrorKind {
    /// Whether the request must not be retried on another server, because its deadline has passed
    /// or its rows may crash the workers there, too.
    pub(super) const fn forbids_retries(self) -> bool {
        matches!(self, Self::Expired | Self::Failed)
    }
}

/// The error of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(super) struct RequestError {
    pub(super) kind: ErrorKind,
    /// One sentence for the client: the problem, its location and the remedy.
    pub(super) message: Cow<'static, str>,
    /// When to retry.
    pub(super) retry_after: Option<Duration>,
}

impl RequestError {
    /// An error without `retry_after`.
    pub(super) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            retry_after: None,
        }
    }

    /// An invalid request.
    pub(super) fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// A body that exceeds [`BODY_BYTES_MAX`].
    pub(super) fn body_too_large(bytes: u64) -> Self {
        let message = format!(
            "a body of {bytes} bytes is more than the limit of {BODY_BYTES_MAX} bytes: send fewer \
             rows"
        );
        Self::new(ErrorKind::TooLarge, message)
    }

    /// The server is overloaded; the client should retry after one second.
    pub(super) fn overloaded(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            retry_after: Some(Duration::from_secs(1)),
            ..Self::new(ErrorKind::Overloaded, message)
        }
    }

    /// `Retry-After` in seconds, rounded up, because HTTP has no finer unit.
    pub(super) fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after
            .map(|after| after.as_millis().div_ceil(1000).max(1) as u64)
    }
}

impl From<Refusal> for RequestError {
    fn from(refusal: Refusal) -> Self {
        let (kind, retry_after) = match &refusal {
            Refusal::QueueFull { retry_after, .. }
            | Refusal::Late { retry_after, .. }
            | Refusal::MemoryFull { retry_after, .. } => {
                (ErrorKind::Overloaded, Some(*retry_after))
            }
            Refusal::NoWorkers { retry_after } => (ErrorKind::Unavailable, Some(*retry_after)),
            Refusal::Draining => (ErrorKind::Unavailable, None),
            Refusal::Expired => (ErrorKind::Expired, None),
            Refusal::TooLarge { .. } => (ErrorKind::TooLarge, None),
            Refusal::NoSuchOutput { .. } | Refusal::Invalid(_) => (ErrorKind::Invalid, None),
        };
        Self {
            kind,
            message: refusal.to_string().into(),
            retry_after,
        }
    }
}

impl From<InvalidRows> for RequestError {
    fn from(error: InvalidRows) -> Self {
        Self::invalid(error.message)
    }
}

impl From<RegionError> for RequestError {
    fn from(error: RegionError) -> Self {
        let kind = match error {
            RegionError::Disabled => ErrorKind::Unimplemented,
            RegionError::Unknown { .. } => ErrorKind::NotFound,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, sentence(&error))
    }
}

impl From<RepositoryError> for RequestError {
    fn from(error: RepositoryError) -> Self {
        let kind = match error {
            RepositoryError::TooLarge { .. } => ErrorKind::TooLarge,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, sentence(&error))
    }
}

impl From<ModelControlError> for RequestError {
    fn from(error: ModelControlError) -> Self {
        let message = error.to_string();
        match error {
            ModelControlError::Busy(_) => Self::overloaded(message),
            ModelControlError::Failed { .. } => Self::new(ErrorKind::Failed, message),
            ModelControlError::Gone(_) => Self::new(ErrorKind::Unavailable, message),
        }
    }
}

impl From<HeadError> for RequestError {
    fn from(error: HeadError) -> Self {
        let kind = match error {
            HeadError::UnknownTransferEncoding => ErrorKind::Unimplemented,
            _ => ErrorKind::Invalid,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<RequestFailure> for RequestError {
    fn from(failure: RequestFailure) -> Self {
        let kind = match &failure {
            RequestFailure::Poisonous { .. } | RequestFailure::Compute { .. } => ErrorKind::Failed,
            RequestFailure::Stopped => ErrorKind::Unavailable,
        };
        Self::new(kind, failure.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_full_queue_is_reported_as_overload() {
        let full = Refusal::QueueFull {
            retry_after: Duration::from_millis(1200),
            queued_rows: 9,
            rows_max: 9,
        };
        let error = RequestError::from(full);
        assert_eq!(error.kind.status().as_u16(), 429);
        assert_eq!(error.kind.code(), Code::ResourceExhausted);
        assert_eq!(error.retry_after_seconds(), Some(2));
        let poisonous = RequestFailure::Poisonous {
            crashes: 2,
            cause: "signal 11".to_owned(),
        };
        assert!(RequestError::from(poisonous).kind.forbids_retries());
        assert!(!error.kind.forbids_retries());
        let draining = RequestError::from(Refusal::Draining);
        assert_eq!(draining.kind.status().as_u16(), 503);
        assert_eq!(draining.kind.code(), Code::Unavailable);
    }

    #[test]
    fn a_client_gets_the_cause_of_an_error_once() {
        let not_json = || serde_json::from_str::<u8>("{").unwrap_err();
        let gone = || std::io::Error::other("the file is gone");
        let [key, name] = ["key", "name"].map(str::to_owned);
        let source = gone();
        let open = RegionError::Open { key, source };
        let source = gone();
        let io = RegionError::Io { name, source };
        let body = RegionError::Body(not_json());
        let repository_body = RepositoryError::Body(not_json());
        let invalid = not_json().to_string();
        let invalid = invalid.as_str();
        for (error, cause) in [
            (RequestError::from(body), invalid),
            (RequestError::from(open), "the file is gone"),
            (RequestError::from(io), "the file is gone"),
            (RequestError::from(repository_body), invalid),
        ] {
            let message = error.message;
            assert!(message.ends_with(&format!(": {cause}")), "{message}");
            assert_eq!(message.matches(cause).count(), 1, "{message}");
        }
    }
}
