//! `POST /invocations` of MLflow and SageMaker, and the paths of Vertex AI: the same numbers as
//! over the Open Inference Protocol, in their formats.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;
#[path = "../../../models/trees/tests/zoo/mod.rs"]
mod zoo;

use running::{Answer, Running};
use serde_json::{Value, json};

const ALONE: [&str; 4] = ["--workers", "1", "--threads", "1"];

fn start(file: &str, further: &[&str]) -> Running {
    Running::start(&[("m", file)], &[&ALONE[..], further].concat())
}

fn post(server: &Running, path: &str, body: &Value) -> Answer {
    server.post(path, &[], body.to_string().as_bytes())
}

/// Some rows of a model's sample, with `null` for missing values.
fn rows(sample: &str) -> Vec<Vec<Value>> {
    let sample = zoo::sample(sample);
    let array = sample.array("X").unwrap();
    let value = |value: &f64| match value.is_finite() {
        true => json!(value),
        false => Value::Null,
    };
    let rows = array.data.chunks(array.width()).take(16);
    rows.map(|row| row.iter().map(value).collect()).collect()
}

/// The rows as CSV, with an optional header of column names.
fn lines(rows: &[Vec<Value>], names: Option<&[String]>) -> String {
    let line = |row: &Vec<Value>| {
        let fields = row.iter().map(|value| match value {
            Value::Null => String::new(),
            value => value.to_string(),
        });
        fields.collect::<Vec<_>>().join(",")
    };
    let names = names.map(|names| names.join(","));
    let all: Vec<String> = names.into_iter().chain(rows.iter().map(line)).collect();
    all.join("\n")
}

#[test]
fn all_forms_of_a_body_have_the_answer_of_protocol_v1() {
    let server = start("lgb_binary.txt", &[]);
    let rows = rows("lgb_binary");
    let want = post(&server, "/v1/models/m:predict", &json!({"instances": rows})).json();
    let names: Vec<String> = (0..rows[0].len())
        .map(|at| format!("Column_{at}"))
        .collect();
    let backwards: Vec<&String> = names.iter().rev().collect();
    let reversed = |row: &Vec<Value>| row.iter().rev().cloned().collect::<Vec<_>>();
    let turned: Vec<Vec<Value>> = rows.iter().map(reversed).collect();
    let record = |row: &Vec<Value>| {
        let members = names.iter().cloned().zip(row.iter().cloned());
        Value::Object(members.collect())
    };
    let records: Vec<Value> = rows.iter().map(record).collect();
    let column = |(at, name): (usize, &String)| {
        let values: Vec<&Value> = rows.iter().map(|row| &row[at]).collect();
        (name.clone(), json!(values))
    };
    let columns: serde_json::Map<String, Value> = names.iter().enumerate().map(column).collect();
    for body in [
        json!({"inputs": rows}),
        json!({"instances": rows, "parameters": {}}),
        json!({"instances": records}),
        json!({"dataframe_split": {"data": rows}}),
        json!({"dataframe_split": {"columns": names, "data": rows, "index": [1]}}),
        json!({"dataframe_split": {"columns": backwards, "data": turned}}),
        json!({"dataframe_records": records}),
        json!({"inputs": columns}),
    ] {
        for path in ["/invocations", "/models/m/invoke"] {
            let answer = post(&server, path, &body);
            assert_eq!(answer.status, 200, "{body}");
            assert_eq!(answer.json(), want, "{body}");
        }
    }
    let csv = [("content-type", "text/csv; charset=utf-8")];
    for body in [lines(&rows, None), lines(&rows, Some(&names))] {
        let answer = server.post("/invocations", &csv, body.as_bytes());
        assert_eq!(answer.json(), want, "{body}");
    }
}

#[test]
fn csv_is_returned_if_accepted() {
    let server = start("lgb_multiclass.txt", &[]);
    let rows = rows("lgb_multiclass");
    let want = post(&server, "/invocations", &json!({"instances": rows})).json();
    let headers = [("content-type", "text/csv"), ("accept", "text/csv")];
    let answer = server.post("/invocations", &headers, lines(&rows, None).as_bytes());
    assert_eq!(
        answer.header("content-type"),
        Some("text/csv; charset=utf-8")
    );
    let text = String::from_utf8(answer.body).unwrap();
    let line = |line: &str| serde_json::from_str::<Value>(&format!("[{line}]")).unwrap();
    let found: Vec<Value> = text.lines().map(line).collect();
    assert_eq!(json!(found), want["predictions"]);
}

