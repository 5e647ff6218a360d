//! Drains under load: a server is stopped while clients of both protocols send requests as fast as
//! they can. Every accepted request is answered, and no connection is reset. `ALBACORE_SOAK`
//! multiplies the number of drains.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use albacore_load::{InferRequest, Load, Shape, WireFormat, drive};
use running::Running;

/// Number of drains without a soak.
const DRAINS: u32 = 8;

/// Connections per protocol.
const CLIENTS: usize = 8;

/// How an HTTP/1.1 connection ended.
#[derive(Debug, PartialEq, Eq)]
enum ConnectionEnd {
    /// By a reply with `Connection: close`.
    Announced,
    /// Closed between two requests, before any byte of the next one was sent.
    ClosedIdle,
    /// The connection was refused, because the port is closed.
    Refused,
}

fn body(wire: WireFormat, address: SocketAddr) -> albacore_load::Request {
    let call = InferRequest {
        model: "small",
        input: "input",
        output: None,
        values: &[0.5; 29],
        features: 29,
    };
    call.request(wire, address)
}

/// Sends requests on one connection until it is closed; returns the number of replies.
fn send_until_closed(address: SocketAddr) -> (u32, ConnectionEnd) {
    let request = body(WireFormat::Json, address);
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
        request.path,
        request.body.len()
    );
    let message = [head.as_bytes(), &request.body].concat();
    let mut answered = 0;
    let mut stream = match TcpStream::connect(address) {
        Ok(stream) => stream,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            return (0, ConnectionEnd::Refused);
        }
        Err(error) => panic!("connect: {error}"),
    };
    stream.set_nodelay(true).unwrap();
    loop {
        stream.set_nonblocking(true).unwrap();
        if matches!(stream.read(&mut [0]), Ok(0)) {
            return (answered, ConnectionEnd::ClosedIdle);
        }
        stream.set_nonblocking(false).unwrap();
        stream.write_all(&message).unwrap();
        let mut answer = Vec::new();
        let parse_complete = |answer: &[u8]| {
            let text = String::from_utf8_lossy(answer).to_ascii_lowercase();
            let (head, rest) = text.split_once("\r\n\r\n")?;
            let length = head.split("content-length: ").nth(1)?;
            let length: usize = length.lines().next()?.trim().parse().unwrap();
            (rest.len() >= length)
                .then(|| (head.contains(" 200 "), head.contains("connection: close")))
        };
        let (is_good, is_last) = loop {
            if let Some(found) = parse_complete(&answer) {
                break found;
            }
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).expect("no reset");
            assert!(count > 0, "closed after {answered} answers, one too early");
            answer.extend_from_slice(&bytes[..count]);
        };
        assert!(is_good, "{}", String::from_utf8_lossy(&answer));
        answered += 1;
        if is_last {
            return (answered, ConnectionEnd::Announced);
        }
    }
}

/// Waits until clients of both protocols have received replies.
fn wait_for_both_protocols(server: &Running) {
    let start = Instant::now();
    loop {
        let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
        let is_answered = |protocol: &str| metrics.contains(&format!("protocol=\"{protocol}\""));
        if is_answered("http") && is_answered("grpc") {
            return;
        }
        assert!(start.elapsed() < running::PATIENCE, "{metrics}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_drain_resets_no_connection() {
    let soak: u32 = std::env::var("ALBACORE_SOAK").map_or(1, |n| n.parse().unwrap());
    let models = [("small", "main_small_d6.ubj")];
    let (mut announced, mut answers) = (0, 0);
    for drain in 0..DRAINS * soak {
        let loops = if drain % 2 == 0 { "2" } else { "1" };
        let mut arguments = vec!["--workers", "2", "--threads", "1", "--front-threads", loops];
        if drain % 4 >= 2 {
            arguments.extend(["--drain-delay", "200ms"]);
        }
        let server = Running::start(&models, &arguments);
        let (http, grpc) = (server.http, server.grpc);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                std::thread::spawn(move || {
                    let mut all = Vec::new();
                    // bound: until the port is closed
                    loop {
                        let (answered, ended) = send_until_closed(http);
                        let is_over = ended == ConnectionEnd::Refused;
                        all.push((answered, ended));
                        if is_over {
                            return all;
                        }
                    }
                })
            })
            .collect();
        let over_grpc = std::thread::spawn(move || {
            let requests = vec![body(WireFormat::Grpc, grpc)];
            let shape = Shape::Closed(Duration::from_millis(400));
            drive(Load {
                requests,
                shape,
                connections: CLIENTS,
            })
        });
        wait_for_both_protocols(&server);
        std::thread::sleep(Duration::from_millis(u64::from(drain % 7) * 10));
        let start = Instant::now();
        assert_eq!(server.stop("-TERM"), Some(0));
        assert!(start.elapsed() < Duration::from_secs(20));
        for client in clients {
            for (answered, ended) in client.join().unwrap() {
                answers += answered;
                announced += u32::from(ended == ConnectionEnd::Announced);
                assert_ne!(
                    ended,
                    ConnectionEnd::ClosedIdle,
                    "a busy connection is closed with an announcement"
                );
            }
        }
        let samples = over_grpc.join().unwrap().unwrap();
        // Requests are answered until the port is closed; after that, connections are refused.
        let first = samples.iter().position(|sample| sample.status == 0);
        let (before, after) = samples.split_at(first.unwrap_or(samples.len()));
        assert!(before.iter().all(|sample| sample.status == 200) && !before.is_empty());
        let late = after.iter().filter(|sample| sample.status != 0);
        assert!(
            late.clone().all(|sample| sample.status == 200),
            "{:?}",
            late.count()
        );
        answers += u32::try_from(before.len()).unwrap();
    }
    assert!(announced >= CLIENTS as u32, "{announced} announced ends");
    println!(
        "{} drains, {answers} answers, {announced} announced ends",
        DRAINS * soak
    );
}
