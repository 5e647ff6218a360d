//! Checks of the request head that hyper leaves to the service (RFC 9110, 9112 and 9113).
//!
//! Requests can be smuggled past a proxy if two parsers interpret a head differently. hyper rejects
//! malformed lines, folded headers, `Content-Length` values that differ, a `Transfer-Encoding`
//! whose last coding is not `chunked`, and any `Transfer-Encoding` in HTTP/1.0. If a request has
//! both headers, hyper ignores `Content-Length` and closes the connection after the reply (RFC 9112
//! 6.3).

use hyper::header::{HOST, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::http::uri::Authority;
use hyper::{Request, Version};

/// Why a head is rejected. The connection must be closed after the reply, because the boundary of
/// the next request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// RFC 9112 3.2: HTTP/1.1 requires `Host`. RFC 9113 8.3.1: HTTP/2 requires it or `:authority`.
    #[error("the request has no Host header: send one")]
    NoHost,
    /// RFC 9112 3.2.
    #[error("the request has more than one Host header: send one")]
    SeveralHosts,
    /// RFC 9110 7.2.
    #[error("the Host header is not a host name or address with an optional port")]
    InvalidHost,
    /// RFC 9113 8.3.1: `Host` and `:authority` differ, so a proxy and the server could route by
    /// different names.
    #[error("the Host header differs from :authority: send the same or none")]
    OtherAuthority,
    /// RFC 9112 6.1: `chunked` must not be applied more than once.
    #[error("the request has more than one transfer coding `chunked`, or an empty one: send one")]
    RepeatedTransferEncoding,
    /// RFC 9112 6.1: an unknown transfer coding is answered with 501.
    #[error("the only supported Transfer-Encoding is chunked; use Content-Encoding to compress")]
    UnknownTransferEncoding,
}

/// Checks the head of a request of any version.
///
/// # Errors
/// [`HeadError`].
pub fn check_head<B>(request: &Request<B>) -> Result<(), HeadError> {
    let headers = request.headers();
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(HeadError::SeveralHosts);
    }
    if let Some(host) = host
        && !is_host(host)
    {
        return Err(HeadError::InvalidHost);
    }
    if request.version() == Version::HTTP_2 {
        return check_authority(request.uri().authority(), host);
    }
    if host.is_none() && request.version() == Version::HTTP_11 {
        return Err(HeadError::NoHost);
    }
    check_transfer_encoding(headers)
}

fn check_authority(
    authority: Option<&Authority>,
    host: Option<&HeaderValue>,
) -> Result<(), HeadError> {
    match (authority, host) {
        (None, None) => Err(HeadError::NoHost),
        (Some(authority), Some(host))
            if !host
                .as_bytes()
                .eq_ignore_ascii_case(authority.as_str().as_bytes()) =>
        {
            Err(HeadError::OtherAuthority)
        }
        _ => Ok(()),
    }
}

/// `uri-host [":" port]`, or empty if the client has no authority.
fn is_host(host: &HeaderValue) -> bool {
    let Ok(text) = host.to_str() else {
        return false;
    };
    if text.is_empty() {
        return true;
    }
    let Ok(authority) = text.parse::<Authority>() else {
        return false;
    };
    let Some(port) = text.strip_prefix(authority.host()) else {
        return false; // userinfo is not allowed
    };
    let is_number = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
    !authority.host().is_empty()
        && (port.is_empty()
            || port
                .strip_prefix(':')
                .is_some_and(|port| !port.starts_with('+') && is_number(port)))
}

fn check_transfer_encoding(headers: &HeaderMap) -> Result<(), HeadError> {
    let mut lines = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(line) = lines.next() else {
        return Ok(());
    };
    if lines.next().is_some() {
        return Err(HeadError::RepeatedTransferEncoding);
    }
    let mut codings = 0;
    let mut chunked = 0;
    for coding in line.as_bytes().split(|&byte| byte == b',') {
        let coding = coding.trim_ascii();
        codings += 1;
        if coding.eq_ignore_ascii_case(b"chunked") {
            chunked += 1;
        } else if coding.is_empty() {
            return Err(HeadError::RepeatedTransferEncoding);
        }
    }
    match (chunked, codings) {
        (1, 1) => Ok(()),
        (2.., _) => Err(HeadError::RepeatedTransferEncoding),
        _ => Err(HeadError::UnknownTransferEncoding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_or_addresses_with_a_port() {
        for host in [
            "a",
            "a:80",
            "a:",
            "A.b-c_d",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:80",
            "",
        ] {
            assert!(is_host(&HeaderValue::from_str(host).unwrap()), "{host}");
        }
        for host in [
            "a b", "a/b", "u@a", "a:b", "a:99999", "a:+80", "[::1", "a:80:80", "a?b", "a#b", ":80",
            "http://a", "a\tb",
        ] {
            assert!(!is_host(&HeaderValue::from_str(host).unwrap()), "{host}");
        }
        assert!(!is_host(&HeaderValue::from_bytes(b"\xff").unwrap()));
    }

    #[test]
    fn http_2_names_one_authority() {
        let checked = |uri: &str, hosts: &[&str]| {
            let mut request = Request::builder().version(Version::HTTP_2).uri(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            check_head(&request.body(()).unwrap())
        };
        assert_eq!(checked("http://a:80/v2", &[]), Ok(()));
        assert_eq!(checked("http://a:80/v2", &["A:80"]), Ok(()));
        assert_eq!(checked("/v2", &["a"]), Ok(()));
        assert_eq!(checked("/v2", &[]), Err(HeadError::NoHost));
        let other = checked("http://a/v2", &["b"]);
        assert_eq!(other, Err(HeadError::OtherAuthority));
        let several = checked("http://a/v2", &["a", "a"]);
        assert_eq!(several, Err(HeadError::SeveralHosts));
    }
}
