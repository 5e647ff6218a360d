//! Columns by name: one tensor per column, or named columns of one tensor, in any order.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;
#[path = "../../../models/trees/tests/zoo/mod.rs"]
mod zoo;

use albacore_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::model_infer_request::InferInputTensor;
use albacore_proto::inference::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse,
};
use prost::bytes::Bytes;
use running::{Answer, Running};
use serde_json::{Value, json};
use tonic::transport::Channel;

const FEATURES: usize = 10;
const ROWS: usize = 5;

fn start() -> Running {
    let workers = ["--workers", "1", "--threads", "1"];
    Running::start(&[("light", "lgb_binary.txt")], &workers)
}

/// Rows of the sample that have no missing values, by column.
fn sample() -> Vec<Vec<f64>> {
    let sample = zoo::sample("lgb_binary");
    let array = sample.array("X").unwrap();
    let rows = array.data.chunks(FEATURES);
    let whole: Vec<&[f64]> = rows
        .filter(|row| row.iter().all(|it| it.is_finite()))
        .take(ROWS)
        .collect();
    assert_eq!(whole.len(), ROWS);
    let column = |index: usize| whole.iter().map(|row| row[index]).collect();
    (0..FEATURES).map(column).collect()
}

fn name(column: usize) -> String {
    format!("Column_{column}")
}

fn post(server: &Running, body: &Value) -> Answer {
    server.post("/v2/models/light/infer", &[], body.to_string().as_bytes())
}

/// One tensor with the values of all columns, in this order.
fn tensor(columns: &[Vec<f64>], order: &[usize]) -> Value {
    let row = |row: usize| order.iter().map(move |&column| columns[column][row]);
    let data: Vec<f64> = (0..ROWS).flat_map(row).collect();
    json!({"name": "x", "shape": [ROWS, FEATURES], "datatype": "FP64", "data": data})
}

fn input(columns: &[Vec<f64>], column: usize, shape: &Value) -> Value {
    json!({"name": name(column), "shape": shape, "datatype": "FP64", "data": columns[column]})
}

#[test]
fn a_tensor_for_each_column_is_the_same_as_one_tensor() {
    let server = start();
    let columns = sample();
    let order: Vec<usize> = (0..FEATURES).collect();
    let expected = post(&server, &json!({"inputs": [tensor(&columns, &order)]})).json();
    let reordered: Vec<usize> = order.iter().rev().copied().collect();
    for (order, shape) in [(&order, json!([ROWS])), (&reordered, json!([ROWS, 1]))] {
        let inputs: Vec<Value> = order
            .iter()
            .map(|&at| input(&columns, at, &shape))
            .collect();
        let body = json!({"inputs": inputs, "parameters": {"content_type": "pd"}});
        let answer = post(&server, &body);
        assert_eq!(answer.status, 200, "{}", answer.error());
        assert_eq!(answer.json(), expected);
    }
    // The binary data of all inputs follows the JSON.
    let mut binary = Vec::new();
    let inputs = reordered.iter().map(|&column| {
        binary.extend(columns[column].iter().flat_map(|value| value.to_le_bytes()));
        json!({"name": name(column), "shape": [ROWS], "datatype": "FP64",
               "parameters": {"binary_data_size": 8 * ROWS}})
    });
    let json = json!({"inputs": inputs.collect::<Vec<_>>()}).to_string();
    let body = [json.as_bytes(), &binary].concat();
    let length = json.len().to_string();
    let headers = [("inference-header-content-length", length.as_str())];
    let answer = server.post("/v2/models/light/infer", &headers, &body);
    assert_eq!(answer.status, 200, "{}", answer.error());
    assert_eq!(answer.json(), expected);
}

#[test]
fn names_put_the_columns_of_one_tensor_in_order() {
    let server = start();
    let columns = sample();
    let order: Vec<usize> = (0..FEATURES).collect();
    let expected = post(&server, &json!({"inputs": [tensor(&columns, &order)]})).json();
    let reordered = [3, 1, 4, 0, 5, 9, 2, 6, 8, 7];
    let names: Vec<String> = reordered.iter().map(|&column| name(column)).collect();
    for names in [json!(names), json!(names.join(","))] {
        let parameters = json!({"feature_names": names});
        let mut input_names = json!({"inputs": [tensor(&columns, &reordered)]});
        input_names["inputs"][0]["parameters"] = parameters.clone();
        let request_names =
            json!({"inputs": [tensor(&columns, &reordered)], "parameters": parameters});
        for body in [input_names, request_names] {
            assert_eq!(post(&server, &body).json(), expected, "{body}");
        }
    }
}

