//! Tests with real processes: which pod receives which parameters, and with which delay.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests fail by panicking

mod running;

use std::time::{Duration, Instant};

use albacore_proto::params::{Policy, WatchRequest};
use running::{Agent, Params, next, pipe, pod, rows};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request};

#[tokio::test]
async fn each_pod_gets_its_own_parameters_at_once_and_each_change() {
    let (_folder, path) = pipe();
    let params = Params::on_tcp(&path);
    assert_eq!(params.get("/livez").0, 200);
    assert_eq!(params.get("/readyz").0, 503);
    let early = params.watch("127.0.0.2").await.unwrap_err();
    assert_eq!(early.code(), Code::Unavailable, "{early}");
    let mut agent = Agent::start(&path);
    let other = pod("b", Some("127.0.0.3"), 33);
    agent.send_snapshot(&[pod("a", Some("127.0.0.2"), 22), other.clone()]);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    let mut of_a = params.watch("127.0.0.2").await.unwrap();
    let mut of_b = params.watch("127.0.0.3").await.unwrap();
    let first = next(&mut of_a).await.unwrap();
    let batching = first.batching.unwrap();
    assert_eq!(batching.max_rows, 22);
    assert_eq!(batching.policy(), Policy::Timeout);
    assert_eq!(batching.max_delay_us, Some(2000));
    let model = &first.models[0];
    assert_eq!((&*model.model, model.weight), ("m", Some(300)));
    assert_eq!((model.threads, model.batching), (Some(2), None));
    assert_eq!(rows(&next(&mut of_b).await.unwrap()), 33);
    for change in 1..=20 {
        agent.send_snapshot(&[pod("a", Some("127.0.0.2"), 100 + change), other.clone()]);
        let changed = next(&mut of_a).await.unwrap();
        assert_eq!(rows(&changed), 100 + change);
    }
    let still = tokio::time::timeout(Duration::from_millis(300), of_b.message()).await;
    assert!(still.is_err(), "unchanged parameters are not sent again");
    assert_eq!(params.metric("albacore_params_streams"), 2.0);
    assert_eq!(params.metric("albacore_params_messages_sent_total"), 22.0);
    assert_eq!(params.metric("albacore_params_feed_sequence"), 21.0);
    let (_, text) = params.get("/metrics");
    assert!(text.contains("\nalbacore_agent_pods 3\n"), "{text}");
    // The text format, also for the agent's metrics, which are received as OpenMetrics.
    assert!(!text.contains("# EOF"), "{text}");
    let counter = "# TYPE albacore_params_messages_sent_total counter\n";
    assert!(text.contains(counter), "{text}");
    assert!(text.contains("\nprocess_open_fds "), "{text}");
    assert_eq!(params.get("/other").0, 404);
}

#[tokio::test]
async fn only_the_address_of_the_connection_identifies_a_pod() {
    let (_folder, path) = pipe();
    let params = Params::on_tcp(&path);
    let mut agent = Agent::start(&path);
    let both = [
        pod("a", Some("127.0.0.2"), 22),
        pod("b", Some("127.0.0.3"), 33),
        pod("host-1", Some("127.0.0.4"), 44),
        pod("host-2", Some("127.0.0.4"), 45),
    ];
    agent.send_snapshot(&both);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    // Headers that proxies set, and names in paths.
    for (header, value) in [
        ("x-forwarded-for", "127.0.0.2"),
        ("forwarded", "for=127.0.0.2"),
        ("x-real-ip", "127.0.0.2"),
        ("x-envoy-external-address", "127.0.0.2"),
        ("true-client-ip", "127.0.0.2"),
        ("host", "127.0.0.2"),
        ("x-pod-uid", "uid-a"),
        ("albacore-deployment", "fraud"),
    ] {
        for (from, expected) in [("127.0.0.3", Some(33)), ("127.0.0.9", None)] {
            let mut request = Request::new(WatchRequest {});
            let value = MetadataValue::try_from(value).unwrap();
            request.metadata_mut().insert(header, value);
            // No part of the client's request is used for identification.
            request.extensions_mut().insert("127.0.0.2");
            let asked = params.client(from).await.watch(request).await;
            match (asked, expected) {
                (Ok(reply), Some(expected)) => {
                    let first = next(&mut reply.into_inner()).await.unwrap();
                    assert_eq!(rows(&first), expected, "{header}");
                }
                (Err(status), None) => {
                    assert_eq!(status.code(), Code::PermissionDenied);
                    let words = "no pod of this node that belongs to an InferenceDeployment has \
                                 the address 127.0.0.9";
                    assert!(status.message().contains(words), "{status}");
                }
                (asked, _) => panic!("{header}: {asked:?}"),
            }
        }
    }
    let several = params.watch("127.0.0.4").await.unwrap_err();
    assert_eq!(several.code(), Code::PermissionDenied);
    assert!(several.message().contains("several pods"), "{several}");
    let refused = "albacore_params_refused_total{reason=\"unknown\"}";
    assert_eq!(params.metric(refused), 8.0);
}

