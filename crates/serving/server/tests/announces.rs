//! A server that is shutting down announces it to load balancers, and serves until they react.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;

use albacore_proto::inference::ServerReadyRequest;
use albacore_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use running::{Answer, Connection, Running};
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Code, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

const MODELS: [(&str, &str); 1] = [("small", "main_small_d6.ubj")];

/// Reply header that makes Envoy stop sending requests.
const ENVOY: &str = "x-envoy-immediate-health-check-fail";

fn infer(connection: &mut Connection) -> Answer {
    let data = vec![0.5; 29];
    let input = json!({"name": "input", "shape": [1, 29], "datatype": "FP32", "data": data});
    let body = json!({"inputs": [input]}).to_string();
    let answer = connection.call("POST", "/v2/models/small/infer", &[], body.as_bytes());
    assert_eq!(answer.status, 200, "{:?}", answer.json());
    answer
}

async fn channel(server: &Running) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", server.grpc)).unwrap();
    endpoint.connect().await.unwrap()
}

/// Watches the health of a ready server.
async fn watch(server: &Running) -> Streaming<HealthCheckResponse> {
    let mut client = HealthClient::new(channel(server).await);
    let watched = client.watch(HealthCheckRequest::default()).await.unwrap();
    let mut watched = watched.into_inner();
    // The server may be ready before the health service, which polls every 100 ms, reports it.
    while next(&mut watched).await != ServingStatus::Serving {}
    watched
}

async fn next(watched: &mut Streaming<HealthCheckResponse>) -> ServingStatus {
    watched.message().await.unwrap().unwrap().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_server_announces_its_shutdown_and_serves_during_the_drain_delay() {
    let delay = ["--drain-delay", "5s", "--envoy-health-header"];
    let mut server = Running::start(&MODELS, &delay);
    let mut watched = watch(&server).await;
    let mut old = server.connect();
    let answer = infer(&mut old);
    assert_eq!(
        (answer.header("connection"), answer.header(ENVOY)),
        (None, None)
    );
    let mut grpc = GrpcInferenceServiceClient::new(channel(&server).await);
    let reply = grpc.server_ready(ServerReadyRequest {}).await.unwrap();
    assert!(!reply.metadata().contains_key(ENVOY) && reply.into_inner().ready);

    assert!(running::kill("-TERM", server.pid()));
    server.event("draining");
    assert_eq!(next(&mut watched).await, ServingStatus::NotServing);
    let ready = server.get("/v2/health/ready");
    assert_eq!((ready.status, ready.header(ENVOY)), (503, Some("true")));
    let live = server.get("/v2/health/live");
    assert_eq!(live.status, 200, "a liveness probe does not end it early");
    // An existing connection is closed; a new one is still served.
    let answer = infer(&mut old);
    assert_eq!(answer.header("connection"), Some("close"));
    assert_eq!(answer.header(ENVOY), Some("true"));
    let mut new = server.connect();
    for _ in 0..2 {
        assert_eq!(infer(&mut new).header("connection"), None);
    }
    let reply = grpc.server_ready(ServerReadyRequest {}).await.unwrap();
    assert_eq!(reply.metadata().get(ENVOY).unwrap(), "true");
    assert!(!reply.into_inner().ready);
    // After the drain delay the existing connection is closed, and the new one is closed after its
    // next reply or when idle.
    server.event("stopped");
    let ended = watched.message().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn health_watch_streams_do_not_delay_the_shutdown() {
    let server = Running::start(&MODELS, &[]);
    let mut watched = watch(&server).await;
    assert!(running::kill("-TERM", server.pid()));
    assert_eq!(next(&mut watched).await, ServingStatus::NotServing);
    let ended = watched.message().await.unwrap_err();
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_front_announces_no_shutdown() {
    let mut server = Running::start(&MODELS, &["--drain-delay", "60s", "--envoy-health-header"]);
    let mut old = server.connect();
    infer(&mut old);
    assert!(running::kill("-USR2", server.pid()));
    server.event("upgraded");
    // The connection ends with this reply, without a delay, or has ended before.
    let mut served = 0;
    loop {
        // bound: PATIENCE of the connection
        let answer = infer(&mut old);
        assert_eq!(answer.header(ENVOY), None);
        served += 1;
        if answer.header("connection") == Some("close") {
            break;
        }
    }
    assert!(served > 0);
    assert_eq!(server.get("/v2/health/ready").status, 200);
}
