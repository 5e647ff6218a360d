//! What names mean, by the settings: columns that requests lack.

use albacore_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::model_infer_request::InferInputTensor;
use albacore_proto::inference::{InferParameter, InferTensorContents, ModelInferRequest};
use albacore_settings::{Missing, Naming, Policy};
use serde_json::{Value, json};

use super::running::{Answer, Running};
use super::{Volume, infer, model, settings, start, until_in_force};

/// LightGBM's, whose ten columns are called `Column_0` and so on.
const FILE: &str = "lgb_binary.txt";

fn with(missing: Missing) -> String {
    let mut model = model(FILE);
    model.naming = Naming { missing };
    settings(vec![model], Policy::Eager, 1024)
}

fn post(server: &Running, path: &str, body: &Value) -> Answer {
    server.post(path, &[], body.to_string().as_bytes())
}

/// The answer to two rows that have columns 7 and 2 alone, as rows of ten.
fn wanted(server: &Running) -> Value {
    let row = |seven: f64, two: f64| {
        let mut row = vec![Value::Null; 10];
        (row[7], row[2]) = (json!(seven), json!(two));
        row
    };
    let data = [row(0.5, -1.25), row(2.0, 0.75)].concat();
    let input = json!({"name": "x", "shape": [2, 10], "datatype": "FP64", "data": data});
    let answer = infer(
        server,
        "m",
        json!({"inputs": [input]}).to_string().as_bytes(),
    );
    assert_eq!(answer.status, 200, "{}", answer.error());
    answer.json()["outputs"][0]["data"].clone()
}

/// Bodies with these two columns, their paths, and the key of the answers.
fn bodies() -> Vec<(&'static str, Value, &'static str)> {
    let column = |name: &str, data: Value| json!({"name": name, "shape": [2], "datatype": "FP64", "data": data});
    let tensor = json!({"name": "x", "shape": [2, 2], "datatype": "FP64",
        "data": [0.5, -1.25, 2.0, 0.75]});
    let records = json!([{"Column_7": 0.5, "Column_2": -1.25}, {"Column_2": 0.75, "Column_7": 2}]);
    vec![
        (
            "/v2/models/m/infer",
            json!({"inputs": [column("Column_7", json!([0.5, 2.0])),
                column("Column_2", json!([-1.25, 0.75]))]}),
            "outputs",
        ),
        (
            "/v2/models/m/infer",
            json!({"inputs": [tensor], "parameters": {"feature_names": ["Column_7", "2"]}}),
            "outputs",
        ),
        (
            "/v1/models/m:predict",
            json!({"instances": records}),
            "predictions",
        ),
        (
            "/invocations",
            json!({"dataframe_records": records}),
            "predictions",
        ),
        (
            "/invocations",
            json!({"dataframe_split": {"columns": ["Column_7", "Column_2"],
                "data": [[0.5, -1.25], [2.0, 0.75]]}}),
            "predictions",
        ),
    ]
}

#[test]
fn columns_that_requests_lack_are_refused_or_missing_values() {
    let volume = Volume::new(&with(Missing::Refuse));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let wanted = wanted(&server);
    for (path, body, _) in bodies() {
        let answer = post(&server, path, &body);
        assert_eq!(answer.status, 400, "{path}");
        let said = text(&answer);
        // Objects of two members cannot hold ten columns.
        assert!(
            said.contains("missing") || said.contains("less data"),
            "{said}"
        );
    }
    volume.update(&with(Missing::Nan));
    until_in_force(&server, &volume);
    for (path, mut body, key) in bodies() {
        let answer = post(&server, path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", text(&answer));
        let got = match key {
            "outputs" => answer.json()["outputs"][0]["data"].clone(),
            key => answer.json()[key].clone(),
        };
        assert_eq!(got, wanted, "{path} {body}");
        // A misspelled name is no missing column.
        body = serde_json::from_str(&body.to_string().replace("Column_7", "Colunm_7")).unwrap();
        let answer = post(&server, path, &body);
        assert_eq!(answer.status, 400, "{path}");
        assert!(text(&answer).contains("Colunm_7"), "{}", text(&answer));
    }
    let csv = [("content-type", "text/csv")];
    let answer = server.post(
        "/invocations",
        &csv,
        b"Column_7,Column_2\n0.5,-1.25\n2,0.75\n",
    );
    assert_eq!(answer.json()["predictions"], wanted);
    let answer = post(&server, "/v1/models/m:predict", &json!({"instances": [{}]}));
    assert_eq!(answer.status, 400);
    grpc_columns(&server, &wanted);
}

/// A request over gRPC with the two columns, as tensors and by the parameter.
#[tokio::main(flavor = "current_thread")]
async fn grpc_columns(server: &Running, wanted: &Value) {
    let address = format!("http://{}", server.grpc);
    let mut client = GrpcInferenceServiceClient::connect(address).await.unwrap();
    let input = |name: &str, shape: &[i64], values: &[f64]| InferInputTensor {
        name: name.to_owned(),
        datatype: "FP64".to_owned(),
        shape: shape.to_vec(),
        contents: Some(InferTensorContents {
            fp64_contents: values.to_vec(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let request = |inputs: Vec<InferInputTensor>, names: Option<&str>| ModelInferRequest {
        model_name: "m".to_owned(),
        inputs,
        parameters: names
            .into_iter()
            .map(|names| {
                let choice = Some(ParameterChoice::StringParam(names.to_owned()));
                (
                    "feature_names".to_owned(),
                    InferParameter {
                        parameter_choice: choice,
                    },
                )
            })
            .collect(),
        ..Default::default()
    };
    let columns = vec![
        input("Column_7", &[2], &[0.5, 2.0]),
        input("Column_2", &[2, 1], &[-1.25, 0.75]),
    ];
    let tensor = vec![input("x", &[2, 2], &[0.5, -1.25, 2.0, 0.75])];
    for request in [request(columns, None), request(tensor, Some("7,Column_2"))] {
        let reply = client.model_infer(request).await.unwrap().into_inner();
        let contents = reply.outputs[0].contents.as_ref().unwrap();
        assert_eq!(json!(contents.fp64_contents), *wanted);
    }
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}
