//! Converts the result of the last request to a store to an error with a remedy, without secrets.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ureq::http::HeaderMap;
use ureq::http::header::ETAG;

use super::settings::hide_secrets;
use crate::error::StorageErrorKind;
use crate::scheme::StoreKind;
use crate::variables::Variables;

/// Error codes of stores for invalid credentials.
const BAD_CREDENTIAL_CODES: [&str; 8] = [
    "AuthenticationFailed",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidAuthenticationInfo",
    "InvalidSecurity",
    "InvalidToken",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
];

/// Records the last request of a fetch, because errors of `object_store` contain too little, or
/// secrets.
#[derive(Debug)]
pub(super) struct RequestRecorder {
    store: StoreKind,
    variables: Variables,
    last: Mutex<LastRequest>,
}

/// The last request.
#[derive(Debug, Default)]
struct LastRequest {
    /// Whether it was for an object or a listing; otherwise for credentials.
    is_object: bool,
    host: String,
    failure: Option<StoreFailure>,
    /// ETag of the object whose bytes are being received.
    version: Option<Vec<u8>>,
}

#[derive(Debug)]
enum StoreFailure {
    Status { status: u16, code: String },
    StorageErrorKind(StorageErrorKind),
}

impl RequestRecorder {
    pub(super) fn new(store: StoreKind, variables: Variables) -> Self {
        Self {
            store,
            variables,
            last: Mutex::default(),
        }
    }

    fn last(&self) -> MutexGuard<'_, LastRequest> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin_request(&self, is_object: bool, host: &str) {
        let mut last = self.last();
        last.is_object = is_object;
        host.clone_into(&mut last.host);
        last.failure = None;
    }

    pub(super) fn record_failure(&self, problem: StorageErrorKind) {
        self.last().failure = Some(StoreFailure::StorageErrorKind(problem));
    }

    pub(super) fn record_status(&self, status: u16, body: &[u8]) {
        let code = code(body);
        self.last().failure = Some(StoreFailure::Status { status, code });
    }

    /// Records the ETag of a response with the object, or with the remainder of it after an
    /// interruption. A different ETag means that the object was replaced.
    pub(super) fn record_version(&self, headers: &HeaderMap) {
        let mut last = self.last();
        let version = headers.get(ETAG).map(|tag| tag.as_bytes().to_vec());
        if last.version.is_some() && last.version != version {
            last.failure = Some(StoreFailure::StorageErrorKind(StorageErrorKind::Replaced));
        }
        last.version = version;
    }

    /// Resets the recorded ETag before another object is fetched.
    pub(super) fn reset_version(&self) {
        self.last().version = None;
    }

    /// Returns the cause of `error`, an error of `object_store`.
    pub(super) fn explain(&self, error: &dyn std::error::Error) -> StorageErrorKind {
        let mut last = self.last();
        let host = std::mem::take(&mut last.host);
        match (last.failure.take(), last.is_object) {
            (Some(StoreFailure::Status { status, code }), true) => {
                self.status_problem(status, &code)
            }
            (Some(StoreFailure::Status { status, code }), false) => self.credentials_problem(
                &host,
                &format!("answered {}", status_and_code(status, &code)),
            ),
            (Some(StoreFailure::StorageErrorKind(problem)), false) => {
                self.credentials_problem(&host, &problem.to_string())
            }
            (Some(StoreFailure::StorageErrorKind(StorageErrorKind::Network(text))), true) => {
                StorageErrorKind::Network(format!("{host}: {text}"))
            }
            (Some(StoreFailure::StorageErrorKind(problem)), true) => problem,
            (None, _) => StorageErrorKind::Store {
                found: format!(
                    "cannot be fetched: {}",
                    hide_secrets(&self.variables, &error.to_string())
                ),
                remedy: format!(
                    "check {} and {}",
                    self.store.endpoint_variables(),
                    self.store.credential_variables()
                ),
            },
        }
    }

    fn credentials_problem(&self, host: &str, what: &str) -> StorageErrorKind {
        StorageErrorKind::Store {
            found: format!("needs credentials, and {host} gave none: it {what}"),
            remedy: format!(
                "set {}, from a Secret in a pod, or give the pod a cloud identity",
                self.store.credential_variables()
            ),
        }
    }

    fn status_problem(&self, status: u16, code: &str) -> StorageErrorKind {
        let (endpoint_variables, credential_variables) = (
            self.store.endpoint_variables(),
            self.store.credential_variables(),
        );
        let is_missing_bucket = ["NoSuchBucket", "ContainerNotFound"].contains(&code);
        let (what, remedy) = match status {
            404 if is_missing_bucket => (
                "is in a bucket that does not exist",
                format!("correct the bucket, or {endpoint_variables}"),
            ),
            404 | 410 => ("does not exist", "correct the key".to_owned()),
            401 | 403 | 400 if BAD_CREDENTIAL_CODES.contains(&code) => (
                "cannot be read, as the credentials are wrong or expired",
                format!("correct {credential_variables}"),
            ),
            401 | 403 => (
                "cannot be accessed with these credentials",
                "grant them read permission; some stores answer this for a missing key".to_owned(),
            ),
            301 | 302 | 307 | 308 => (
                "is at another endpoint",
                format!("correct {endpoint_variables}"),
            ),
            400 if code.starts_with("AuthorizationHeader") => (
                "is in another region",
                format!("correct {endpoint_variables}"),
            ),
            408 | 429 | 500..=599 => (
                "cannot be fetched now, as the store has a problem",
                "it is retried".to_owned(),
            ),
            _ => (
                "was refused",
                format!("correct the URL, or {endpoint_variables}"),
            ),
        };
        StorageErrorKind::Store {
            found: format!(
                "{what}: the store answered {}",
                status_and_code(status, code)
            ),
            remedy,
        }
    }
}

