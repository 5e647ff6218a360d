//! Load reports of a real server: in HTTP and gRPC replies, in rejections, and as a stream.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;

use std::time::{Duration, Instant};

use albacore_proto::inference::ModelInferRequest;
use albacore_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use albacore_proto::inference::model_infer_request::InferInputTensor;
use albacore_proto::orca::open_rca_service_client::OpenRcaServiceClient;
use albacore_proto::orca::{self, OrcaLoadReport, OrcaLoadReportRequest};
use prost::Message as _;
use running::{PATIENCE, Running};
use tonic::Code;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

const BODY: &str = r#"{"inputs":[{"name":"input","shape":[1,29],"datatype":"FP32","data":
    [0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28]}]}"#;

const PATH: &str = "/v2/models/small/infer";

const FORMAT: &str = "endpoint-load-metrics-format";

fn start(further: &[&str]) -> Running {
    let arguments = [&["--workers", "1", "--threads", "1"], further].concat();
    Running::start(&[("small", "main_small_d6.ubj")], &arguments)
}

/// The report in an HTTP reply to a request for this format.
fn report(server: &Running, format: &str) -> Option<String> {
    let reply = server.post(PATH, &[(FORMAT, format)], BODY.as_bytes());
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.header("endpoint-load-metrics").map(str::to_owned)
}

async fn channel(server: &Running) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", server.grpc)).unwrap();
    endpoint.connect().await.unwrap()
}

fn request(model: &str, format: Option<&'static str>) -> tonic::Request<ModelInferRequest> {
    let mut request = tonic::Request::new(ModelInferRequest {
        model_name: model.to_owned(),
        inputs: vec![InferInputTensor {
            name: "input".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![1, 29],
            ..Default::default()
        }],
        raw_input_contents: vec![vec![0; 29 * 4].into()],
        ..Default::default()
    });
    if let Some(format) = format {
        let metadata = request.metadata_mut();
        metadata.insert(FORMAT, format.parse().unwrap());
    }
    request
}

fn trailer(metadata: &MetadataMap) -> Option<OrcaLoadReport> {
    let value = metadata.get_bin("endpoint-load-metrics-bin")?;
    Some(OrcaLoadReport::decode(value.to_bytes().unwrap()).unwrap())
}

#[test]
fn replies_over_http_carry_the_report_that_their_request_asks_for() {
    let server = start(&[]);
    let start_time = Instant::now();
    let json = loop {
        let json = report(&server, "json").unwrap_or_default();
        let json = json.strip_prefix("JSON ").unwrap_or("{}").to_owned();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        if json["application_utilization"].as_f64() > Some(0.0) {
            break json;
        }
        assert!(start_time.elapsed() < PATIENCE, "never any work: {json}");
    };
    assert!(json["rps_fractional"].as_f64() > Some(0.0), "{json}");
    assert_eq!(json["eps"], 0.0);
    let of_model = &json["named_metrics"]["small.utilization"];
    assert_eq!(*of_model, json["application_utilization"], "{json}");
    let text = report(&server, "text").unwrap();
    assert!(text.starts_with("TEXT application_utilization:"), "{text}");
    assert!(report(&server, "bin").unwrap().starts_with("BIN "));
    assert_eq!(report(&server, "xml"), None);
    let reply = server.post(PATH, &[], BODY.as_bytes());
    assert_eq!(reply.header("endpoint-load-metrics"), None);
    // Rejections contain the report, too.
    let refused = server.post("/v2/models/absent/infer", &[(FORMAT, "text")], b"{}");
    assert_eq!(refused.status, 404);
    assert!(refused.header("endpoint-load-metrics").is_some());
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    let line = "albacore_load_report_formats_unknown_total 1";
    assert!(metrics.contains(line), "{metrics}");
    assert!(metrics.contains("albacore_work_seconds_total{model=\"small\"}"));
}

#[tokio::test]
async fn replies_over_grpc_and_streams_carry_the_report() {
    let mut server = start(&["--load-reports", "always"]);
    let mut client = GrpcInferenceServiceClient::new(channel(&server).await);
    let start_time = Instant::now();
    let report = loop {
        let reply = client.model_infer(request("small", None)).await.unwrap();
        match trailer(reply.metadata()) {
            Some(report) if report.application_utilization > 0.0 => break report,
            _ => assert!(start_time.elapsed() < PATIENCE, "never any work"),
        }
    };
    assert!(report.rps_fractional > 0.0, "{report:?}");
    assert!(report.named_metrics.contains_key("small.utilization"));
    let refused = client.model_infer(request("absent", Some("?"))).await;
    assert!(trailer(refused.unwrap_err().metadata()).is_some());

    let mut streams = OpenRcaServiceClient::new(channel(&server).await);
    let request = OrcaLoadReportRequest {
        report_interval: Some(orca::Duration {
            seconds: 0,
            nanos: 1,
        }),
        request_cost_names: Vec::new(),
    };
    let mut stream = streams.stream_core_metrics(request).await.unwrap();
    for _ in 0..3 {
        let report = stream.get_mut().message().await.unwrap().unwrap();
        assert!(report.named_metrics.contains_key("small.rps"));
    }
    // An open stream must not delay the shutdown.
    assert!(running::kill("-TERM", server.pid()));
    let ended = async {
        while let Ok(Some(_report)) = stream.get_mut().message().await {} // bound: the stop
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
    while server.try_exit().is_none() {
        assert!(start_time.elapsed() < PATIENCE, "the server does not stop");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_server_may_give_no_reports() {
    let server = start(&["--load-reports", "never"]);
    assert_eq!(report(&server, "json"), None);
    let mut client = GrpcInferenceServiceClient::new(channel(&server).await);
    let reply = client.model_infer(request("small", Some("bin"))).await;
    assert_eq!(trailer(reply.unwrap().metadata()), None);
    let mut streams = OpenRcaServiceClient::new(channel(&server).await);
    let refused = streams.stream_core_metrics(OrcaLoadReportRequest::default());
    let refused = refused.await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("--load-reports"), "{refused}");
}
