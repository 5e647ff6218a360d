//! HTTP request heads that two parsers could interpret differently: rejected and accepted ones,
//! over raw sockets. The status codes are those of RFC 9110, 9112 and 9113.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

mod running;

use running::{PATIENCE, Running};

fn start() -> Running {
    Running::start(&[("small", "main_small_d6.ubj")], &[])
}

/// Sends bytes on a new connection and reads until the server closes it.
fn exchange(server: &Running, sent: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.http).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(sent).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    answer
}

/// The status codes of all replies.
fn statuses(answer: &[u8]) -> Vec<u16> {
    let text = String::from_utf8_lossy(answer);
    let lines = text.match_indices("HTTP/1.");
    lines
        .filter_map(|(at, _)| text.get(at + 9..at + 12)?.parse().ok())
        .collect()
}

const BODY: &str = r#"{"inputs":[]}"#;

/// Description of a case, bytes sent, and expected status.
type Case = (&'static str, String, u16);

fn get(head: &str) -> String {
    format!("GET /v2/health/live {head}\r\n\r\n")
}

fn chunked(head: &str) -> String {
    let length = BODY.len();
    format!(
        "POST /v2/models/small/infer HTTP/1.1\r\n{head}\r\n\r\n{length:x}\r\n{BODY}\r\n0\r\n\r\n"
    )
}

fn sized(head: &str) -> String {
    format!("POST /v2/models/small/infer HTTP/1.1\r\n{head}\r\n\r\n{BODY}")
}

fn assert_answered(cases: Vec<Case>) {
    let server = start();
    for (name, sent, status) in cases {
        let mut connection = server.connect();
        connection.send(sent.as_bytes());
        let answer = connection.answer();
        let text = String::from_utf8_lossy(&answer.body);
        assert_eq!(answer.status, status, "{name}: {text}");
        if status != 200 {
            assert!(answer.error().len() > 10, "{name}: {text}");
        }
    }
    assert_eq!(server.get("/v2/health/live").status, 200);
}

#[test]
fn requests_have_one_valid_host() {
    assert_answered(vec![
        ("no host", get("HTTP/1.1"), 400),
        ("two hosts", get("HTTP/1.1\r\nHost: a\r\nHost: a"), 400),
        ("host with a space", get("HTTP/1.1\r\nHost: a b"), 400),
        ("host with a user", get("HTTP/1.1\r\nHost: u@a"), 400),
        ("host with a path", get("HTTP/1.1\r\nHost: a/b"), 400),
        (
            "host with a wrong port",
            get("HTTP/1.1\r\nHost: a:http"),
            400,
        ),
        ("host with two ports", get("HTTP/1.1\r\nHost: a:1:2"), 400),
        (
            "two hosts of 1.0",
            get("HTTP/1.0\r\nHost: a\r\nHost: b"),
            400,
        ),
        ("host", get("HTTP/1.1\r\nHost: a"), 200),
        ("host and port", get("HTTP/1.1\r\nhost: a:8080"), 200),
        ("address", get("HTTP/1.1\r\nHost: [::1]:8080"), 200),
        ("empty host", get("HTTP/1.1\r\nHost:"), 200),
        ("1.0 without a host", get("HTTP/1.0"), 200),
        (
            "absolute form: the host of the request line counts",
            "GET http://a/v2/health/live HTTP/1.1\r\nHost: b\r\n\r\n".to_owned(),
            200,
        ),
    ]);
}

#[test]
fn chunked_is_the_only_transfer_coding() {
    assert_answered(vec![
        (
            "chunked in two lines",
            chunked("Host: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
            400,
        ),
        (
            "a coding in each of two lines",
            chunked("Host: a\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked"),
            400,
        ),
        (
            "chunked twice",
            chunked("Host: a\r\nTransfer-Encoding: chunked, chunked"),
            400,
        ),
        (
            "an empty coding",
            chunked("Host: a\r\nTransfer-Encoding: , chunked"),
            400,
        ),
        (
            "a coding before chunked",
            chunked("Host: a\r\nTransfer-Encoding: gzip, chunked"),
            501,
        ),
        (
            "chunked is not last",
            chunked("Host: a\r\nTransfer-Encoding: chunked, gzip"),
            400,
        ),
        (
            "no chunked",
            chunked("Host: a\r\nTransfer-Encoding: identity"),
            400,
        ),
        (
            "chunked in 1.0",
            chunked("Host: a\r\nTransfer-Encoding: chunked").replace("HTTP/1.1", "HTTP/1.0"),
            400,
        ),
    ]);
}

#[test]
fn content_length_is_one_number() {
    let length = BODY.len();
    assert_answered(vec![
        (
            "two lengths",
            sized(&format!(
                "Host: a\r\nContent-Length: {length}\r\nContent-Length: 1"
            )),
            400,
        ),
        (
            "a list of lengths",
            sized(&format!("Host: a\r\nContent-Length: {length}, {length}")),
            400,
        ),
        (
            "a signed length",
            sized("Host: a\r\nContent-Length: +13"),
            400,
        ),
        (
            "a negative length",
            sized("Host: a\r\nContent-Length: -1"),
            400,
        ),
    ]);
}

#[test]
fn malformed_head_lines_are_refused() {
    assert_answered(vec![
        (
            "a folded line",
            get("HTTP/1.1\r\nHost: a\r\nX: b\r\n c"),
            400,
        ),
        ("a space before the colon", get("HTTP/1.1\r\nHost : a"), 400),
        ("a space before the name", get("HTTP/1.1\r\n Host: a"), 400),
        (
            "a bare CR in a value",
            get("HTTP/1.1\r\nHost: a\r\nX: b\rc"),
            400,
        ),
        (
            "a NUL in a value",
            get("HTTP/1.1\r\nHost: a\r\nX: b\0c"),
            400,
        ),
        ("a NUL in a name", get("HTTP/1.1\r\nHost: a\r\nX\0: b"), 400),
        (
            "a name of no characters",
            get("HTTP/1.1\r\nHost: a\r\n: b"),
            400,
        ),
        ("another version", get("HTTP/1.2\r\nHost: a"), 400),
    ]);
}

#[test]
fn repeated_headers_are_refused() {
    let length = BODY.len();
    assert_answered(vec![
        (
            "two lengths of JSON",
            sized(&format!(
                "Host: a\r\nContent-Length: {length}\r\n\
                 Inference-Header-Content-Length: {length}\r\nInference-Header-Content-Length: 0"
            )),
            400,
        ),
        (
            "a signed length of JSON",
            sized(&format!(
                "Host: a\r\nContent-Length: {length}\r\nInference-Header-Content-Length: +{length}"
            )),
            400,
        ),
        (
            "two content types",
            sized(&format!(
                "Host: a\r\nContent-Length: {length}\r\nContent-Type: application/json\r\n\
                 Content-Type: application/octet-stream"
            )),
            400,
        ),
        (
            "two timeouts",
            sized(&format!(
                "Host: a\r\nContent-Length: {length}\r\nX-Request-Timeout-Ms: 1\r\n\
                 X-Request-Timeout-Ms: 1000"
            )),
            400,
        ),
    ]);
}

#[test]
fn requests_after_an_ambiguous_head_are_not_answered() {
    let server = start();
    let next = "GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = "POST /v2/models/small/infer HTTP/1.1\r\n";
    let length = BODY.len();
    for (name, head) in [
        ("no host", String::new()),
        ("two hosts", "Host: a\r\nHost: b\r\n".to_owned()),
        (
            "chunked twice",
            "Host: a\r\nTransfer-Encoding: chunked, chunked\r\n".to_owned(),
        ),
        (
            "gzip and chunked",
            "Host: a\r\nTransfer-Encoding: gzip, chunked\r\n".to_owned(),
        ),
        // RFC 9112 6.3: Transfer-Encoding overrides Content-Length, and the connection is closed
        // after the reply.
        (
            "a length before chunked",
            format!("Host: a\r\nContent-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
        ),
        (
            "a length after chunked",
            format!("Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: {length}\r\n"),
        ),
    ] {
        let body = if head.contains("chunked") {
            format!("{length:x}\r\n{BODY}\r\n0\r\n\r\n")
        } else {
            String::new()
        };
        let answer = exchange(&server, format!("{post}{head}\r\n{body}{next}").as_bytes());
        let text = String::from_utf8_lossy(&answer);
        assert_eq!(statuses(&answer).len(), 1, "{name}: {text}");
    }
}
