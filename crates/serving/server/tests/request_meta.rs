//! Deadlines of requests over HTTP and gRPC: malformed, expired, and unachievable ones.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use albacore_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::model_infer_request::{
    InferInputTensor, InferRequestedOutputTensor,
};
use albacore_proto::inference::{InferParameter, InferTensorContents, ModelInferRequest};
use running::{Answer, PATIENCE, Running};
use serde_json::json;
use tonic::Code;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

const INFER: &str = "/v2/models/small/infer";

/// Number of rows whose interactions take long.
const LONG_ROWS: usize = 1000;

fn start() -> Running {
    let models = [("small", "main_small_d6.ubj")];
    Running::start(&models, &["--workers", "1", "--threads", "1"])
}

fn body(rows: usize, output: &str, parameters: &serde_json::Value) -> Vec<u8> {
    let request = json!({
        "parameters": parameters,
        "inputs": [{"name": "input", "datatype": "FP32", "shape": [rows, 29],
                    "data": vec![0.5; rows * 29]}],
        "outputs": [{"name": output}],
    });
    request.to_string().into_bytes()
}

fn request(rows: usize, output: &str) -> ModelInferRequest {
    ModelInferRequest {
        model_name: "small".to_owned(),
        inputs: vec![InferInputTensor {
            name: "input".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![rows as i64, 29],
            contents: Some(InferTensorContents {
                fp32_contents: vec![0.5; rows * 29],
                ..Default::default()
            }),
            ..Default::default()
        }],
        outputs: vec![InferRequestedOutputTensor {
            name: output.to_owned(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

async fn client(server: &Running) -> GrpcInferenceServiceClient<Channel> {
    let channel = Channel::from_shared(format!("http://{}", server.grpc)).unwrap();
    let client = GrpcInferenceServiceClient::new(channel.connect().await.unwrap());
    client.max_decoding_message_size(usize::MAX)
}

fn with_parameter(name: &str, choice: ParameterChoice) -> ModelInferRequest {
    let mut request = request(1, "output");
    let value = InferParameter {
        parameter_choice: Some(choice),
    };
    request.parameters.insert(name.to_owned(), value);
    request
}

fn post(server: &Running, header: Option<&str>, parameters: serde_json::Value) -> Answer {
    let body = body(1, "output", &parameters);
    let header = header.map(|value| ("x-request-timeout-ms", value));
    server.post(INFER, header.as_slice(), &body)
}

#[tokio::test]
async fn expired_requests_are_marked_as_not_retriable() {
    let server = start();
    let answer = post(&server, Some("0"), json!({}));
    assert_eq!(answer.status, 504);
    assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
    let mut call = tonic::Request::new(request(1, "output"));
    let (name, value) = ("x-request-timeout-ms", "0".parse().unwrap());
    call.metadata_mut().insert(name, value);
    let status = client(&server).await.model_infer(call).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let of = |name: &str| status.metadata().get(name).unwrap();
    assert_eq!(of("grpc-retry-pushback-ms"), "-1");
    assert_eq!(of("x-envoy-ratelimited"), "true");
}

#[tokio::test]
async fn timeouts_and_priorities_are_applied_or_refused_by_name() {
    let server = start();
    for parameters in [
        json!({"timeout": 0, "priority": 0}),
        json!({"timeout": 3_600_000_000_u64, "priority": 1}),
        json!({"timeout": null, "priority": null, "else": {"a": [1]}}),
        json!({"priority": 7}),
    ] {
        let answer = post(&server, Some("60000"), parameters);
        assert_eq!(answer.status, 200, "{:?}", answer.json());
    }
    for (header, parameters, name) in [
        (Some("soon"), json!({}), "x-request-timeout-ms"),
        (Some("-1"), json!({}), "x-request-timeout-ms"),
        (None, json!({"timeout": "10"}), "\"timeout\""),
        (None, json!({"timeout": -10}), "\"timeout\""),
        (None, json!({"timeout": 1.5}), "\"timeout\""),
        (None, json!({"timeout": {"us": 1}}), "\"timeout\""),
        (None, json!({"priority": true}), "\"priority\""),
    ] {
        let answer = post(&server, header, parameters);
        let message = answer.error();
        assert!(answer.status == 400 && message.contains(name), "{message}");
    }
    assert_eq!(post(&server, Some("0"), json!({})).status, 504);

    let mut client = client(&server).await;
    for right in [
        with_parameter("timeout", ParameterChoice::Int64Param(60_000_000)),
        with_parameter("timeout", ParameterChoice::Uint64Param(0)),
        with_parameter("priority", ParameterChoice::Uint64Param(1)),
    ] {
        client.model_infer(right).await.unwrap();
    }
    for (wrong, name) in [
        (
            with_parameter("timeout", ParameterChoice::Int64Param(-1)),
            "\"timeout\"",
        ),
        (
            with_parameter("timeout", ParameterChoice::StringParam("1".to_owned())),
            "\"timeout\"",
        ),
        (
            with_parameter("priority", ParameterChoice::BoolParam(true)),
            "\"priority\"",
        ),
    ] {
        let status = client.model_infer(wrong).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(name), "{status}");
    }
    for (name, value) in [("x-request-timeout-ms", "soon"), ("grpc-timeout", "soon")] {
        let mut call = tonic::Request::new(request(1, "output"));
        call.metadata_mut().insert(name, value.parse().unwrap());
        let status = client.model_infer(call).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(name), "{status}");
    }
    let mut call = tonic::Request::new(request(1, "output"));
    call.metadata_mut()
        .insert("x-request-timeout-ms", "0".parse().unwrap());
    let status = client.model_infer(call).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    let mut call = tonic::Request::new(request(1, "output"));
    call.set_timeout(Duration::from_secs(60));
    let reply = client.model_infer(call).await.unwrap();
    let timing = reply.metadata().get("server-timing").unwrap();
    assert!(timing.to_str().unwrap().contains("run;dur="));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_cannot_meet_their_deadline_are_refused_over_both_protocols() {
    let server = start();
    let mut client = client(&server).await;
    // Half of what a request takes: enough to receive one, too short to wait for others.
    let mut timeout = Duration::MAX;
    // Number of batches after which their cost is learned.
    for _ in 0..8 {
        let start = Instant::now();
        let call = request(LONG_ROWS, "interactions");
        client.model_infer(call).await.unwrap();
        timeout = timeout.min(start.elapsed());
    }
    let timeout = timeout / 2;
    let micros = timeout.as_micros() as i64;
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let call = request(LONG_ROWS, "interactions");
                client.model_infer(call).await.map(drop)
            })
        })
        .collect();
    let metrics = || String::from_utf8(server.get("/metrics").body).unwrap();
    while !metrics().contains("albacore_queue_rows 3000") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let short = body(LONG_ROWS, "interactions", &json!({"timeout": micros}));
    let answer = server.post(INFER, &[], &short);
    assert_eq!(answer.status, 429, "{:?}", answer.json());
    assert!(answer.header("retry-after").is_some());
    let long = body(LONG_ROWS, "interactions", &json!({}));
    let millis = timeout.as_millis().to_string();
    let answer = server.post(INFER, &[("x-request-timeout-ms", &millis)], &long);
    assert_eq!(answer.status, 429, "{:?}", answer.json());
    let parameter = InferParameter {
        parameter_choice: Some(ParameterChoice::Int64Param(micros)),
    };
    let mut call = request(LONG_ROWS, "interactions");
    call.parameters.insert("timeout".to_owned(), parameter);
    let status = client.model_infer(call).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    // Information for users only; the client decides on the delay of a retry on another server.
    assert!(status.get_details_retry_info().is_some());
    assert!(!status.metadata().contains_key("grpc-retry-pushback-ms"));
    // A gRPC deadline shorter than any of these requests takes.
    let mut call = tonic::Request::new(request(LONG_ROWS, "interactions"));
    call.metadata_mut()
        .insert("grpc-timeout", format!("{micros}u").parse().unwrap());
    let status = client.model_infer(call).await.unwrap_err();
    let code = status.code();
    let is_honest = matches!(
        code,
        Code::ResourceExhausted | Code::DeadlineExceeded | Code::Cancelled
    );
    assert!(is_honest, "{status}");
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

/// Waits until the kernel timestamps arriving packets. On a busy machine this begins some time
/// after it is requested; it continues as long as the socket is open.
fn timestamped_listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    albacore_os::enable_receive_timestamps(&listener).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let mut reader = albacore_os::TimestampedReader::default();
    let start = Instant::now();
    let mut is_stamped = || {
        client.write_all(b"x").unwrap();
        let arrived = reader
            .receive(&accepted, &mut Vec::with_capacity(16))
            .unwrap();
        arrived.waited.is_some()
    };
    while !is_stamped() {
        // bound: PATIENCE
        assert!(start.elapsed() < PATIENCE, "the kernel stamps nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    listener
}

#[tokio::test]
async fn time_in_the_socket_buffer_counts_towards_the_deadline() {
    let server = start();
    let _stamping = timestamped_listener();
    assert_eq!(post(&server, None, json!({})).status, 200);
    let front = server.front().to_string();
    let tell = |signal: &str| {
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args([signal, &front]).status().unwrap().success());
    };
    tell("-STOP");
    let late = std::thread::scope(|scope| {
        let delayed = scope.spawn(|| post(&server, Some("150"), json!({})));
        std::thread::sleep(Duration::from_millis(400));
        tell("-CONT");
        delayed.join().unwrap()
    });
    assert_eq!(late.status, 504, "{:?}", late.json());
    let answer = post(&server, Some("60000"), json!({}));
    assert_eq!(answer.status, 200, "{:?}", answer.json());
}