#[test]
fn health_and_version_have_the_forms_of_mlflow() {
    let server = start("main_small_d6.ubj", &[]);
    for path in ["/ping", "/health"] {
        let answer = server.get(path);
        assert_eq!((answer.status, &answer.body[..]), (200, &b"\n"[..]));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    assert_eq!(
        server.get("/version").body,
        env!("CARGO_PKG_VERSION").as_bytes()
    );
    assert_eq!(server.get("/invocations").status, 405);
}

#[test]
fn errors_have_the_form_of_mlflow_and_calls_are_counted() {
    let server = start("main_small_d6.ubj", &[]);
    let json_type = [("content-type", "application/json")];
    let csv = [("content-type", "text/csv")];
    let xml = [("content-type", "text/libsvm")];
    let latin = [("content-type", "text/csv; charset=latin1")];
    let probabilities =
        json!({"inputs": [vec![0.5; 29]], "params": {"predict_fn": "predict_proba"}});
    for (headers, body, status, part) in [
        (&json_type, "{}".to_owned(), 400, "it has none"),
        (&json_type, "nonsense".to_owned(), 400, "expected"),
        (&csv, "1,2\n".to_owned(), 400, "line 1 of the text/csv body"),
        (
            &csv,
            "a,b\n1,2\n".to_owned(),
            400,
            "\"a\", \"b\" are unknown",
        ),
        (&xml, "1:2".to_owned(), 415, "text/libsvm"),
        (&latin, "1,2".to_owned(), 415, "latin1"),
        (
            &json_type,
            probabilities.to_string(),
            400,
            "no such function",
        ),
    ] {
        let answer = server.post("/invocations", headers, body.as_bytes());
        assert_eq!(answer.status, status, "{body}");
        let error = answer.json();
        assert_eq!(error["error_code"], "BAD_REQUEST", "{error}");
        assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    }
    let unknown = post(&server, "/models/nobody/invoke", &json!({}));
    assert_eq!(unknown.status, 404);
    assert_eq!(unknown.json()["error_code"], "RESOURCE_DOES_NOT_EXIST");
    post(&server, "/invocations", &json!({"inputs": [vec![0.5; 29]]})).json();
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    let count =
        "albacore_requests_total{model=\"m\",kind=\"value\",protocol=\"http\",code=\"200\"} 1";
    assert!(metrics.contains(count), "{metrics}");
}

#[test]
fn model_loading_as_by_sagemaker_is_refused_with_the_remedy() {
    let server = start("main_small_d6.ubj", &[]);
    let load = json!({"model_name": "a", "url": "/opt/ml/models/a/model"});
    let refused = post(&server, "/models", &load);
    for answer in [refused, server.get("/models"), server.get("/models/m")] {
        assert_eq!(answer.status, 501);
        let error = answer.json();
        assert_eq!(error["error_code"], "NOT_IMPLEMENTED", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("multi-model endpoints"), "{message}");
        assert!(message.contains("/models/NAME/invoke"), "{message}");
    }
    assert_eq!(server.get("/v2/models/m/ready").status, 200);
}

#[test]
fn several_models_are_called_by_their_names() {
    let models = [("small", "main_small_d6.ubj"), ("light", "lgb_binary.txt")];
    let server = Running::start(&models, &ALONE);
    let body = json!({"inputs": rows("lgb_binary")});
    let refused = post(&server, "/invocations", &body);
    assert_eq!(refused.status, 404);
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("/models/NAME/invoke"), "{message}");
    assert!(message.contains("\"light\", \"small\"") || message.contains("\"small\", \"light\""));
    assert_eq!(post(&server, "/models/light/invoke", &body).status, 200);
}

#[test]
fn paths_of_vertex_are_served_beside_the_others() {
    let paths = [
        "--aip_health_route=/v1/endpoints/1/deployedModels/2",
        "--aip_predict_route=/v1/endpoints/1/deployedModels/2:predict",
    ];
    let server = start("main_small_d6.ubj", &paths);
    assert_eq!(server.get("/v1/endpoints/1/deployedModels/2").status, 200);
    let body = json!({"instances": [vec![0.5; 29]], "parameters": {"predict_fn": "predict"}});
    let path = "/v1/endpoints/1/deployedModels/2:predict";
    let answer = post(&server, path, &body).json();
    assert_eq!(answer, post(&server, "/invocations", &body).json());
    assert_eq!(answer["predictions"].as_array().unwrap().len(), 1);
    assert_eq!(server.get("/v1/endpoints/1").status, 404);
}
