//! Sequential requests of one row through front and worker, on a keep-alive connection: `cargo
//! bench -p albacore-server --bench roundtrip`. Prints p50 and p99 in microseconds; the target is
//! p50 <= 150 us over HTTP.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[path = "../tests/running/mod.rs"]
mod running;

use std::time::{Duration, Instant};

use albacore_proto::inference::ModelInferRequest;
use albacore_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use albacore_proto::inference::model_infer_request::InferInputTensor;
use running::Running;

/// Calls that warm up the caches, the branch predictors and the learned cost model.
const WARM_UP: usize = 2_000;

/// Measured calls.
const MEASURED: usize = 20_000;

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return; // `cargo test` builds and runs benchmarks, too
    }
    let server = Running::start(
        &[("small", "main_small_d6.ubj")],
        &["--workers", "1", "--threads", "1"],
    );
    let row: Vec<f32> = (0..29_u8).map(|value| f32::from(value) / 7.0).collect();
    println!("one row of main_small_d6 (29 features, 100 trees of depth 6), W=1 T=1, loopback");

    let mut connection = server.connect();
    let path = "/v2/models/small/infer";
    let body = serde_json::json!({
        "inputs": [{"name": "input", "shape": [1, 29], "datatype": "FP32", "data": row}]
    })
    .to_string();
    report("HTTP, JSON", || {
        assert_eq!(
            connection.call("POST", path, &[], body.as_bytes()).status,
            200
        );
    });

    let tensor: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
    let headers = [
        ("Inference-Header-Content-Length", "0"),
        ("Content-Type", "application/octet-stream"),
    ];
    report("HTTP, binary", || {
        assert_eq!(connection.call("POST", path, &headers, &tensor).status, 200);
    });

    report("HTTP, health (no worker)", || {
        assert_eq!(
            connection.call("GET", "/v2/health/live", &[], b"").status,
            200
        );
    });

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let address = format!("http://{}", server.grpc);
    let mut client = runtime
        .block_on(GrpcInferenceServiceClient::connect(address))
        .unwrap();
    let request = ModelInferRequest {
        model_name: "small".to_owned(),
        inputs: vec![InferInputTensor {
            name: "input".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![1, 29],
            ..Default::default()
        }],
        raw_input_contents: vec![tensor.into()],
        ..Default::default()
    };
    report("gRPC, raw", || {
        runtime
            .block_on(client.model_infer(request.clone()))
            .unwrap();
    });
}

/// Times `call` and prints the percentiles.
fn report(name: &str, mut call: impl FnMut()) {
    (0..WARM_UP).for_each(|_| call());
    let mut times: Vec<Duration> = (0..MEASURED)
        .map(|_| {
            let start = Instant::now();
            call();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    let at = |share: f64| times[(share * (MEASURED - 1) as f64) as usize].as_secs_f64() * 1e6;
    println!(
        "{name:<26} p50 {:7.1} us   p99 {:7.1} us   p99.9 {:7.1} us",
        at(0.5),
        at(0.99),
        at(0.999)
    );
}
