//! Tests of misbehaving servers, and of which other servers they delay.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use super::*;

/// A server that accepts a connection and responds with `response`, until a write fails.
fn start_server(
    response: impl Fn(&mut std::net::TcpStream) -> std::io::Result<()> + Send + 'static,
) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ended = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).unwrap() > 0);
        let mut sent = response(&mut stream);
        // bound: ends when the other side has closed the connection.
        while sent.is_ok() {
            sent = stream.write_all(b" ");
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    Server { address, ended }
}

struct Server {
    address: SocketAddr,
    ended: std::thread::JoinHandle<()>,
}

#[tokio::test]
async fn an_answer_without_end_takes_its_time_and_no_more_and_its_connection_is_closed() {
    let slow_head = |stream: &mut std::net::TcpStream| stream.write_all(b"HTTP/1.1 200 OK\r\nX: ");
    let slow_body = |stream: &mut std::net::TcpStream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n{")
    };
    let endless_head = |stream: &mut std::net::TcpStream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n")?;
        loop {
            stream.write_all(&[b'a'; 4096])?;
        }
    };
    let endless_body = |stream: &mut std::net::TcpStream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
        loop {
            stream.write_all(&[b' '; 4096])?;
        }
    };
    for (server, why) in [
        (start_server(slow_head), "timed out"),
        (start_server(slow_body), "timed out"),
        (start_server(endless_head), "HTTP error: "),
        (
            start_server(endless_body),
            "the response is incomplete or too long: length limit exceeded",
        ),
    ] {
        let error = request_state_with_timeout(server.address)
            .await
            .unwrap_err();
        let error = sentence(&error);
        assert!(error.starts_with(why), "{error}");
        let ended = tokio::task::spawn_blocking(|| server.ended.join());
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await;
        ended.expect("the connection is closed").unwrap().unwrap();
    }
}

#[test]
fn the_cause_of_a_failed_scrape_is_logged_once() {
    let closed = || std::io::Error::other("the port is closed");
    let invalid = serde_json::from_str::<u8>("{").unwrap_err();
    let invalid_text = invalid.to_string();
    for (error, cause) in [
        (ScrapeError::Connect(closed()), "the port is closed"),
        (ScrapeError::Body(closed().into()), "the port is closed"),
        (ScrapeError::State(invalid), invalid_text.as_str()),
        (ScrapeError::Time, "timed out"),
    ] {
        let text = sentence(&error);
        assert!(text.ends_with(cause), "{text}");
        assert_eq!(text.matches(cause).count(), 1, "{text}");
    }
}

#[test]
fn servers_that_answer_come_before_those_that_do_not() {
    let states = ServerStates::default();
    let key = |index: usize| ObjectKey::new("x", format!("pod-{index:03}"));
    let ip = IpAddr::from([127, 0, 0, 1]);
    // The server that responds is the last by name; more than SCRAPES_MAX before it are
    // unresponsive.
    for index in 0..200 {
        states.set_address(key(index), Some(ip));
    }
    let mut scraped = std::collections::BTreeMap::<ObjectKey, Vec<u32>>::new();
    let start = Instant::now();
    for turn in 0..20 {
        let due = states.due(SCRAPES_MAX, start + SCRAPE_PERIOD * turn, |_| true);
        assert!(due.len() <= SCRAPES_MAX);
        for (pod, _) in due {
            let state = (pod == key(199)).then(|| serde_json::from_str("{}").unwrap());
            states.record(&pod, state);
            scraped.entry(pod).or_default().push(turn);
        }
    }
    // First in its order among those never scraped, which takes four rounds; then in each round.
    let turns: Vec<u32> = (3..20).collect();
    assert_eq!(scraped[&key(199)], turns);
    // The unresponsive ones alternate: 199 of them, 63 at a time.
    for (pod, turns) in &scraped {
        let is_soon = |pair: &[u32]| pair[1] - pair[0] <= 5;
        assert!(
            turns[0] <= 3 && turns.windows(2).all(is_soon),
            "{pod}: {turns:?}"
        );
    }
}

#[test]
fn servers_of_one_deployment_are_asked_together_and_those_without_address_not_at_all() {
    let states = ServerStates::default();
    let key = |name: &str| ObjectKey::new("x", name);
    for index in (0..100).rev() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        states.set_address(key(&format!("a-{index:03}")), Some(ip));
        states.set_address(key(&format!("b-{index:03}")), Some(ip));
    }
    states.set_address(key("a-050"), None);
    let now = Instant::now();
    let is_selected = |pod: &ObjectKey| pod.name != "a-007";
    let due = states.due(98, now, is_selected);
    assert_eq!(due.len(), 98);
    assert!(due.iter().all(|(pod, _)| pod.name.starts_with("a-")));
    // The rest, and none of them twice.
    let due = states.due(1000, now, is_selected);
    assert_eq!(due.len(), 100);
    assert!(due.iter().all(|(pod, _)| pod.name.starts_with("b-")));
    assert_eq!(states.due(1000, now, is_selected), []);
}
