//! Infer streams that end early: clients that disconnect within a message, and a server that stops
//! with requests in flight.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "bad_clients/frames.rs"]
mod frames;
mod running;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use albacore_proto::inference::ModelInferRequest;
use albacore_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use albacore_proto::inference::model_infer_request::InferInputTensor;
use futures_util::StreamExt as _;
use futures_util::stream::{iter, pending};
use prost::Message as _;
use running::{PATIENCE, Running, kill};
use serde_json::Value;
use tonic::Code;

const MODELS: [(&str, &str); 1] = [("small", "main_small_d6.ubj")];
const FEATURES: usize = 29;

/// Requests of a stream whose replies are awaited.
const REQUESTS: usize = 5;

fn request(id: usize) -> ModelInferRequest {
    let bytes: Vec<u8> = std::iter::repeat_n(0.5_f32.to_le_bytes(), FEATURES)
        .flatten()
        .collect();
    ModelInferRequest {
        model_name: "small".to_owned(),
        id: id.to_string(),
        inputs: vec![InferInputTensor {
            name: "input".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![1, FEATURES as i64],
            ..Default::default()
        }],
        raw_input_contents: vec![bytes.into()],
        ..Default::default()
    }
}

/// A gRPC frame that announces `length` bytes and contains `bytes`.
fn framed(length: usize, bytes: &[u8]) -> Vec<u8> {
    let mut framed = vec![0];
    framed.extend((length as u32).to_be_bytes());
    framed.extend(bytes);
    framed
}

fn metric(server: &Running, name: &str) -> f64 {
    let text = String::from_utf8(server.get("/metrics").body).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn model_statistics(server: &Running) -> Value {
    let stats = server.get("/v2/models/small/stats").json();
    stats["model_stats"][0].clone()
}

/// Opens a stream with one request and reads its reply; then sends the beginning of a message that
/// announces `length` bytes.
fn open_with_partial_message(server: &Running, length: usize, sent: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.grpc).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let path = "/inference.GRPCInferenceService/ModelStreamInfer";
    let fields = [
        frames::request("POST", path),
        frames::field("content-type", "application/grpc"),
        frames::field("te", "trailers"),
    ];
    let whole = request(1).encode_to_vec();
    let opening = [
        frames::opening(),
        frames::headers(1, &fields.concat(), (true, false)),
        frames::data(1, &framed(whole.len(), &whole), false),
    ];
    stream.write_all(&opening.concat()).unwrap();
    let mut received = Vec::new();
    let mut piece = [0; 4096];
    // The reply contains the name of the output.
    while !received.windows(6).any(|six| six == b"output") {
        let count = stream.read(&mut piece).unwrap();
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&received));
        received.extend(&piece[..count]);
    }
    for part in framed(length, sent).chunks(16 << 10) {
        stream.write_all(&frames::data(1, part, false)).unwrap();
    }
    stream
}

#[test]
fn a_stream_that_is_cut_inside_a_message_leaves_no_trace() {
    let server = Running::start(&MODELS, &["--workers", "1"]);
    let whole = request(2).encode_to_vec();
    let connections = metric(&server, "albacore_connections");
    let mut streams = 0;
    let mut memory = None;
    for _ in 0..3 {
        // A part of a small message; a part of a large message; a part of the frame header.
        let large = vec![0; 1 << 20];
        for (length, sent) in [
            (whole.len(), &whole[..20]),
            (60 << 20, &large[..]),
            (1 << 20, &[]),
        ] {
            let closed = open_with_partial_message(&server, length, sent);
            drop(closed);
            let half_closed = open_with_partial_message(&server, length, sent);
            half_closed.shutdown(Shutdown::Write).unwrap();
            let mut reset = open_with_partial_message(&server, length, sent);
            reset.write_all(&frames::reset(1)).unwrap();
            let mut ended = open_with_partial_message(&server, length, sent);
            ended.write_all(&frames::data(1, b"", true)).unwrap();
            streams += 4;
        }
        until("its connections are closed", || {
            // Includes the connection of the metrics request, as before.
            metric(&server, "albacore_connections") <= connections
        });
        until("its requests have left the queue", || {
            metric(&server, "albacore_queue_rows") == 0.0
        });
        let used = metric(&server, "albacore_arena_used_bytes");
        assert_eq!(
            *memory.get_or_insert(used),
            used,
            "shared memory is given back"
        );
    }
    // Only complete requests are counted, each once.
    let stats = model_statistics(&server);
    assert_eq!(stats["inference_count"], streams);
    assert_eq!(stats["inference_stats"]["success"]["count"], streams);
    assert_eq!(stats["inference_stats"]["fail"]["count"], 0);
    drop(open_with_partial_message(&server, 60 << 20, &[0; 1000]));
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopping_server_answers_the_requests_of_a_stream_that_it_has_read() {
    // Batches of one row, so that the other requests are visible in the queue.
    let mut server = Running::start(&MODELS, &["--workers", "1", "--max-rows", "1"]);
    server.signal_workers("-STOP");
    let address = format!("http://{}", server.grpc);
    let mut client = GrpcInferenceServiceClient::connect(address).await.unwrap();
    let requests = iter((0..REQUESTS).map(request)).chain(pending());
    let mut replies = client
        .model_stream_infer(requests)
        .await
        .unwrap()
        .into_inner();
    until("the requests are read", || {
        let queued = metric(&server, "albacore_queue_rows");
        metric(&server, "albacore_workers_busy") == 1.0 && queued == REQUESTS as f64 - 1.0
    });
    assert!(kill("-TERM", server.pid()));
    server.event("draining");
    server.signal_workers("-CONT");
    for id in 0..REQUESTS {
        let reply = replies.message().await.unwrap().expect("a reply");
        assert_eq!(reply.error_message, "");
        let response = reply.infer_response.unwrap();
        assert_eq!(response.id, id.to_string());
        assert_eq!(response.outputs[0].shape, [1]);
    }
    let ended = replies.message().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
    server.event("stopped");
    let mut code = None;
    until("the server ends", || {
        code = server.try_exit();
        code.is_some()
    });
    assert_eq!(code, Some(Some(0)));
}
