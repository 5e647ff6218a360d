//! Maps a rejected write of a child to the reason for conditions and events. Pure.

use albacore_api::remedy_of;
use albacore_cluster::{ClusterError, ErrorClass};

use crate::limits::MESSAGE_CHARS_MAX;

/// A write or deletion of a child that the API server refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RejectedWrite {
    /// Reason of the condition and the event, one of [`RejectedWrite::REASONS`].
    pub(crate) reason: &'static str,
    /// The attempted write, and the API server's response.
    pub(crate) message: String,
    /// Whether user action is required; otherwise the problem is transient.
    pub(crate) is_permanent: bool,
    /// Determines the retry delay.
    pub(crate) class: ErrorClass,
}

impl RejectedWrite {
    pub(crate) const REASONS: [&'static str; 7] = [
        "QuotaExceeded",
        "NamespaceTerminating",
        "AdmissionDenied",
        "MissingPermission",
        "ChildRefused",
        "KindNotServed",
        "WriteFailed",
    ];

    /// The rejection that `error` reports; `None` without a response, or for responses that a retry
    /// resolves (conflict, too many requests).
    pub(crate) fn of(error: &ClusterError) -> Option<Self> {
        let (code, message) = error.response()?;
        let class = error.class();
        let reason = reason_of(class, code, message)?;
        Some(Self {
            reason,
            message: error.to_string(),
            is_permanent: !matches!(reason, "KindNotServed" | "WriteFailed"),
            // Whether a child is valid may depend on other objects, such as policies. Therefore it
            // is retried like a forbidden one.
            class: match class {
                ErrorClass::Invalid | ErrorClass::Bug => ErrorClass::Forbidden,
                class => class,
            },
        })
    }
}

fn reason_of(class: ErrorClass, code: u16, message: &str) -> Option<&'static str> {
    let has = |words: &str| message.contains(words);
    Some(match class {
        ErrorClass::Conflict | ErrorClass::Throttled(_) => return None,
        ErrorClass::KindUnknown => "KindNotServed",
        ErrorClass::NotFound if has("namespaces \"") => "NamespaceTerminating",
        ErrorClass::NotFound => "KindNotServed",
        ErrorClass::Transient => "WriteFailed",
        _ if has("exceeded quota") || has("failed quota") => "QuotaExceeded",
        _ if has("it is being terminated") => "NamespaceTerminating",
        _ if has("admission webhook") || has("ValidatingAdmissionPolicy") => "AdmissionDenied",
        _ if code == 401 || (code == 403 && has(" cannot ")) => "MissingPermission",
        ErrorClass::Forbidden => "AdmissionDenied",
        ErrorClass::Invalid | ErrorClass::Bug => "ChildRefused",
    })
}

/// Appends the remedy of `reason` to a message, if there is one; shortens the message so that the
/// remedy fits.
pub(crate) fn with_remedy(message: &str, reason: &str) -> String {
    let remedy = remedy_of(reason).map_or(String::new(), |remedy| format!("; {remedy}"));
    let room = MESSAGE_CHARS_MAX.saturating_sub(remedy.chars().count());
    let mut text: String = message.chars().take(room).collect();
    text.push_str(&remedy);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Class and code of an error, the API server's message, and the expected reason of the
    /// condition.
    const CASES: [(ErrorClass, u16, &str, Option<&str>); 12] = [
        (
            ErrorClass::Forbidden,
            403,
            "services \"a\" is forbidden: exceeded quota: q, requested: services=1, used: \
                 services=0, limited: services=0",
            Some("QuotaExceeded"),
        ),
        (
            ErrorClass::Forbidden,
            403,
            "configmaps \"a\" is forbidden: unable to create new content in namespace b because \
                 it is being terminated",
            Some("NamespaceTerminating"),
        ),
        (
            ErrorClass::Invalid,
            422,
            "deployments.apps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding \
                 'p' denied request: no",
            Some("AdmissionDenied"),
        ),
        (
            ErrorClass::Forbidden,
            403,
            "admission webhook \"w\" denied the request: it cannot be",
            Some("AdmissionDenied"),
        ),
        (
            ErrorClass::Forbidden,
            403,
            "services \"a\" is forbidden: User \"c\" cannot patch resource \"services\"",
            Some("MissingPermission"),
        ),
        (
            ErrorClass::Forbidden,
            401,
            "Unauthorized",
            Some("MissingPermission"),
        ),
        (ErrorClass::Invalid, 422, "spec.x: no", Some("ChildRefused")),
        (
            ErrorClass::KindUnknown,
            403,
            "no kind",
            Some("KindNotServed"),
        ),
        (
            ErrorClass::NotFound,
            404,
            "no such page",
            Some("KindNotServed"),
        ),
        (
            ErrorClass::NotFound,
            404,
            "namespaces \"b\" not found",
            Some("NamespaceTerminating"),
        ),
        (
            ErrorClass::Transient,
            500,
            "failed calling webhook \"w\"",
            Some("WriteFailed"),
        ),
        (ErrorClass::Conflict, 409, "modified", None),
    ];

    #[test]
    fn messages_of_api_servers_map_to_reasons() {
        for (class, code, message, reason) in CASES {
            let found = reason_of(class, code, message);
            assert_eq!(found, reason, "{message}");
            assert!(found.is_none_or(|reason| RejectedWrite::REASONS.contains(&reason)));
        }
    }

    #[test]
    fn every_refusal_has_a_remedy_which_is_never_cut_off() {
        for reason in RejectedWrite::REASONS {
            let message = with_remedy(&"x".repeat(4096), reason);
            assert!(message.ends_with(remedy_of(reason).unwrap()), "{reason}");
            assert_eq!(message.chars().count(), MESSAGE_CHARS_MAX);
        }
    }
}