fn status_and_code(status: u16, code: &str) -> String {
    format!("{status} {code}").trim_end().to_owned()
}

/// Returns the error code in a response body; nothing else of the body is shown, because it may
/// repeat a signed request.
fn code(body: &[u8]) -> String {
    let body = String::from_utf8_lossy(body);
    let code = body.split_once("<Code>").map_or("", |(_, rest)| rest);
    let code = code.split_once("</Code>").map_or("", |(code, _)| code);
    let is_code = code.len() <= 64 && code.chars().all(|c| c.is_ascii_alphanumeric());
    if is_code { code } else { "" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_error_code_of_a_response_is_used() {
        for (body, found) in [
            ("<Error><Code>NoSuchKey</Code><Key>a</Key>", "NoSuchKey"),
            ("<Code>token: secret</Code>", ""),
            ("<Code>Cut", ""),
            ("not found", ""),
        ] {
            assert_eq!(code(body.as_bytes()), found);
        }
    }

    #[test]
    fn each_status_has_its_own_message() {
        let recorder = RequestRecorder::new(StoreKind::S3, Variables::default());
        for (status, code, words) in [
            (404, "NoSuchBucket", "is in a bucket that does not exist"),
            (
                404,
                "NoSuchKey",
                "does not exist: the store answered 404 NoSuchKey: correct the key",
            ),
            (
                403,
                "SignatureDoesNotMatch",
                "credentials are wrong or expired",
            ),
            (
                403,
                "AccessDenied",
                "cannot be accessed with these credentials",
            ),
            (301, "PermanentRedirect", "is at another endpoint"),
            (400, "AuthorizationHeaderMalformed", "is in another region"),
            (503, "SlowDown", "it is retried"),
            (
                418,
                "",
                "was refused: the store answered 418: correct the URL",
            ),
        ] {
            let text = recorder.status_problem(status, code).to_string();
            assert!(text.contains(words), "{status} {code}: {text}");
        }
    }
}
