//! Errors of requests, and what each means for whoever asked.

use std::path::PathBuf;
use std::time::Duration;

use kube_client::core::Status;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The kubeconfig cannot be used.
    #[error(
        "kubeconfig {path}: name a file with a reachable cluster and a user that can be proven"
    )]
    Kubeconfig {
        path: PathBuf,
        /// What is wrong with it.
        source: Box<kube_client::config::KubeconfigError>,
    },
    /// There is no service account here.
    #[error("this process runs in no pod with a service account: give it a kubeconfig")]
    InCluster {
        source: Box<kube_client::config::InClusterError>,
    },
    /// The client cannot be built.
    #[error("the client of the API server cannot be made")]
    Client { source: Box<kube_client::Error> },
    /// The API server said no.
    #[error("{action}: {} (HTTP {})", status.message, status.code)]
    Refused {
        /// What was asked: verb, kind and object.
        action: String,
        /// What the API server said.
        status: Box<Status>,
        /// How long it asks us to wait.
        retry_after: Duration,
    },
    #[error("{action}: no answer from the API server")]
    NoAnswer {
        /// What was asked: verb, kind and object.
        action: String,
        source: Box<kube_client::Error>,
    },
    /// No answer came in time.
    #[error("{action}: no answer from the API server for {seconds} s")]
    TimedOut {
        /// What was asked: verb, kind and object.
        action: String,
        /// How long we waited.
        seconds: u64,
    },
    /// The answer cannot be read.
    #[error("{action}: the answer of the API server is not what its kind says")]
    Unreadable {
        /// What was asked: verb, kind and object.
        action: String,
        source: Box<kube_client::Error>,
    },
    /// A write of a process that does not hold its lease. It was not sent.
    #[error("{action}: not sent, because this process does not hold its lease")]
    NotLeading {
        /// What was asked: verb, kind and object.
        action: String,
    },
    /// A write that cannot be meant.
    #[error("{action}: {what}")]
    Unsendable {
        /// What was asked: verb, kind and object.
        action: String,
        what: String,
    },
}

/// What an error means for whoever asked; decides when it is worth asking again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The object is not as the API server wants it: asking again changes nothing before the object
    /// is changed.
    Invalid,
    /// Somebody else was faster: look again, then decide anew.
    Conflict,
    /// The object, its namespace or its kind is not there.
    NotFound,
    /// It is not permitted (rights, quotas, policies): somebody has to permit it.
    Forbidden,
    /// The API server does not know a kind yet, because its definition was installed a moment ago.
    KindUnknown,
    /// Too many requests: not before this time.
    Throttled(Duration),
    Transient,
    /// The request should not have been made: the program is wrong.
    Bug,
}

impl ClusterError {
    /// What the error means for whoever asked.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Refused {
                status,
                retry_after,
                ..
            } => class_of(status, *retry_after),
            Self::NoAnswer { .. } | Self::TimedOut { .. } | Self::NotLeading { .. } => {
                ErrorClass::Transient
            }
            Self::Kubeconfig { .. } | Self::InCluster { .. } | Self::Client { .. } => {
                ErrorClass::Invalid
            }
            Self::Unreadable { .. } | Self::Unsendable { .. } => ErrorClass::Bug,
        }
    }

    /// The error and what is under it, as one text, for logs and conditions.
    pub fn text(&self) -> String {
        with_causes(self)
    }

    /// HTTP code and message of the API server's answer; `None` if it did not answer.
    pub fn answer(&self) -> Option<(u16, &str)> {
        match self {
            Self::Refused { status, .. } => Some((status.code, &status.message)),
            _ => None,
        }
    }

    /// Fields that the API server named as wrong, e.g. `spec.template.spec.containers[0].image`;
    /// empty if it named none.
    pub fn fields(&self) -> Vec<&str> {
        let Self::Refused { status, .. } = self else {
            return Vec::new();
        };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        causes
            .map(|cause| cause.field.as_str())
            .filter(|field| !field.is_empty())
            .collect()
    }
}

/// An error and what is under it, as one text.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    // bound: errors hold their causes, so there is no circle.
    while let Some(error) = source {
        let part = error.to_string();
        // Some errors print their cause themselves.
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        source = error.source();
    }
    text
}

/// How an API server begins its answer to an apply that does not fit the schema of its kind. The
/// code is 500, though nothing is wrong with the API server.
const MISFIT: &str = "failed to create typed patch object";

/// What the admission plugin OwnerReferencesPermissionEnforcement says (with 403) of owners whose
/// kind it has not discovered yet: it looks for new kinds every 30 s.
const UNMAPPED: &str = "cannot find RESTMapping";

fn class_of(status: &Status, retry_after: Duration) -> ErrorClass {
    match status.code {
        500 if status.message.starts_with(MISFIT) => ErrorClass::Invalid,
        422 if is_another(status) => ErrorClass::Conflict,
        // Strict validation answers 400 for a field that the kind does not have.
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

/// Whether the one thing wrong is that another object has the name by now: the uid that was named
/// is not its.
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
    fn every_answer_has_a_class() {
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
            let error = ClusterError::Refused {
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
