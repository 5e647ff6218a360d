//! Slow, silent, oversized, hostile or too many clients over real sockets. Meanwhile good clients
//! are served, memory stays bounded, and each cause is counted.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod frames;
#[path = "../running/mod.rs"]
mod running;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use running::{Connection, PATIENCE, Running};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

const INFER: &str = "/v2/models/small/infer";
const FEATURES: usize = 29;

fn start() -> Running {
    let models = [("small", "main_small_d6.ubj")];
    Running::start(&models, &["--workers", "1", "--threads", "1"])
}

/// An infer body with one row.
fn body() -> String {
    let values = ["0.5"; FEATURES].join(",");
    format!(
        r#"{{"inputs":[{{"name":"input","shape":[1,{FEATURES}],"datatype":"FP32","data":[{values}]}}]}}"#
    )
}

/// A well-behaved client: requests on a keep-alive connection, and on a new one each time.
struct GoodClient {
    is_over: Arc<AtomicBool>,
    answered: Arc<AtomicU32>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl GoodClient {
    fn start(address: SocketAddr) -> Self {
        let (is_over, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default());
        let (stop, count, body) = (Arc::clone(&is_over), Arc::clone(&answered), body());
        let thread = std::thread::spawn(move || {
            let mut keep_alive = Connection::to(address);
            while !stop.load(Ordering::Relaxed) {
                for connection in [&mut keep_alive, &mut Connection::to(address)] {
                    let answer = connection.call("POST", INFER, &[], body.as_bytes());
                    assert_eq!(answer.status, 200, "{:?}", answer.json());
                    count.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self {
            is_over,
            answered,
            thread: Some(thread),
        }
    }

    /// Ends the client after it has received more than `answers` replies; none may have failed.
    async fn end(mut self, answers: u32) {
        let start = Instant::now();
        let thread = self.thread.take().unwrap();
        while self.answered.load(Ordering::Relaxed) <= answers && !thread.is_finished() {
            assert!(start.elapsed() < PATIENCE, "good clients are not answered");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.is_over.store(true, Ordering::Relaxed);
        thread.join().expect("each was a 200");
    }
}

/// The value of the metric whose line begins with `name`.
fn metric(server: &Running, name: &str) -> u64 {
    let text = String::from_utf8(server.get("/metrics").body).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.unwrap_or_else(|| panic!("{name} is not in\n{text}"));
    value.trim().parse().unwrap()
}

fn limit_count(server: &Running, bound: &str) -> u64 {
    metric(
        server,
        &format!("albacore_bounds_reached_total{{bound=\"{bound}\"}}"),
    )
}

/// Waits until a limit was reached `count` times.
async fn wait_for(server: &Running, bound: &str, count: u64) {
    let start = Instant::now();
    while limit_count(server, bound) < count {
        let have = limit_count(server, bound);
        assert!(
            start.elapsed() < PATIENCE,
            "{bound} was reached {have} times, not {count}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Resident memory of the front, MiB.
fn resident(server: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.front())).unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

async fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Reads until the peer closes; returns the received bytes.
async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let reading = async {
        let mut piece = [0; 1 << 16];
        while let Ok(bytes @ 1..) = stream.read(&mut piece).await {
            all.extend(&piece[..bytes]);
        }
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the other end closes");
    all
}

/// A request head with this `Content-Length`.
fn head(bytes: usize) -> String {
    format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {bytes}\r\n\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_half_open_connections_block_no_client_and_memory_stays_bounded() {
    const FLOOD: usize = 10_000;
    let server = start();
    let good = GoodClient::start(server.http);
    let before = resident(&server);
    let mut open = Vec::with_capacity(FLOOD);
    for index in 0..FLOOD {
        // Most connections send nothing, some an incomplete head, some a complete request.
        let words: &[u8] = match index % 20 {
            0 | 1 => b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n",
            2 => b"PRI * HTTP/2.0",
            3 => b"POST /v2/models/small/infer HTTP/1.1\r\nHost: x\r\nX-Slow: ",
            _ => b"",
        };
        let stream = match TcpStream::connect(server.http).await {
            Ok(mut stream) => {
                let _ = stream.write_all(words).await;
                stream
            }
            Err(error) => panic!("connection {index}: {error}"),
        };
        open.push(stream);
    }
    // Connections with an incomplete head may have reached their time limit before.
    let evicted = (FLOOD - 8_192 - FLOOD / 20) as u64;
    wait_for(&server, "crowded_out", evicted).await;
    // Evicted connections are counted first and closed later.
    let start = Instant::now();
    let mut connections = metric(&server, "albacore_connections ");
    while connections > 8_192 {
        assert!(start.elapsed() < PATIENCE, "{connections} are open");
        tokio::time::sleep(Duration::from_millis(50)).await;
        connections = metric(&server, "albacore_connections ");
    }
    assert_eq!(
        limit_count(&server, "connections"),
        0,
        "nobody was turned away"
    );
    let grown = resident(&server) - before;
    println!("{connections} connections: {grown} MiB more resident");
    assert!(grown < 256, "{grown} MiB");
    good.end(100).await;
    drop(open);
    assert_eq!(
        server.stop("-TERM"),
        Some(0),
        "half-open connections do not hold a drain"
    );
}

/// Longer than the time limits of heads and bodies.
const STOPPED: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_front_does_not_treat_its_clients_as_slow() {
    let server = start();
    let request = head(body().len()) + &body();
    // Within the head, between head and body, and within the body.
    let cuts = [20, head(body().len()).len(), request.len() - 20];
    let mut open = Vec::new();
    for cut in cuts.repeat(8) {
        let (begin, end) = request.as_bytes().split_at(cut);
        open.push((send(server.http, begin).await, end.to_vec()));
    }
    let front = server.front().to_string();
    let signal_front = |signal: &str| {
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args([signal, &front]).status().unwrap().success());
    };
    // Probably the first parts are read by now; if not, the test is only stricter.
    tokio::time::sleep(Duration::from_millis(500)).await;
    signal_front("-STOP");
    tokio::time::sleep(STOPPED).await;
    for (stream, end) in &mut open {
        stream.write_all(end).await.unwrap();
    }
    signal_front("-CONT");
    for (mut stream, _) in open {
        let mut answer = [0; 12];
        let read = tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer));
        read.await.expect("an answer").unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_senders_and_readers_are_closed_at_their_deadlines() {
    let server = start();
    let good = GoodClient::start(server.http);
    let (http, body) = (server.http, body());
    let mut slow = JoinSet::new();
    // One byte per second of a head, of a body, of a chunked body; a body that stalls.
    for (begin, more) in [
        ("GET /v2 HTTP/1.1\r\nHost: x\r\nX: ".to_owned(), "1"),
        (head(1_000_000), "1"),
        (
            format!("POST {INFER} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "1\r\n \r\n",
        ),
    ] {
        slow.spawn(async move {
            let mut stream = send(http, begin.as_bytes()).await;
            while stream.write_all(more.as_bytes()).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
    }
    slow.spawn(async move {
        let mut stream = send(http, (head(1_000) + &body[..40]).as_bytes()).await;
        let answer = read_to_end(&mut stream).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("too slowly"), "{answer}");
    });
    // A reply of 6 MB that is not read, over both versions of HTTP.
    let rows = 15_000;
    let json = format!(
        r#"{{"inputs":[{{"name":"input","shape":[{rows},{FEATURES}],"datatype":"FP32","parameters":{{"binary_data_size":{}}}}}],"outputs":[{{"name":"leaf","parameters":{{"binary_data":true}}}}]}}"#,
        rows * FEATURES * 4
    );
    let message = [json.as_bytes(), &vec![0; rows * FEATURES * 4]].concat();
    let length = json.len();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut one = socket.connect(http).await.unwrap();
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {length}\r\n\
         Content-Length: {}\r\n\r\n",
        message.len()
    );
    one.write_all(head.as_bytes()).await.unwrap();
    one.write_all(&message).await.unwrap();
    wait_for(&server, "reply_time", 1).await;
    wait_for(&server, "head_time", 1).await;
    wait_for(&server, "body_time", 3).await;
    while let Some(ended) = slow.join_next().await {
        ended.unwrap();
    }
    good.end(100).await;
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_too_large_or_incomplete_are_refused_and_counted() {
    let server = start();
    let good = GoodClient::start(server.http);
    let http = server.http;
    // Clients that disconnect within a head, within a body, and during the computation.
    drop(send(http, b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: ").await);
    drop(send(http, (head(1_000) + "{").as_bytes()).await);
    wait_for(&server, "broken_off", 2).await;
    // A head of 40 KB, a body of 65 MiB.
    let long = format!("GET /v2 HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    let answer = read_to_end(&mut send(http, long.as_bytes()).await).await;
    assert!(answer.starts_with(b"HTTP/1.1 431 "));
    let mut stream = send(http, head(65 << 20).as_bytes()).await;
    let mut answer = [0; 13];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413 ");
    assert_eq!(limit_count(&server, "head_bytes"), 1);
    assert_eq!(limit_count(&server, "body_bytes"), 1);
    // JSON nested five million levels deep: skipped in unknown fields, otherwise rejected.
    let deep = "[".repeat(5_000_000) + &"]".repeat(5_000_000);
    for (key, status) in [("\"x\":", 200), ("\"id\":", 400), ("\"parameters\":", 400)] {
        let body = body().replacen('{', &format!("{{{key}{deep},"), 1);
        let answer = tokio::task::block_in_place(|| server.post(INFER, &[], body.as_bytes()));
        assert_eq!(answer.status, status, "{key}");
    }
    // Bytes that are not HTTP, and a thousand requests at once.
    let answer =
        read_to_end(&mut send(http, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await).await;
    assert!(
        answer.starts_with(b"HTTP/1.1 400 "),
        "a TLS handshake gets an HTTP error"
    );
    assert_eq!(limit_count(&server, "not_http"), 1);
    let many = "GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1_000);
    let mut stream = send(http, many.as_bytes()).await;
    stream
        .write_all(b"GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .await
        .unwrap();
    let answers = read_to_end(&mut stream).await;
    assert_eq!(
        String::from_utf8_lossy(&answers)
            .matches("HTTP/1.1 200 ")
            .count(),
        1_001
    );
    good.end(1).await;
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_frames_close_only_their_connection() {
    let server = start();
    let good = GoodClient::start(server.http);
    for address in [server.http, server.grpc] {
        let counted = |bound: &str| limit_count(&server, bound);
        let (resets, floods) = (counted("resets"), counted("flood"));
        // Streams opened and reset, a hundred in one packet.
        let rapid = (0..1_000).flat_map(|call| {
            let call = 2 * call + 1;
            let fields = frames::request("POST", INFER);
            [
                frames::headers(call, &fields, (true, false)),
                frames::reset(call),
            ]
            .concat()
        });
        let rapid: Vec<u8> = rapid.collect();
        let mut stream = send(address, &frames::opening()).await;
        let _ = stream.write_all(&rapid).await;
        read_to_end(&mut stream).await;
        wait_for(&server, "flood", floods + 1).await;
        // The same, slow enough for the server to process each one.
        let mut stream = send(address, &frames::opening()).await;
        for call in 0..1_000 {
            let call = 2 * call + 1;
            let fields = frames::request("POST", INFER);
            let request = frames::headers(call, &fields, (true, false));
            if stream.write_all(&request).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_micros(500)).await;
            if stream.write_all(&frames::reset(call)).await.is_err() {
                break;
            }
        }
        read_to_end(&mut stream).await;
        wait_for(&server, "resets", resets + 1).await;
        // Endless headers.
        let mut stream = send(address, &frames::opening()).await;
        let fields = frames::request("GET", "/v2");
        let _ = stream
            .write_all(&frames::headers(1, &fields, (false, true)))
            .await;
        let more = frames::continuation(1, &frames::field("x", &"y".repeat(8_000)));
        for _ in 0..10_000 {
            if stream.write_all(&more).await.is_err() {
                break;
            }
        }
        read_to_end(&mut stream).await;
        wait_for(&server, "flood", floods + 2).await;
    }
    good.end(1).await;
    assert_eq!(server.stop("-TERM"), Some(0));
}

/// Hundreds of thousands of SETTINGS and PING frames.
#[tokio::test(flavor = "multi_thread")]
async fn floods_with_unread_replies_take_no_memory() {
    let server = start();
    let good = GoodClient::start(server.http);
    let before = resident(&server);
    let mut floods = JoinSet::new();
    for flood in [frames::settings(&[(3, 100)]), frames::ping()] {
        let address = server.http;
        floods.spawn(async move {
            let mut stream = send(address, &frames::opening()).await;
            let many = flood.repeat(1_000);
            for _ in 0..500 {
                let writing = stream.write_all(&many);
                if !matches!(
                    tokio::time::timeout(Duration::from_secs(1), writing).await,
                    Ok(Ok(()))
                ) {
                    break;
                }
            }
        });
    }
    while let Some(ended) = floods.join_next().await {
        ended.unwrap();
    }
    let grown = resident(&server).saturating_sub(before);
    assert!(grown < 64, "{grown} MiB");
    good.end(1).await;
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_request_over_http_2_is_answered_on_either_port() {
    let server = start();
    for address in [server.http, server.grpc] {
        let fields = [
            frames::request("POST", INFER),
            frames::field("content-type", "application/json"),
        ];
        let mut stream = send(address, &frames::opening()).await;
        let call = frames::headers(1, &fields.concat(), (true, false));
        stream.write_all(&call).await.unwrap();
        let body = body();
        stream
            .write_all(&frames::data(1, body.as_bytes(), true))
            .await
            .unwrap();
        let mut received = Vec::new();
        let mut piece = [0; 4096];
        while !String::from_utf8_lossy(&received).contains("\"outputs\":[") {
            let bytes = stream.read(&mut piece).await.unwrap();
            assert!(bytes > 0, "{received:?}");
            received.extend(&piece[..bytes]);
        }
        // Also over HTTP/1.1; the obsolete upgrade to h2c is ignored.
        let old = "GET /v2 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n\
            Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n";
        let mut connection = Connection::to(address);
        connection.send(old.as_bytes());
        assert_eq!(connection.answer().json()["name"], "albacore-server");
    }
}
