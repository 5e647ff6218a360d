//! A real server over gRPC: the six calls, typed and raw tensors, status codes, health and
//! reflection.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;
#[path = "../../../models/trees/tests/zoo/mod.rs"]
mod zoo;

use albacore_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::model_infer_request::{
    InferInputTensor, InferRequestedOutputTensor,
};
use albacore_proto::inference::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelMetadataRequest,
    ModelReadyRequest, ServerLiveRequest, ServerMetadataRequest, ServerReadyRequest,
};
use prost::bytes::Bytes;
use running::Running;
use tonic::Code;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

type Client = GrpcInferenceServiceClient<Channel>;

const MODELS: [(&str, &str); 2] = [("small", "main_small_d6.ubj"), ("light", "lgb_binary.txt")];

fn start() -> Running {
    Running::start(&MODELS, &["--workers", "1", "--threads", "2"])
}

async fn channel(server: &Running) -> Channel {
    Channel::from_shared(format!("http://{}", server.grpc))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

async fn client(server: &Running) -> Client {
    Client::new(channel(server).await).max_decoding_message_size(usize::MAX)
}

/// `rows` rows for the small model, with all values one half.
fn infer_request(rows: usize) -> ModelInferRequest {
    ModelInferRequest {
        model_name: "small".to_owned(),
        id: "an id".to_owned(),
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
        ..Default::default()
    }
}

fn outputs(names: &[&str]) -> Vec<InferRequestedOutputTensor> {
    let output = |&name: &&str| InferRequestedOutputTensor {
        name: name.to_owned(),
        ..Default::default()
    };
    names.iter().map(output).collect()
}

#[tokio::test]
async fn health_and_metadata_answer() {
    let server = start();
    let mut client = client(&server).await;
    assert!(
        client
            .server_live(ServerLiveRequest {})
            .await
            .unwrap()
            .into_inner()
            .live
    );
    assert!(
        client
            .server_ready(ServerReadyRequest {})
            .await
            .unwrap()
            .into_inner()
            .ready
    );
    let model = |name: &str, version: &str| ModelReadyRequest {
        name: name.to_owned(),
        version: version.to_owned(),
    };
    assert!(
        client
            .model_ready(model("small", "1"))
            .await
            .unwrap()
            .into_inner()
            .ready
    );
    let unknown = client.model_ready(model("nobody", "")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let metadata = client
        .server_metadata(ServerMetadataRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(metadata.name, "albacore-server");
    let request = ModelMetadataRequest {
        name: "small".to_owned(),
        version: String::new(),
    };
    let metadata = client.model_metadata(request).await.unwrap().into_inner();
    assert_eq!(metadata.inputs[0].shape, [-1, 29]);
    assert_eq!(metadata.outputs[0].name, "output");
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel(&server).await);
    for service in ["", "inference.GRPCInferenceService"] {
        let request = tonic_health::pb::HealthCheckRequest {
            service: service.to_owned(),
        };
        // The health service polls the engine ten times per second.
        let start = std::time::Instant::now();
        while health
            .check(request.clone())
            .await
            .unwrap()
            .into_inner()
            .status
            != 1
        {
            assert!(
                start.elapsed() < running::PATIENCE,
                "never: {service:?} serves"
            );
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn columns_are_described_and_compared() {
    let server = start();
    let mut client = client(&server).await;
    let request = ModelMetadataRequest {
        name: "light".to_owned(),
        version: String::new(),
    };
    let metadata = client.model_metadata(request).await.unwrap().into_inner();
    let text = |name: &str| match &metadata.inputs[0].parameters[name].parameter_choice {
        Some(ParameterChoice::StringParam(text)) => text.clone(),
        other => panic!("{name}: {other:?}"),
    };
    let names: Vec<String> = (0..10).map(|column| format!("Column_{column}")).collect();
    let as_json = |names: &[String]| serde_json::to_string(names).unwrap();
    assert_eq!(text("feature_names"), as_json(&names));
    assert!(text("feature_types").starts_with("[\"numerical\","));
    let end = &metadata.parameters["iterations_end"];
    assert_eq!(end, &metadata.parameters["iterations_in_file"]);
    assert!(!metadata.parameters.contains_key("best_iteration"));
    let named = |choice: ParameterChoice| {
        let mut request = infer_request(1);
        request.model_name = "light".to_owned();
        request.inputs[0].shape = vec![1, 10];
        request.inputs[0].contents.as_mut().unwrap().fp32_contents = vec![0.5; 10];
        let parameter = InferParameter {
            parameter_choice: Some(choice),
        };
        let parameters = &mut request.inputs[0].parameters;
        parameters.insert("feature_names".to_owned(), parameter);
        request
    };
    for good in [as_json(&names), names.join(",")] {
        let request = named(ParameterChoice::StringParam(good));
        client.model_infer(request).await.unwrap();
    }
    let mut swapped = names.clone();
    swapped[9] = "Column_0".to_owned();
    for (wrong, part) in [
        (
            ParameterChoice::StringParam(as_json(&swapped)),
            "column \"Column_0\" is given twice",
        ),
        (
            ParameterChoice::StringParam("Column_0".to_owned()),
            "column \"Column_1\", \"Column_2\",",
        ),
        (ParameterChoice::BoolParam(true), "is not a list of strings"),
    ] {
        let refused = client.model_infer(named(wrong)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().contains(part), "{}", refused.message());
    }
}

#[tokio::test]
async fn typed_and_raw_tensors_equal_those_of_the_library_bit_for_bit() {
    let server = start();
    let mut client = client(&server).await;
    let sample = zoo::sample("main_small_d6");
    let (rows, want) = (sample.array("X").unwrap(), sample.array("margin").unwrap());
    let want: Vec<u32> = want.as_f32().iter().map(|value| value.to_bits()).collect();
    let mut typed = infer_request(rows.shape[0]);
    typed.inputs[0].contents.as_mut().unwrap().fp32_contents = rows.as_f32();
    typed.outputs = outputs(&["margin", "leaf"]);
    let reply = client
        .model_infer(typed.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!((&*reply.id, &*reply.model_version), ("an id", "1"));
    let margins = &reply.outputs[0].contents.as_ref().unwrap().fp32_contents;
    assert_eq!(
        margins
            .iter()
            .map(|value| value.to_bits())
            .collect::<Vec<_>>(),
        want
    );
    assert!(reply.raw_output_contents.is_empty());

    let mut raw = typed.clone();
    raw.inputs[0].contents = None;
    let bytes: Vec<u8> = rows
        .as_f32()
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    raw.raw_input_contents = vec![bytes.into()];
    let reply = client.model_infer(raw).await.unwrap().into_inner();
    assert!(reply.outputs.iter().all(|output| output.contents.is_none()));
    let margins = reply.raw_output_contents[0].as_chunks().0;
    assert_eq!(
        margins
            .iter()
            .map(|&bytes| u32::from_le_bytes(bytes))
            .collect::<Vec<_>>(),
        want
    );
    assert_eq!(reply.raw_output_contents[1].len(), rows.shape[0] * 100 * 4);

    let yes = InferParameter {
        parameter_choice: Some(ParameterChoice::BoolParam(true)),
    };
    typed
        .parameters
        .insert("binary_data_output".to_owned(), yes);
    let reply = client.model_infer(typed).await.unwrap().into_inner();
    assert_eq!(reply.raw_output_contents.len(), 2);
}

/// A modification that makes a request invalid.
type Corruption = fn(&mut ModelInferRequest);

/// Sends each invalid request, followed by a valid one.
async fn assert_refused(client: &mut Client, code: Code, cases: &[(&str, Corruption)]) {
    for (part, corrupt) in cases {
        let mut request = infer_request(1);
        corrupt(&mut request);
        let status = client.model_infer(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(part), "{part}: {status}");
        assert!(
            client.model_infer(infer_request(1)).await.is_ok(),
            "after {part}"
        );
    }
}

/// Replaces typed contents with raw tensors of these sizes.
fn make_raw(request: &mut ModelInferRequest, sizes: &[usize]) {
    request.inputs[0].contents = None;
    request.raw_input_contents = sizes
        .iter()
        .map(|&size| Bytes::from(vec![0; size]))
        .collect();
}

#[tokio::test]
async fn bad_input_gets_its_code_and_the_server_keeps_serving() {
    let server = start();
    let mut client = client(&server).await;
    let unknown: [(&str, Corruption); 2] = [
        ("not served", |r| r.model_name = "nobody".to_owned()),
        ("no version", |r| r.model_version = "2".to_owned()),
    ];
    assert_refused(&mut client, Code::NotFound, &unknown).await;
    let declared: [(&str, Corruption); 8] = [
        ("0 inputs", |r| r.inputs.clear()),
        ("datatype", |r| r.inputs[0].datatype = "BYTES".to_owned()),
        ("uint_contents", |r| {
            r.inputs[0].datatype = "UINT8".to_owned()
        }),
        ("raw_input_contents", |r| {
            r.inputs[0].datatype = "FP16".to_owned()
        }),
        ("shape", |r| r.inputs[0].shape = vec![29]),
        ("shape", |r| r.inputs[0].shape = vec![0, 29]),
        ("needs 58", |r| r.inputs[0].shape = vec![2, 29]),
        ("dimensions", |r| r.inputs[0].shape = vec![1; 99]),
    ];
    assert_refused(&mut client, Code::InvalidArgument, &declared).await;
    let data: [(&str, Corruption); 7] = [
        ("both", |r| {
            r.raw_input_contents.push(Bytes::from(vec![0; 116]))
        }),
        ("no data", |r| r.inputs[0].contents = None),
        ("115 bytes", |r| make_raw(r, &[115])),
        ("2 entries", |r| make_raw(r, &[116, 1])),
        ("other lists", |r| {
            r.inputs[0].contents.as_mut().unwrap().int64_contents = vec![1]
        }),
        ("unknown", |r| r.outputs = outputs(&["x"])),
        ("twice", |r| r.outputs = outputs(&["leaf", "leaf"])),
    ];
    assert_refused(&mut client, Code::InvalidArgument, &data).await;
}

#[tokio::test]
async fn messages_beyond_four_mebibytes_pass() {
    let server = start();
    let mut client = client(&server).await;
    let reply = client.model_infer(infer_request(50_000)).await;
    let reply = reply
        .unwrap_or_else(|status| panic!("{status}"))
        .into_inner();
    assert_eq!(reply.outputs[0].shape, [50_000]);
}

#[tokio::test]
async fn a_full_queue_is_resource_exhausted() {
    let arguments = ["--workers", "1", "--threads", "1", "--queue-rows", "4"];
    let server = Running::start(&MODELS, &arguments);
    let client = client(&server).await;
    server.signal_workers("-STOP");
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let mut client = client.clone();
        calls.spawn(async move { client.model_infer(infer_request(3)).await });
    }
    let status = calls.join_next().await.unwrap().unwrap().unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    // Information for users only; the client decides on the delay of a retry on another server.
    assert!(status.get_details_retry_info().is_some());
    assert!(!status.metadata().contains_key("grpc-retry-pushback-ms"));
    server.signal_workers("-CONT");
    let rest = calls.join_all().await;
    assert!(rest.iter().any(Result::is_ok), "{rest:?}");
}

#[tokio::test]
async fn cancelled_calls_do_not_harm_the_server() {
    let server = start();
    let client = client(&server).await;
    for round in 0..50 {
        let mut client = client.clone();
        let call = tokio::spawn(async move { client.model_infer(infer_request(200)).await });
        tokio::time::sleep(std::time::Duration::from_micros(round * 20)).await;
        call.abort();
    }
    let mut client = client;
    let reply = client
        .model_infer(infer_request(1))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(reply.outputs[0].shape, [1]);
}

#[tokio::test]
async fn compressed_messages_are_accepted() {
    let server = start();
    for coding in [
        tonic::codec::CompressionEncoding::Gzip,
        tonic::codec::CompressionEncoding::Deflate,
    ] {
        let mut client = client(&server).await.send_compressed(coding);
        assert!(
            client.model_infer(infer_request(10)).await.is_ok(),
            "{coding:?}"
        );
    }
}

#[tokio::test]
async fn reflection_names_the_service() {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let server = start();
    let mut client = ServerReflectionClient::new(channel(&server).await);
    let request = tonic_reflection::pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let requests = tonic::codegen::tokio_stream::once(request);
    let mut replies = client
        .server_reflection_info(requests)
        .await
        .unwrap()
        .into_inner();
    let reply = replies
        .message()
        .await
        .unwrap()
        .unwrap()
        .message_response
        .unwrap();
    let MessageResponse::ListServicesResponse(list) = reply else {
        panic!("{reply:?}")
    };
    let names: Vec<_> = list
        .service
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    assert!(
        names.contains(&"inference.GRPCInferenceService"),
        "{names:?}"
    );
}
