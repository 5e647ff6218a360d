//! Triton's extensions over HTTP and gRPC: configuration, statistics, repository index, and the
//! advertised metadata.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;

use std::time::Instant;

use albacore_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use albacore_proto::inference::{
    DataType, ModelConfigRequest, ModelMetadataRequest, ModelStatisticsRequest,
    RepositoryIndexRequest,
};
use running::{PATIENCE, Running};
use serde_json::{Value, json};

const MODELS: [(&str, &str); 2] = [("small", "main_small_d6.ubj"), ("light", "lgb_binary.txt")];

fn start() -> Running {
    Running::start(&MODELS, &["--workers", "2", "--max-rows", "64"])
}

fn infer(server: &Running, rows: usize, more: &Value) -> u16 {
    let input = json!({"name": "any", "shape": [rows, 29], "datatype": "FP32",
        "data": vec![0.5; rows * 29]});
    let mut body = json!({"inputs": [input]});
    if let Some(outputs) = more.get("outputs") {
        body["outputs"] = outputs.clone();
    }
    let body = body.to_string();
    let answer = server.post("/v2/models/small/infer", &[], body.as_bytes());
    answer.status
}

#[test]
fn the_configuration_has_the_model_and_the_batching_parameters() {
    let server = start();
    let config = server.get("/v2/models/small/config").json();
    assert_eq!(config["max_batch_size"], 64);
    assert_eq!(
        config["input"],
        json!([{"name": "input", "data_type": "TYPE_FP32", "dims": [29]}])
    );
    assert_eq!(
        config["output"],
        json!([{"name": "output", "data_type": "TYPE_FP32", "dims": [1]}])
    );
    assert_eq!(config["instance_group"][0]["count"], 2);
    let light = server.get("/v2/models/light/versions/1/config").json();
    assert_eq!(light["input"][0]["data_type"], "TYPE_FP64");
    for path in ["nobody/config", "small/versions/2/config", "nobody/stats"] {
        let answer = server.get(&format!("/v2/models/{path}"));
        assert_eq!(answer.status, 404, "{path}");
    }
}

#[test]
fn statistics_are_of_calls_and_of_batches() {
    let server = start();
    let none = server.get("/v2/models/small/stats").json();
    assert_eq!(
        none["model_stats"][0]["inference_stats"]["success"]["count"],
        0
    );
    for rows in [1, 3, 3] {
        assert_eq!(infer(&server, rows, &Value::Null), 200);
    }
    let wrong = json!({"outputs": [{"name": "nothing"}]});
    assert_eq!(infer(&server, 1, &wrong), 400);
    let answer = server.get("/v2/models/small/versions/1/stats");
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let stats = &answer.json()["model_stats"][0];
    assert_eq!(stats["inference_count"], 7);
    assert_eq!(stats["execution_count"], 3);
    assert!(stats["last_inference"].as_u64().unwrap() > 1_700_000_000_000);
    let phases = &stats["inference_stats"];
    let ns = |phase: &str| phases[phase]["ns"].as_u64().unwrap();
    let parts = ["queue", "compute_input", "compute_infer", "compute_output"];
    for phase in parts {
        assert_eq!(phases[phase]["count"], 3, "{phase}");
        // On an idle server the queue time is zero.
        assert!(phase == "queue" || ns(phase) > 0, "{phase}: {phases}");
    }
    assert!(
        parts.map(ns).iter().sum::<u64>() <= ns("success"),
        "{phases}"
    );
    assert_eq!(phases["fail"]["count"], 1);
    let batches = stats["batch_stats"].as_array().unwrap();
    let batches = batches
        .iter()
        .map(|of| (&of["batch_size"], &of["compute_infer"]["count"]));
    assert!(batches.eq([(&json!(1), &json!(1)), (&json!(3), &json!(2))]));
    let all = server.get("/v2/models/stats").json();
    assert_eq!(all["model_stats"].as_array().unwrap().len(), 2);
}

