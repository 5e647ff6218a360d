//! Responses in the forms that servers send, split into pieces of any size.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};

use super::*;

/// Results of two exchanges over one connection. The server answers each request with `answer`,
/// split into pieces of `piece` bytes, and closes after the second.
fn exchange(answer: &'static str, piece: usize) -> Vec<Result<Response, String>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let request = Request {
        address,
        path: "/path".to_owned(),
        headers: vec![("a".to_owned(), "b".to_owned())],
        body: bytes::Bytes::from_static(b"body"),
    };
    let sent = message(&request);
    let expected = sent.clone();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        for _ in 0..2 {
            let mut got = vec![0; expected.len()];
            if stream.read_exact(&mut got).is_err() {
                return;
            }
            assert_eq!(got, expected);
            for piece in answer.as_bytes().chunks(piece) {
                stream.write_all(piece).unwrap();
            }
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let answers = runtime.block_on(async {
        let mut connection = Http1::connect(address).await.unwrap();
        let mut answers = Vec::new();
        for _ in 0..2 {
            let answer = connection.exchange(&sent).await;
            let is_last = answer.as_ref().map_or(true, |answer| answer.is_last);
            answers.push(answer.map_err(|error| error.to_string()));
            if is_last {
                break;
            }
        }
        answers
    });
    server.join().unwrap();
    answers
}

#[test]
fn responses_of_every_length_are_read_completely() {
    let whole = Response {
        status: 200,
        stages: StageTimes::parse("run;dur=2"),
        is_last: false,
    };
    let timing = "HTTP/1.1 200 OK\r\nServer-Timing: run;dur=2\r\n";
    let counted: &'static str =
        Box::leak(format!("{timing}Content-Length: 5\r\n\r\nabcde").into_boxed_str());
    let chunked: &'static str = Box::leak(
        format!(
            "HTTP/1.1 100 Continue\r\n\r\n{timing}Transfer-Encoding: chunked\r\n\r\n\
             3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
        )
        .into_boxed_str(),
    );
    for piece in [1, 2, 7, 1000] {
        for answer in [counted, chunked] {
            assert_eq!(exchange(answer, piece), [Ok(whole), Ok(whole)], "{piece}");
        }
    }
}

#[test]
fn an_answer_that_ends_with_its_connection_is_the_last() {
    let closed = "HTTP/1.1 429 Slow Down\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno";
    let answers = exchange(closed, 1000);
    let answer = answers[0].clone().unwrap();
    assert_eq!((answer.status, answer.is_last), (429, true));
    let parsed = parse(b"HTTP/1.0 200 OK\r\n\r\n").unwrap().unwrap();
    assert_eq!((parsed.0.is_last, parsed.1), (true, Length::UntilClosed));
}

#[test]
fn invalid_responses_are_errors() {
    for answer in [
        "SMTP 220 hello\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    ] {
        assert!(exchange(answer, 1000)[0].is_err(), "{answer}");
    }
}

#[test]
fn a_host_among_the_headers_replaces_the_default_one() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut request = Request {
        address: ([127, 0, 0, 1], 1).into(),
        path: "/".to_owned(),
        headers: vec![pair("a", "b")],
        body: bytes::Bytes::new(),
    };
    let text = |request: &Request| String::from_utf8(message(request)).unwrap();
    assert!(text(&request).starts_with("POST / HTTP/1.1\r\nhost: localhost\r\na: b\r\n"));
    request.headers.push(pair("Host", "fraud"));
    assert!(text(&request).starts_with("POST / HTTP/1.1\r\nhost: fraud\r\na: b\r\ncontent"));
}
