//! KServe's V1 protocol: the same numbers as over the Open Inference Protocol, in V1 formats.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;
#[path = "../../../models/trees/tests/zoo/mod.rs"]
mod zoo;

use running::{Answer, Running};
use serde_json::{Map, Value, json};

const MODELS: [(&str, &str); 3] = [
    ("small", "main_small_d6.ubj"),
    ("multi", "xgb_multi_softmax.json"),
    ("light", "lgb_binary.txt"),
];

fn start() -> Running {
    Running::start(&MODELS, &["--workers", "1", "--threads", "1"])
}

fn post(server: &Running, path: &str, body: &Value) -> Answer {
    server.post(path, &[], body.to_string().as_bytes())
}

/// Some rows of a model's sample, with `null` for missing values.
fn rows(sample: &str) -> Vec<Vec<Value>> {
    let sample = zoo::sample(sample);
    let array = sample.array("X").unwrap();
    let value = |value: &f64| {
        if value.is_finite() {
            json!(value)
        } else {
            Value::Null
        }
    };
    let rows = array.data.chunks(array.width()).take(16);
    rows.map(|row| row.iter().map(value).collect()).collect()
}

/// All numbers in a value, in order.
fn numbers(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(members) => members.iter().flat_map(numbers).collect(),
        other => vec![other.clone()],
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(members) => 1 + members.first().map_or(0, depth),
        _ => 0,
    }
}

#[test]
fn predictions_and_explanations_are_the_outputs_of_protocol_v2() {
    let server = start();
    for (model, sample) in [
        ("small", "main_small_d6"),
        ("multi", "xgb_multi_softmax"),
        ("light", "lgb_binary"),
    ] {
        let rows = rows(sample);
        let datatype = if model == "light" { "FP64" } else { "FP32" };
        for (verb, key, output) in [
            ("predict", "predictions", "output"),
            ("explain", "explanations", "contribs"),
        ] {
            let v1 = format!("/v1/models/{model}:{verb}");
            let answer = post(&server, &v1, &json!({"instances": rows}));
            assert_eq!(answer.status, 200, "{}", answer.error());
            let answer = answer.json();
            let shape = [rows.len(), rows[0].len()];
            let input = json!({"name": "x", "shape": shape, "datatype": datatype, "data": rows});
            let v2 = json!({"inputs": [input], "outputs": [{"name": output}]});
            let v2 = post(&server, &format!("/v2/models/{model}/infer"), &v2).json();
            let v2 = &v2["outputs"][0];
            assert_eq!(answer[key].as_array().unwrap().len(), rows.len());
            assert_eq!(depth(&answer[key]), v2["shape"].as_array().unwrap().len());
            assert_eq!(json!(numbers(&answer[key])), v2["data"], "{model} {verb}");
        }
    }
}

#[test]
fn objects_by_the_names_of_columns_are_the_same_rows_in_any_order() {
    let server = start();
    let rows = rows("lgb_binary");
    let object = |(index, row): (usize, &Vec<Value>)| {
        let names = (0..row.len()).map(|column| format!("Column_{column}"));
        let mut members: Vec<(String, Value)> = names.zip(row.iter().cloned()).collect();
        let middle = index % row.len();
        members.rotate_left(middle);
        Value::Object(Map::from_iter(members))
    };
    let objects: Vec<Value> = rows.iter().enumerate().map(object).collect();
    let path = "/v1/models/light:predict";
    let lists = post(&server, path, &json!({"instances": rows})).json();
    let answer = post(&server, path, &json!({"instances": objects})).json();
    assert_eq!(answer, lists);

    let mut wrong = objects[0].clone();
    wrong["amount"] = json!(1);
    let refused = post(&server, path, &json!({"instances": [objects[0], wrong]}));
    assert_eq!(refused.status, 400);
    let part = "instance 1, model \"light\": column \"amount\" is unknown";
    assert!(refused.error().contains(part), "{}", refused.error());
    let nameless = post(
        &server,
        "/v1/models/small:predict",
        &json!({"instances": [{"a": 1.0, "much": "x".repeat(200)}]}),
    );
    assert_eq!(nameless.status, 400);
    let part = "have no names: send lists";
    assert!(nameless.error().contains(part), "{}", nameless.error());
}

#[test]
fn liveness_names_and_readiness_have_the_forms_of_kserve() {
    let server = start();
    assert_eq!(server.get("/").json(), json!({"status": "alive"}));
    let names = server.get("/v1/models").json();
    assert_eq!(numbers(&names["models"]).len(), 3, "{names}");
    let ready = server.get("/v1/models/light");
    assert_eq!(ready.header("cache-control"), Some("no-store"));
    assert_eq!(ready.json(), json!({"name": "light", "ready": true}));
    assert_eq!(server.get("/v1/models/nobody").status, 404);
}

#[test]
fn errors_have_their_status_and_a_sentence_and_calls_are_counted() {
    let server = start();
    let path = "/v1/models/small:predict";
    for (path, body, status, part) in [
        (path, "{}", 400, "no \"instances\""),
        (
            path,
            "{\"instances\": [[1]]}",
            400,
            "less data than 1 rows of 29",
        ),
        (path, "nonsense", 400, "is not an infer request"),
        ("/v1/models/nobody:predict", "{}", 404, "nobody"),
        ("/v1/models/small:foresee", "{}", 405, "GET"),
        ("/v1/modelssmall:predict", "{}", 404, "is not a path"),
    ] {
        let answer = server.post(path, &[], body.as_bytes());
        assert_eq!(answer.status, status, "{path} {body}: {}", answer.error());
        assert!(answer.error().contains(part), "{}", answer.error());
    }
    let header = [("inference-header-content-length", "2")];
    let answer = server.post(path, &header, b"{}");
    assert_eq!(answer.status, 400);
    assert!(
        answer.error().contains("header of protocol v2"),
        "{}",
        answer.error()
    );
    assert_eq!(server.get(path).status, 405);
    let rows = vec![vec![0.5; 29]; 3];
    assert_eq!(post(&server, path, &json!({"instances": rows})).status, 200);
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    let count =
        "albacore_requests_total{model=\"small\",kind=\"value\",protocol=\"http\",code=\"200\"} 1";
    assert!(metrics.contains(count), "{metrics}");
}
