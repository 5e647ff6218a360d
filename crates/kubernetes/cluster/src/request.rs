//! Classifies a request to the API server by its method and path.

use hyper::Method;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::http::Uri;

/// Verb and resource of a request, as in RBAC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    pub(crate) verb: &'static str,
    /// Plural of the kind with its subresource, e.g. `deployments/scale`; `other` for paths without
    /// a kind.
    pub(crate) resource: String,
}

impl RequestInfo {
    pub(crate) fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let (resource, is_named) = resource_of(uri.path());
        let is_watch = uri
            .query()
            .is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch=")));
        let is_apply = headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/apply-patch"));
        let verb = match *method {
            Method::GET if is_watch => "watch",
            Method::GET if is_named || resource == "other" => "get",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH if is_apply => "apply",
            Method::PATCH => "patch",
            Method::DELETE if is_named => "delete",
            Method::DELETE => "deletecollection",
            _ => "other",
        };
        Self { verb, resource }
    }

    /// Whether the request is a write.
    pub(crate) fn is_write(&self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch")
    }

    /// Whether only a process that holds its lease may send it, if writes require the lease.
    pub(crate) fn is_guarded(&self) -> bool {
        self.is_write() && !self.is_lease()
    }

    /// Requests for leases bypass the rate limit, because every replica sends them for leader
    /// election.
    pub(crate) fn is_lease(&self) -> bool {
        self.resource == "leases"
    }
}

/// The kind in a path, and whether the path contains an object name.
fn resource_of(path: &str) -> (String, bool) {
    let mut parts = path.trim_matches('/').split('/').peekable();
    let has_kinds = match parts.next() {
        Some("api") => parts.next().is_some(),
        Some("apis") => parts.next().is_some() && parts.next().is_some(),
        _ => false,
    };
    // `namespaces/NAME` is followed by a namespaced kind, or refers to the namespace itself if it
    // ends there or has a subresource.
    let rest: Vec<&str> = parts.collect();
    let rest = match rest.as_slice() {
        ["namespaces", _, kind, after @ ..] if !matches!(*kind, "status" | "finalize") => {
            [&[*kind], after].concat()
        }
        rest => rest.to_vec(),
    };
    match rest.as_slice() {
        [kind] if has_kinds => ((*kind).to_owned(), false),
        [kind, _name] if has_kinds => ((*kind).to_owned(), true),
        [kind, _name, part, ..] if has_kinds => (format!("{kind}/{part}"), true),
        _ => ("other".to_owned(), false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_classified_by_method_and_path() {
        let apps = "/apis/apps/v1/namespaces/a/deployments";
        for (method, path, verb, resource) in [
            (Method::GET, "/api/v1/pods?limit=100", "list", "pods"),
            (Method::GET, "/api/v1/pods?&watch=true", "watch", "pods"),
            (Method::GET, "/api/v1/namespaces/a", "get", "namespaces"),
            (
                Method::PUT,
                "/api/v1/namespaces/a/status",
                "update",
                "namespaces/status",
            ),
            (Method::GET, apps, "list", "deployments"),
            (Method::POST, apps, "create", "deployments"),
            (
                Method::DELETE,
                &format!("{apps}/x"),
                "delete",
                "deployments",
            ),
            (
                Method::PATCH,
                &format!("{apps}/x/status?fieldManager=m"),
                "patch",
                "deployments/status",
            ),
            (Method::GET, "/version", "get", "other"),
            (Method::GET, "/apis/apps/v1", "get", "other"),
        ] {
            let uri = path.parse().unwrap();
            let info = RequestInfo::of(&method, &uri, &HeaderMap::new());
            assert_eq!(
                (info.verb, info.resource.as_str()),
                (verb, resource),
                "{method} {path}"
            );
        }
    }

    #[test]
    fn leases_are_recognized_and_applies_differ_from_patches() {
        let mut headers = HeaderMap::new();
        headers.insert(
            CONTENT_TYPE,
            "application/apply-patch+yaml".parse().unwrap(),
        );
        let path = "/apis/coordination.k8s.io/v1/namespaces/a/leases/x";
        let info = RequestInfo::of(&Method::PATCH, &path.parse().unwrap(), &headers);
        assert_eq!(info.verb, "apply");
        assert!(info.is_write() && info.is_lease());
    }
}
