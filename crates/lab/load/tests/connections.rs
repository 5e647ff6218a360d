//! Connections of a generator, counted by a real server.
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use albacore_load::{Generator, Load, LoadError, Request, Shape};

/// A server that closes each connection after `requests` responses; also returns a counter of
/// accepted connections.
fn server(requests: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&accepted);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counter.fetch_add(1, Ordering::Relaxed);
            let stream = stream.unwrap();
            std::thread::spawn(move || answer(stream, requests));
        }
    });
    (address, accepted)
}

fn answer(mut stream: TcpStream, requests: usize) {
    let (mut head, mut byte, mut left) = (Vec::new(), [0], requests);
    while left > 0 && stream.read(&mut byte).is_ok_and(|n| n == 1) {
        head.push(byte[0]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            left -= 1;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(answer).unwrap();
        }
    }
}

fn load(address: SocketAddr) -> Load {
    let (path, headers, body) = ("/".to_owned(), Vec::new(), bytes::Bytes::new());
    Load {
        requests: vec![Request {
            address,
            path,
            headers,
            body,
        }],
        shape: Shape::Open(vec![Duration::ZERO]),
        connections: 3,
    }
}

#[test]
fn all_connections_are_open_before_a_run_and_stay_open_if_the_server_keeps_them() {
    let (address, accepted) = server(usize::MAX);
    let mut generator = Generator::new().unwrap();
    let mut run = || {
        let samples = generator.run(load(address)).unwrap();
        assert_eq!(samples[0].status, 200);
    };
    run();
    assert_eq!(accepted.load(Ordering::Relaxed), 1, "not known yet");
    run();
    run();
    let begin = Instant::now();
    while accepted.load(Ordering::Relaxed) < 3 && begin.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 3);
}

#[test]
fn a_server_that_closes_connections_gets_one_for_each_request() {
    let (address, accepted) = server(1);
    let mut generator = Generator::new().unwrap();
    for _ in 0..5 {
        let samples = generator.run(load(address)).unwrap();
        assert_eq!(samples[0].status, 200);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 5);
}

#[test]
fn more_connections_than_files_may_be_open_are_refused() {
    let (address, accepted) = server(1);
    let many = Load {
        connections: usize::MAX,
        ..load(address)
    };
    match Generator::new().unwrap().run(many).unwrap_err() {
        LoadError::DescriptorLimit { limit, .. } => {
            assert_eq!(limit, albacore_os::read_descriptor_limit().unwrap());
        }
        other => panic!("{other}"),
    }
    assert_eq!(accepted.load(Ordering::Relaxed), 0);
}
