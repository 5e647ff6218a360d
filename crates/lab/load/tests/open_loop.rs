//! The generator against a real server that stalls: requests that wait behind the stall must be
//! charged for the wait.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use albacore_load::{Load, Request, Shape, drive};

const STALL: Duration = Duration::from_millis(300);

/// A server that answers the requests of one connection, the first one after a stall.
fn stalling_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut stall = STALL;
        let mut head = Vec::new();
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|n| n == 1) {
            head.push(byte[0]);
            if head.ends_with(b"\r\n\r\n") {
                std::thread::sleep(std::mem::take(&mut stall));
                head.clear();
                let answer =
                    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nserver-timing: run;dur=2\r\n\r\n";
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    });
    address
}

fn request(address: SocketAddr) -> Request {
    let (path, headers, body) = ("/".to_owned(), Vec::new(), bytes::Bytes::new());
    Request {
        address,
        path,
        headers,
        body,
    }
}

#[test]
fn requests_delayed_by_a_stall_are_measured_from_their_intended_time() {
    let times: Vec<Duration> = [0, 20, 40].map(Duration::from_millis).into();
    let requests = vec![request(stalling_server())];
    let shape = Shape::Open(times.clone());
    let samples = drive(Load {
        requests,
        shape,
        connections: 1,
    })
    .unwrap();
    assert_eq!(
        samples.iter().map(|s| s.intended).collect::<Vec<_>>(),
        times
    );
    for sample in samples {
        assert_eq!(sample.status, 200);
        assert_eq!(sample.stages.time("run"), Some(Duration::from_millis(2)));
        assert!(sample.latency + sample.intended >= STALL, "{sample:?}");
    }
}

#[test]
fn a_missing_response_is_status_zero_and_not_an_error() {
    let unused = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let shape = Shape::Open(vec![Duration::ZERO]);
    let samples = drive(Load {
        requests: vec![request(unused)],
        shape,
        connections: 1,
    })
    .unwrap();
    assert_eq!(samples.len(), 1);
    assert_eq!(samples[0].status, 0);
}