#[test]
fn the_index_lists_models_and_loading_by_call_is_refused() {
    let server = start();
    let index = server.post("/v2/repository/index", &[], b"").json();
    let small = json!({"name": "small", "version": "1", "state": "READY", "reason": ""});
    assert!(index.as_array().unwrap().contains(&small), "{index}");
    let ready = server.post("/v2/repository/index", &[], br#"{"ready": true}"#);
    assert_eq!(ready.json(), index);
    for body in ["[]", "{\"ready\": 1}", "{"] {
        let answer = server.post("/v2/repository/index", &[], body.as_bytes());
        assert_eq!(answer.status, 400, "{body}");
    }
    for call in ["load", "unload"] {
        let path = format!("/v2/repository/models/small/{call}");
        let answer = server.post(&path, &[], b"{}");
        assert_eq!(answer.status, 501);
        assert!(answer.error().contains("edit spec.models"));
    }
}

#[tokio::test]
async fn grpc_extensions_equal_those_of_http() {
    let server = start();
    assert_eq!(infer(&server, 5, &Value::Null), 200);
    let address = format!("http://{}", server.grpc);
    let mut client = GrpcInferenceServiceClient::connect(address).await.unwrap();
    let (name, version) = ("small".to_owned(), String::new());
    let request = ModelConfigRequest { name, version };
    let config = client.model_config(request).await.unwrap().into_inner();
    let config = config.config.unwrap();
    assert_eq!((config.max_batch_size, config.input[0].dims[0]), (64, 29));
    assert_eq!(config.output[0].data_type(), DataType::TypeFp32);
    let request = ModelStatisticsRequest::default();
    let all = client.model_statistics(request).await.unwrap().into_inner();
    let small = all.model_stats.iter().find(|model| model.name == "small");
    let small = small.unwrap();
    assert_eq!((small.inference_count, small.execution_count), (5, 1));
    assert_eq!(small.batch_stats[0].batch_size, 5);
    let request = RepositoryIndexRequest::default();
    let index = client.repository_index(request).await.unwrap().into_inner();
    assert_eq!(index.models.len(), 2);
    let (name, version) = ("small".to_owned(), String::new());
    let request = ModelMetadataRequest { name, version };
    let metadata = client.model_metadata(request).await.unwrap().into_inner();
    assert_eq!(metadata.outputs.len(), 1);
}

#[test]
fn metadata_advertises_the_listed_outputs_and_all_can_be_requested() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings.yaml");
    let write = |outputs: &str| {
        let path = running::zoo("main_small_d6.ubj");
        let text = format!(
            "models:\n- name: small\n  path: {:?}\n{outputs}",
            path.canonicalize().unwrap()
        );
        std::fs::write(&file, text).unwrap();
    };
    write("  outputs: [margin, output]\n");
    let mut server = Running::spawn(&["--settings".to_owned(), file.display().to_string()]);
    server.wait_until_ready();
    let advertised = || {
        let model = server.get("/v2/models/small").json();
        let names = model["outputs"].as_array().unwrap().iter();
        names
            .map(|output| output["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(advertised(), ["output", "margin"]);
    let leaf = json!({"outputs": [{"name": "leaf"}]});
    assert_eq!(infer(&server, 1, &leaf), 200);
    write(""); // an edit needs no restart
    let start = Instant::now();
    while advertised() != ["output"] {
        assert!(start.elapsed() < PATIENCE, "{:?}", advertised());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let config = server.get("/v2/models/small/config").json();
    assert_eq!(config["output"].as_array().unwrap().len(), 1);
}

/// Clients that share `/dev/shm` with the server can register any file there.
#[test]
fn the_memory_of_the_server_has_no_files_in_dev_shm() {
    let server = Running::start(
        &MODELS,
        &["--workers", "2", "--shared-memory-bytes-max", "4096"],
    );
    assert_eq!(infer(&server, 3, &Value::Null), 200);
    let maps = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert_eq!(server.workers.len(), 2);
    for maps in server.workers.iter().map(maps) {
        assert!(
            maps.contains("/memfd:") && !maps.contains("/dev/shm/"),
            "{maps}"
        );
    }
}
