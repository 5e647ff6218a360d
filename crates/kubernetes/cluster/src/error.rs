//! Errors of requests and their classes.

use std::path::PathBuf;
use std::time::Duration;

use kube_client::core::Status;

/// Error of a request or a connection.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The kubeconfig cannot be used.
    #[error(
        "kubeconfig {path}: give a file with a reachable cluster and a user with valid credentials"
    )]
    Kubeconfig {
        path: PathBuf,
        source: Box<kube_client::config::KubeconfigError>,
    },
    /// There is no service account.
    #[error("this process does not run in a pod with a service account: give a kubeconfig")]
    InCluster {
        source: Box<kube_client::config::InClusterError>,
    },
    /// The client cannot be built.
    #[error("cannot create the client of the API server")]
    Client { source: Box<kube_client::Error> },
    /// The API server rejected the request.
    #[error("{action}: {} (HTTP {})", status.message, status.code)]
    Rejected {
        /// The request: verb, kind and object.
        action: String,
        /// The API server's response.
        status: Box<Status>,
        /// The pause that the API server requires.
        retry_after: Duration,
    },
    #[error("{action}: no response from the API server")]
    NoResponse {
        /// The request: verb, kind and object.
        action: String,
        source: Box<kube_client::Error>,
    },
    /// There was no response before the timeout.
    #[error("{action}: no response from the API server for {seconds} s")]
    TimedOut {
        /// The request: verb, kind and object.
        action: String,
        seconds: u64,
    },
    /// The connection to a program in a container was closed before the program exited.
    #[error("{action}: connection closed")]
    ConnectionClosed {
        /// The request: verb, kind and object.
        action: String,
    },
    /// The response does not match its kind.
    #[error("{action}: cannot parse the response of the API server")]
    MalformedResponse {
        /// The request: verb, kind and object.
        action: String,
        source: Box<kube_client::Error>,
    },
    /// A write was not sent, because the process does not hold its lease.
    #[error("{action}: not sent, because this process does not hold its lease")]
    NotLeading {
        /// The request: verb, kind and object.
        action: String,
    },
    /// The request cannot be built.
    #[error("{action}: {what}")]
    InvalidRequest {
        /// The request: verb, kind and object.
        action: String,
        what: String,
    },
}

/// The class of an error, which determines when a retry is useful.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The API server rejects the object: a retry is useless until the object is changed.
    Invalid,
    /// Another client wrote the object: read it again, then decide again.
    Conflict,
    /// The object, its namespace or its kind does not exist.
    NotFound,
    /// Not permitted (permissions, quotas, policies) until an administrator changes that.
    Forbidden,
    /// The API server does not know the kind yet, because its definition was just installed.
    KindUnknown,
    /// Too many requests: do not retry before this time has passed.
    Throttled(Duration),
    Transient,
    /// The request should not have been sent: a bug of this program.
    Bug,
}

impl ClusterError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Rejected {
                status,
                retry_after,
                ..
            } => class_of(status, *retry_after),
            Self::NoResponse { .. }
            | Self::TimedOut { .. }
            | Self::ConnectionClosed { .. }
            | Self::NotLeading { .. } => ErrorClass::Transient,
            Self::Kubeconfig { .. } | Self::InCluster { .. } | Self::Client { .. } => {
                ErrorClass::Invalid
            }
            Self::MalformedResponse { .. } | Self::InvalidRequest { .. } => ErrorClass::Bug,
        }
    }

    /// The error with its causes as one string, for logs and conditions.
    pub fn text(&self) -> String {
        with_causes(self)
    }

    /// HTTP code and message of the API server's response; `None` if it did not respond.
    pub fn response(&self) -> Option<(u16, &str)> {
        match self {
            Self::Rejected { status, .. } => Some((status.code, &status.message)),
            _ => None,
        }
    }

    /// The invalid fields in the API server's response, e.g.
    /// `spec.template.spec.containers[0].image`; empty if it names none.
    pub fn fields(&self) -> Vec<&str> {
        let Self::Rejected { status, .. } = self else {
            return Vec::new();
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes
            .map(|cause| cause.field.as_str())
            .filter(|field| !field.is_empty())
            .collect()
    }
}

/// An error with its causes as one string.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    // bound: the chain of causes is finite.
    while let Some(error) = source {
        let part = error.to_string();
        // Some errors already include the text of their cause.
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        source = error.source();
    }
    text
}

/// Prefix of the API server's response to an apply that does not match the schema of its kind. The
/// code is 500, although the object is invalid.
const MISFIT: &str = "failed to create typed patch object";

/// Text of the response (403) of the admission plugin OwnerReferencesPermissionEnforcement before
/// it has discovered the owner's kind; it discovers kinds every 30 s.
const UNMAPPED: &str = "cannot find RESTMapping";

fn class_of(status: &Status, retry_after: Duration) -> ErrorClass {
    match status.code {
        500 if status.message.starts_with(MISFIT) => ErrorClass::Invalid,
        422 if is_another(status) => ErrorClass::Conflict,
        // Strict validation responds with 400 to a field that the kind does not have.
        400 | 413 | 422 => ErrorClass::Invalid,
        409 => ErrorClass::Conflict,
        404 => ErrorClass::NotFound,
        403 if status.message.contains(UNMAPPED) => ErrorClass::KindUnknown,
        401 | 403 => ErrorClass::Forbidden,
        429 => ErrorClass::Throttled(retry_after),
        408 | 410 | 500..=599 => ErrorClass::Transient,
        _ => ErrorClass::Bug,
    }
}

/// Whether the only error is that another object has the name now, which has another uid than the
/// request.
fn is_another(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| &details.causes);
    causes.is_some_and(|causes| {
        !causes.is_empty() && causes.iter().all(|cause| cause.field == "metadata.uid")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_code_has_a_class() {
        let wait = Duration::from_secs(3);
        for (code, class) in [
            (400, ErrorClass::Invalid),
            (401, ErrorClass::Forbidden),
            (403, ErrorClass::Forbidden),
            (404, ErrorClass::NotFound),
            (405, ErrorClass::Bug),
            (409, ErrorClass::Conflict),
            (410, ErrorClass::Transient),
            (413, ErrorClass::Invalid),
            (415, ErrorClass::Bug),
            (422, ErrorClass::Invalid),
            (429, ErrorClass::Throttled(wait)),
            (500, ErrorClass::Transient),
            (503, ErrorClass::Transient),
            (504, ErrorClass::Transient),
        ] {
            let status = Box::new(Status::failure("no", "x").with_code(code));
            let error = ClusterError::Rejected {
                action: "apply pods a/b".to_owned(),
                status,
                retry_after: wait,
            };
            assert_eq!(error.class(), class, "{code}");
            assert_eq!(
                error.to_string(),
                format!("apply pods a/b: no (HTTP {code})")
            );
        }
    }
}