#[test]
fn wrong_columns_are_refused_by_their_names() {
    let server = start();
    let columns = sample();
    let shape = json!([ROWS]);
    let inputs: Vec<Value> = (0..FEATURES)
        .map(|at| input(&columns, at, &shape))
        .collect();
    for (column, field, value, part) in [
        (2, "name", json!("amount"), "column \"amount\" is unknown"),
        (
            2,
            "name",
            json!("Column_0"),
            "column \"Column_0\" is given twice",
        ),
        (
            2,
            "datatype",
            json!("BYTES"),
            "column \"Column_2\" has datatype \"BYTES\"",
        ),
        (
            2,
            "shape",
            json!([4]),
            "column \"Column_2\" has 4 rows where the first column has 5",
        ),
        (
            2,
            "shape",
            json!([1, 5]),
            "column \"Column_2\" has shape [1, 5]",
        ),
        (
            2,
            "data",
            json!([1, 2, 3, 4, "x"]),
            "column \"Column_2\": value 4",
        ),
        (
            2,
            "data",
            json!([1, 2]),
            "column \"Column_2\": input \"input\" has less data",
        ),
        (
            2,
            "data",
            Value::Null,
            "column \"Column_2\": input \"input\" has no data",
        ),
    ] {
        let mut wrong = inputs.clone();
        wrong[column][field] = value;
        let refused = post(&server, &json!({"inputs": wrong}));
        assert_eq!(refused.status, 400);
        assert!(refused.error().contains(part), "{}", refused.error());
    }
    let refused = post(&server, &json!({"inputs": inputs[..8]}));
    let part = "column \"Column_8\", \"Column_9\" are missing";
    assert!(refused.error().contains(part), "{}", refused.error());
}

/// A columnar request with one input for each of these columns.
fn grpc_request(columns: &[Vec<f64>], order: &[usize], is_raw: bool) -> ModelInferRequest {
    let input = |&column: &usize| InferInputTensor {
        name: name(column),
        datatype: "FP64".to_owned(),
        shape: vec![ROWS as i64],
        contents: (!is_raw).then(|| InferTensorContents {
            fp64_contents: columns[column].clone(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let raw = |&column: &usize| {
        let bytes = columns[column].iter().flat_map(|value| value.to_le_bytes());
        Bytes::from(bytes.collect::<Vec<u8>>())
    };
    ModelInferRequest {
        model_name: "light".to_owned(),
        inputs: order.iter().map(input).collect(),
        raw_input_contents: match is_raw {
            true => order.iter().map(raw).collect(),
            false => Vec::new(),
        },
        ..Default::default()
    }
}

/// The predictions of the server for these columns.
fn expected_predictions(server: &Running, columns: &[Vec<f64>]) -> Vec<f64> {
    let order: Vec<usize> = (0..FEATURES).collect();
    let answer = post(server, &json!({"inputs": [tensor(columns, &order)]})).json();
    serde_json::from_value(answer["outputs"][0]["data"].clone()).unwrap()
}

async fn connect(server: &Running) -> GrpcInferenceServiceClient<Channel> {
    let url = format!("http://{}", server.grpc);
    GrpcInferenceServiceClient::connect(url).await.unwrap()
}

fn typed(answer: &ModelInferResponse) -> &[f64] {
    &answer.outputs[0].contents.as_ref().unwrap().fp64_contents
}

#[tokio::test]
async fn grpc_takes_a_tensor_for_each_column_too() {
    let server = start();
    let columns = sample();
    let expected = expected_predictions(&server, &columns);
    let mut client = connect(&server).await;
    let reordered: Vec<usize> = (0..FEATURES).rev().collect();
    let request = grpc_request(&columns, &reordered, false);
    let answer = client.model_infer(request).await.unwrap().into_inner();
    assert_eq!(typed(&answer), expected);
    let request = grpc_request(&columns, &reordered, true);
    let raw = client.model_infer(request).await.unwrap().into_inner();
    let bytes: Vec<u8> = expected
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    assert_eq!(raw.raw_output_contents[0], bytes);
    let mut named = grpc_request(&columns, &reordered, false);
    named.inputs[0].name = "amount".to_owned();
    let refused = client.model_infer(named).await.unwrap_err();
    let part = "column \"amount\" is unknown";
    assert!(refused.message().contains(part), "{refused}");
}

#[tokio::test]
async fn grpc_puts_named_columns_of_one_tensor_in_order() {
    let server = start();
    let columns = sample();
    let mut client = connect(&server).await;
    let reordered: Vec<usize> = (0..FEATURES).rev().collect();
    let names: Vec<String> = reordered.iter().map(|&column| name(column)).collect();
    let row = |row: usize| {
        reordered
            .iter()
            .map(|&column| columns[column][row])
            .collect::<Vec<_>>()
    };
    let mut request = grpc_request(&columns, &[0], false);
    request.inputs[0].shape = vec![ROWS as i64, FEATURES as i64];
    request.inputs[0].contents.as_mut().unwrap().fp64_contents = (0..ROWS).flat_map(row).collect();
    let choice = Some(ParameterChoice::StringParam(names.join(",")));
    let parameter = InferParameter {
        parameter_choice: choice,
    };
    request
        .parameters
        .insert("feature_names".to_owned(), parameter);
    let answer = client.model_infer(request).await.unwrap().into_inner();
    assert_eq!(typed(&answer), expected_predictions(&server, &columns));
}