#[tokio::test]
async fn an_ipv4_pod_is_identified_on_a_dual_stack_socket() {
    let (_folder, path) = pipe();
    let params = Params::start(&path, &["--grpc", "[::]:0"]);
    let mut agent = Agent::start(&path);
    agent.send_snapshot(&[pod("a", Some("127.0.0.2"), 22), pod("six", Some("::1"), 66)]);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    let port = params.grpc.unwrap().port();
    for (to, from, expected) in [
        (format!("127.0.0.1:{port}"), "127.0.0.2", 22),
        (format!("[::1]:{port}"), "::1", 66),
    ] {
        let mut client = params.client_of(to.parse().unwrap(), from).await;
        let mut stream = client.watch(WatchRequest {}).await.unwrap().into_inner();
        assert_eq!(rows(&next(&mut stream).await.unwrap()), expected);
    }
}

#[tokio::test]
async fn a_thousand_changes_in_a_second_end_in_the_newest() {
    let (_folder, path) = pipe();
    let params = Params::on_tcp(&path);
    let mut agent = Agent::start(&path);
    agent.send_snapshot(&[pod("a", Some("127.0.0.2"), 1)]);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    let mut stream = params.watch("127.0.0.2").await.unwrap();
    assert_eq!(rows(&next(&mut stream).await.unwrap()), 1);
    let writing = std::thread::spawn(move || {
        for change in 2..=1000 {
            agent.send_snapshot(&[pod("a", Some("127.0.0.2"), change)]);
            std::thread::sleep(Duration::from_micros(900));
        }
        (Instant::now(), agent)
    });
    let (mut last, mut messages) = (1, 0);
    while last < 1000 {
        let now = rows(&next(&mut stream).await.unwrap());
        assert!(now > last, "{now} after {last}");
        (last, messages) = (now, messages + 1);
    }
    let (written, _agent) = writing.join().unwrap();
    eprintln!(
        "{messages} messages, the last {:?} after it was written",
        written.elapsed()
    );
    assert!(messages < 500, "{messages} messages: a burst is coalesced");
    assert_eq!(
        params.metric("albacore_params_feed_lines_total{outcome=\"taken\"}"),
        1000.0
    );
}

#[tokio::test]
async fn a_removed_pod_loses_its_stream_and_another_with_its_address_gets_its_own() {
    let (_folder, path) = pipe();
    let params = Params::on_tcp(&path);
    let mut agent = Agent::start(&path);
    agent.send_snapshot(&[
        pod("a", Some("127.0.0.2"), 22),
        pod("b", Some("127.0.0.3"), 33),
    ]);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    let mut of_a = params.watch("127.0.0.2").await.unwrap();
    let mut of_b = params.watch("127.0.0.3").await.unwrap();
    next(&mut of_a).await.unwrap();
    next(&mut of_b).await.unwrap();
    agent.send_snapshot(&[pod("b", Some("127.0.0.2"), 44)]);
    let status = next(&mut of_a).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(
        status.message().contains("another pod has this address"),
        "{status}"
    );
    let status = next(&mut of_b).await.unwrap_err();
    assert!(
        status.message().starts_with("no pod of this node"),
        "{status}"
    );
    let mut again = params.watch("127.0.0.2").await.unwrap();
    assert_eq!(rows(&next(&mut again).await.unwrap()), 44);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_pod_cannot_take_all_streams_and_connections() {
    let (_folder, path) = pipe();
    let params = Params::on_tcp(&path);
    let mut agent = Agent::start(&path);
    agent.send_snapshot(&[
        pod("a", Some("127.0.0.2"), 22),
        pod("b", Some("127.0.0.3"), 33),
    ]);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(params.watch("127.0.0.2").await.unwrap());
    }
    let status = params.watch("127.0.0.2").await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let mut idle = Vec::new();
    let to = params.grpc.unwrap();
    for _ in 0..64 {
        // From 127.0.0.1, which is not a pod's address.
        idle.push(std::net::TcpStream::connect(to).unwrap());
    }
    let refused = "albacore_params_refused_total{reason=\"full_pod\"}";
    params.wait_for("48 connections refused", |params| {
        params.metric(refused) == 49.0
    });
    let mut of_b = params.watch("127.0.0.3").await.unwrap();
    assert_eq!(rows(&next(&mut of_b).await.unwrap()), 33);
    drop((open, idle));
    params.wait_for("room again", |params| {
        params.metric("albacore_params_streams") == 1.0
    });
    params.watch("127.0.0.2").await.unwrap();
}

#[tokio::test]
async fn sigterm_ends_open_streams_with_a_status_and_exits_with_0() {
    let (folder, path) = pipe();
    let socket = folder.path().join("params.sock");
    let unix = [
        "--grpc",
        "127.0.0.1:0",
        "--unix",
        socket.to_str().unwrap(),
        "--uid",
        "0",
    ];
    let mut params = Params::start(&path, &unix);
    let mut agent = Agent::start(&path);
    agent.send_snapshot(&[pod("a", Some("127.0.0.2"), 22)]);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    let mut stream = params.watch("127.0.0.2").await.unwrap();
    next(&mut stream).await.unwrap();
    let ended = std::thread::spawn(move || params.terminate());
    let status = next(&mut stream).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unavailable, "the server is stopping")
    );
    drop(stream);
    assert!(ended.join().unwrap());
    assert!(!socket.exists(), "its socket is gone");
}
