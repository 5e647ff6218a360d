//! Tests the agent's pipe in all conditions: late, incomplete lines, random bytes, replaced, idle.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests fail by panicking

mod running;

use albacore_settings::SNAPSHOT_LINE_BYTES_MAX;
use running::{Agent, Params, make_pipe, next, pipe, pod, rows};

const TAKEN: &str = "albacore_params_feed_lines_total{outcome=\"taken\"}";
const BROKEN: &str = "albacore_params_feed_lines_total{outcome=\"broken\"}";

#[tokio::test]
async fn invalid_lines_are_counted_and_skipped_and_streams_continue() {
    let (_folder, path) = pipe();
    let params = Params::on_tcp(&path);
    let mut agent = Agent::start(&path);
    agent.send_snapshot(&[pod("a", Some("127.0.0.2"), 22)]);
    params.wait_for("the first", |params| params.metric(TAKEN) == 1.0);
    let mut stream = params.watch("127.0.0.2").await.unwrap();
    assert_eq!(rows(&next(&mut stream).await.unwrap()), 22);
    agent.write(b"rubbish\n{\"node\":7}\n\xff\xfe\x00\n[[[[\n{}\n\n\n");
    agent.write(&vec![b'['; 3 * SNAPSHOT_LINE_BYTES_MAX]);
    agent.write(b"\n");
    // Random bytes from a generator with a fixed seed.
    let mut seed = 7_u64;
    let mut noise = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as u8
    };
    let noise: Vec<u8> = (0..200_000).map(|_| noise()).collect();
    agent.write(&noise);
    agent.write(b"\n");
    agent.send_snapshot(&[pod("a", Some("127.0.0.2"), 23)]);
    assert_eq!(rows(&next(&mut stream).await.unwrap()), 23);
    assert_eq!(params.metric(TAKEN), 2.0);
    assert!(params.metric(BROKEN) >= 7.0);
    assert_eq!(params.get("/livez").0, 200);
}

#[tokio::test]
async fn fields_of_a_newer_agent_are_counted() {
    let (_folder, path) = pipe();
    let params = Params::on_tcp(&path);
    let mut agent = Agent::start(&path);
    agent.write(br#"{"node":"n","sequence":1,"pods":[],"metrics":"","mood":{"good":true}}"#);
    agent.write(b"\n");
    params.wait_for("taken", |params| params.metric(TAKEN) == 1.0);
    assert_eq!(
        params.metric("albacore_params_feed_unknown_fields_total"),
        1.0
    );
}

#[tokio::test]
async fn an_agent_that_is_killed_within_a_line_can_restart() {
    let (_folder, path) = pipe();
    let params = Params::on_tcp(&path);
    let mut stream = None;
    for life in 1..=20 {
        let mut agent = Agent::start(&path);
        agent.send_snapshot(&[pod("a", Some("127.0.0.2"), life)]);
        let mut known = match stream.take() {
            Some(known) => known,
            None => {
                params.wait_for("the first", |params| params.metric(TAKEN) == 1.0);
                params.watch("127.0.0.2").await.unwrap()
            }
        };
        assert_eq!(rows(&next(&mut known).await.unwrap()), life);
        stream = Some(known);
        agent.write(b"{\"node\":\"torn");
    }
    // An incomplete line is ended by the next writer or by the end of the pipe: it is invalid
    // either way, and never joined to another.
    params.wait_for("all torn", |params| params.metric(BROKEN) == 20.0);
    assert_eq!(params.metric(TAKEN), 20.0);
    assert_eq!(params.metric("albacore_params_feed_fresh"), 1.0);
}

#[tokio::test]
async fn a_pipe_that_is_created_late_or_replaced_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("feed");
    std::fs::write(&path, "no pipe").unwrap();
    let params = Params::on_tcp(&path);
    std::fs::remove_file(&path).unwrap();
    make_pipe(&path);
    let mut agent = Agent::start(&path);
    agent.send_snapshot(&[pod("a", Some("127.0.0.2"), 1)]);
    params.wait_for("the first", |params| params.metric(TAKEN) == 1.0);
    let mut stream = params.watch("127.0.0.2").await.unwrap();
    next(&mut stream).await.unwrap();
    // The old pipe stays open without a writer: the new one at the path is used.
    std::fs::remove_file(&path).unwrap();
    make_pipe(&path);
    let mut newer = Agent::start(&path);
    newer.send_snapshot(&[pod("a", Some("127.0.0.2"), 2)]);
    assert_eq!(rows(&next(&mut stream).await.unwrap()), 2);
    drop(agent);
}

#[tokio::test]
async fn a_restarted_params_sends_the_current_parameters() {
    let (_folder, path) = pipe();
    let mut params = Params::on_tcp(&path);
    let mut agent = Agent::start(&path);
    agent.send_snapshot(&[pod("a", Some("127.0.0.2"), 1)]);
    params.wait_for("the first", |params| params.metric(TAKEN) == 1.0);
    params.kill();
    let params = Params::on_tcp(&path);
    drop(agent);
    let mut agent = Agent::start(&path);
    agent.send_snapshot(&[pod("a", Some("127.0.0.2"), 2)]);
    params.wait_for("the second", |params| params.metric(TAKEN) == 1.0);
    let mut stream = params.watch("127.0.0.2").await.unwrap();
    assert_eq!(rows(&next(&mut stream).await.unwrap()), 2);
}
