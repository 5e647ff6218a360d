//! Names defined by the settings: missing columns of requests, names of classes.

use std::path::Path;
use std::time::{Duration, Instant};

use albacore_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::model_infer_request::InferInputTensor;
use albacore_proto::inference::{
    InferParameter, InferTensorContents, ModelInferRequest, ModelMetadataRequest,
};
use albacore_settings::{MissingColumnPolicy, Policy, Source};
use serde_json::{Value, json};

use super::running::{Answer, PATIENCE, Running, kill, zoo};
use super::{Volume, infer, model, settings, start, until, until_in_force};

/// A LightGBM model whose ten columns have the default names `Column_0` and so on.
const FILE: &str = "lgb_binary.txt";

fn with(missing: MissingColumnPolicy) -> String {
    let mut model = model(FILE);
    model.schema_names.missing = missing;
    settings(vec![model], Policy::Eager, 1024)
}

fn post(server: &Running, path: &str, body: &Value) -> Answer {
    server.post(path, &[], body.to_string().as_bytes())
}

/// The reply for two rows with values in columns 7 and 2 only, sent as rows of ten columns.
fn expected_predictions(server: &Running) -> Value {
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

/// Paths, bodies with these two columns, and the key of the results.
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
fn missing_columns_are_refused_or_nan() {
    let volume = Volume::new(&with(MissingColumnPolicy::Refuse));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let expected = expected_predictions(&server);
    for (path, body, _) in bodies() {
        let answer = post(&server, path, &body);
        assert_eq!(answer.status, 400, "{path}");
        let message = text(&answer);
        // Objects with two members are too short for ten columns.
        assert!(
            message.contains("missing") || message.contains("less data"),
            "{message}"
        );
    }
    volume.update(&with(MissingColumnPolicy::Nan));
    until_in_force(&server, &volume);
    for (path, mut body, key) in bodies() {
        let answer = post(&server, path, &body);
        assert_eq!(answer.status, 200, "{path}: {}", text(&answer));
        let actual = match key {
            "outputs" => answer.json()["outputs"][0]["data"].clone(),
            key => answer.json()[key].clone(),
        };
        assert_eq!(actual, expected, "{path} {body}");
        // A misspelled name is not a missing column.
        body = serde_json::from_str(&body.to_string().replace("Column_7", "Column_seven")).unwrap();
        let answer = post(&server, path, &body);
        assert_eq!(answer.status, 400, "{path}");
        assert!(text(&answer).contains("Column_seven"), "{}", text(&answer));
    }
    let csv = [("content-type", "text/csv")];
    let answer = server.post(
        "/invocations",
        &csv,
        b"Column_7,Column_2\n0.5,-1.25\n2,0.75\n",
    );
    assert_eq!(answer.json()["predictions"], expected);
    let answer = post(&server, "/v1/models/m:predict", &json!({"instances": [{}]}));
    assert_eq!(answer.status, 400);
    grpc_columns(&server, &expected);
}

/// gRPC requests with the two columns, as tensors and by the parameter.
#[tokio::main(flavor = "current_thread")]
async fn grpc_columns(server: &Running, expected: &Value) {
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
        assert_eq!(json!(contents.fp64_contents), *expected);
    }
}

fn text(answer: &Answer) -> String {
    String::from_utf8_lossy(&answer.body).into_owned()
}

/// Settings of a model of this file with named classes.
fn with_classes(file: &str, classes: &[&str]) -> String {
    let mut model = model(file);
    model.schema_names.classes = classes.iter().map(|&name| name.to_owned()).collect();
    settings(vec![model], Policy::Eager, 1024)
}

/// Rows with the columns of the model.
fn rows(features: usize) -> Value {
    let value = |at: usize| (at * 7919 % 1000) as f64 / 250.0 - 2.0;
    let data: Vec<f64> = (0..20 * features).map(value).collect();
    json!({"name": "x", "shape": [20, features], "datatype": "FP32", "data": data})
}

fn features(server: &Running) -> usize {
    let metadata = server.get("/v2/models/m").json();
    metadata["inputs"][0]["shape"][1].as_u64().unwrap() as usize
}

/// The labels for these values, with two or more classes.
fn labels_of(output: &Value, names: &[&str]) -> Vec<String> {
    let values: Vec<f64> = output["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_f64().unwrap())
        .collect();
    let label = |row: &[f64]| match row {
        &[second] if names.len() == 2 => names[usize::from(second > 0.5)],
        &[class] => names[class as usize],
        row => {
            let largest = row.iter().copied().fold(f64::MIN, f64::max);
            names[row.iter().position(|&it| it == largest).unwrap()]
        }
    };
    values
        .chunks(values.len() / 20)
        .map(|row| label(row).to_owned())
        .collect()
}

#[test]
fn classes_with_names_are_an_output_beside_the_value() {
    let volume = Volume::new(&with_classes("xgb_binary_logistic.ubj", &[]));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    for (file, names) in [
        ("xgb_binary_logistic.ubj", &["legit", "fr\"aud"][..]),
        ("lgb_binary.txt", &["no", "yes"]),
        ("xgb_multi_softmax.ubj", &["a", "b", "c", "d", "e"]),
        ("lgb_multiclass.txt", &["a", "b", "c", "d", "e"]),
    ] {
        volume.update(&with_classes(file, &[]));
        until_in_force(&server, &volume);
        let body = json!({"inputs": [rows(features(&server))]}).to_string();
        let plain = infer(&server, "m", body.as_bytes());
        let names = &names[..class_count(&server, &volume, file).min(names.len())];
        volume.update(&with_classes(file, names));
        until_in_force(&server, &volume);
        let answer = infer(&server, "m", body.as_bytes()).json();
        let (value, label) = (&answer["outputs"][0], &answer["outputs"][1]);
        assert_eq!(*value, plain.json()["outputs"][0], "{file}");
        let expected = json!({"name": "label", "datatype": "BYTES", "shape": [20],
            "data": labels_of(value, names)});
        assert_eq!(*label, expected, "{file}");
        let metadata = server.get("/v2/models/m").json();
        assert_eq!(metadata["parameters"]["classes"], json!(names));
        let outputs = metadata["outputs"].as_array().unwrap();
        let described = json!({"name": "label", "datatype": "BYTES", "shape": [-1]});
        assert_eq!(outputs.last(), Some(&described));
        let config = server.get("/v2/models/m/config").json();
        let described = json!({"name": "label", "data_type": "TYPE_STRING", "dims": [1]});
        assert_eq!(config["output"][1], described);
    }
}

/// Number of classes of a model, from the error for one class too many.
fn class_count(server: &Running, volume: &Volume, file: &str) -> usize {
    volume.update(&with_classes(
        file,
        &["0", "1", "2", "3", "4", "5", "6", "7"],
    ));
    let state = until(server, "the names are too many", |state| {
        state["models"][0]["state"] == "failed"
    });
    let error = state["models"][0]["error"].as_str().unwrap().to_owned();
    let (_, rest) = error
        .split_once("8 names of classes are given, but the model has ")
        .unwrap();
    rest.split_once(" classes: name each")
        .unwrap()
        .0
        .parse()
        .unwrap()
}

#[test]
fn labels_are_returned_on_request() {
    let volume = Volume::new(&with_classes(
        "xgb_binary_logistic.ubj",
        &["legit", "fraud"],
    ));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let features = features(&server);
    let ask = |outputs: Value| {
        let body = json!({"inputs": [rows(features)], "outputs": outputs}).to_string();
        infer(&server, "m", body.as_bytes())
    };
    let names = |answer: &Answer| {
        let outputs = answer.json()["outputs"].as_array().unwrap().clone();
        outputs
            .iter()
            .map(|it| it["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&ask(json!([{"name": "output"}]))), ["output"]);
    let answer = ask(json!([{"name": "label"}, {"name": "margin"}, {"name": "output"}]));
    assert_eq!(names(&answer), ["label", "margin", "output"]);
    let label = answer.json()["outputs"][0].clone();
    let expected = labels_of(&answer.json()["outputs"][2], &["legit", "fraud"]);
    assert_eq!(label["data"], json!(expected));
    assert!(expected.contains(&"legit".to_owned()) && expected.contains(&"fraud".to_owned()));
    let answer = ask(json!([{"name": "label"}, {"name": "label"}]));
    assert!(
        answer.status == 400 && answer.error().contains("twice"),
        "{}",
        answer.error()
    );
    // Binary: each text follows its length.
    let answer = ask(json!([{"name": "label", "parameters": {"binary_data": true}}]));
    let split: usize = answer
        .header("inference-header-content-length")
        .unwrap()
        .parse()
        .unwrap();
    let text =
        |label: &String| [&(label.len() as u32).to_le_bytes()[..], label.as_bytes()].concat();
    let bytes: Vec<u8> = expected.iter().flat_map(text).collect();
    assert_eq!(answer.body[split..], bytes);
    let head: Value = serde_json::from_slice(&answer.body[..split]).unwrap();
    assert_eq!(
        head["outputs"][0]["parameters"]["binary_data_size"],
        bytes.len()
    );
    // V1 returns values.
    let row: Vec<f64> = vec![0.5; features];
    let answer = post(
        &server,
        "/v1/models/m:predict",
        &json!({"instances": [row]}),
    );
    assert!(answer.json()["predictions"][0].is_f64());
    grpc_labels(&server, &expected, &bytes);
}

/// Labels over gRPC, typed and raw, and class names in the metadata.
#[tokio::main(flavor = "current_thread")]
async fn grpc_labels(server: &Running, expected: &[String], raw: &[u8]) {
    let address = format!("http://{}", server.grpc);
    let mut client = GrpcInferenceServiceClient::connect(address).await.unwrap();
    let metadata = client.model_metadata(ModelMetadataRequest {
        name: "m".to_owned(),
        version: String::new(),
    });
    let metadata = metadata.await.unwrap().into_inner();
    let classes = &metadata.parameters["classes"].parameter_choice;
    let names = ParameterChoice::StringParam(r#"["legit","fraud"]"#.to_owned());
    assert_eq!(*classes, Some(names));
    let features = metadata.inputs[0].shape[1];
    let values = rows(features as usize)["data"].as_array().unwrap().clone();
    let values: Vec<f32> = values
        .iter()
        .map(|it| it.as_f64().unwrap() as f32)
        .collect();
    let request = |is_raw: bool| ModelInferRequest {
        model_name: "m".to_owned(),
        inputs: vec![InferInputTensor {
            name: "x".to_owned(),
            datatype: "FP32".to_owned(),
            shape: vec![20, features],
            contents: (!is_raw).then(|| InferTensorContents {
                fp32_contents: values.clone(),
                ..Default::default()
            }),
            ..Default::default()
        }],
        raw_input_contents: match is_raw {
            true => vec![
                values
                    .iter()
                    .flat_map(|it| it.to_le_bytes())
                    .collect::<Vec<u8>>()
                    .into(),
            ],
            false => Vec::new(),
        },
        ..Default::default()
    };
    let reply = client
        .model_infer(request(false))
        .await
        .unwrap()
        .into_inner();
    let label = &reply.outputs[1];
    assert_eq!(
        (label.name.as_str(), label.datatype.as_str()),
        ("label", "BYTES")
    );
    assert_eq!(label.shape, [20]);
    let texts = &label.contents.as_ref().unwrap().bytes_contents;
    assert!(
        texts
            .iter()
            .map(Vec::as_slice)
            .eq(expected.iter().map(String::as_bytes))
    );
    let reply = client
        .model_infer(request(true))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(reply.raw_output_contents[1], raw);
}

#[test]
fn names_of_classes_that_a_model_does_not_have_are_refused() {
    let volume = Volume::new(&with_classes("xgb_exact.ubj", &["a", "b"]));
    let server = start(&volume, &[]);
    for (file, problem) in [
        (
            "xgb_exact.ubj",
            "2 names of classes are given, but the value of this model is neither a class",
        ),
        (
            "xgb_reg_logistic.ubj",
            "the value of this model is neither a class",
        ),
        (
            "lgb_multiclass.txt",
            "2 names of classes are given, but the model has",
        ),
    ] {
        volume.update(&with_classes(file, &["a", "b"]));
        until(&server, problem, |state| {
            let error = state["models"][0]["error"].as_str();
            error.is_some_and(|error| error.contains(problem) && error.contains(file))
        });
    }
}

/// The file of an `XGBClassifier`: that of a `Booster`, plus its type in the attributes.
fn classifier(folder: &Path) -> Source {
    let text = std::fs::read_to_string(zoo("xgb_binary_logistic.json")).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    let attributes = r#"{"_estimator_type": "classifier"}"#;
    file["learner"]["attributes"]["scikit_learn"] = attributes.into();
    let path = folder.join("classifier.json");
    std::fs::write(&path, file.to_string()).unwrap();
    Source::Path(path.display().to_string())
}

#[test]
fn the_classes_of_predict_have_the_names_and_the_next_front_knows_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = model("xgb_exact.ubj");
    model.source = classifier(folder.path());
    model.schema_names.missing = MissingColumnPolicy::Nan;
    let with = |names: &[&str]| {
        let mut model = model.clone();
        model.schema_names.classes = names.iter().map(|&name| name.to_owned()).collect();
        settings(vec![model], Policy::Eager, 1024)
    };
    let volume = Volume::new(&with(&[]));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let features = features(&server);
    let values = rows(features)["data"].as_array().unwrap().clone();
    let body = json!({"inputs": values.chunks(features).collect::<Vec<_>>()});
    let numbers = post(&server, "/invocations", &body).json()["predictions"].clone();
    volume.update(&with(&["legit", "fraud"]));
    until_in_force(&server, &volume);
    let names = post(&server, "/invocations", &body).json()["predictions"].clone();
    let name = |number: &Value| ["legit", "fraud"][number.as_u64().unwrap() as usize];
    let expected: Vec<_> = numbers.as_array().unwrap().iter().map(name).collect();
    assert_eq!(names, json!(expected));
    assert!(expected.contains(&"legit") && expected.contains(&"fraud"));
    let whole = json!({"inputs": [rows(features)]}).to_string();
    let sparse = json!({"dataframe_split": {"columns": ["0"], "data": [[0.5]]}});
    let before = infer(&server, "m", whole.as_bytes()).json();
    let sparse_before = post(&server, "/invocations", &sparse).json();
    assert!(
        sparse_before["predictions"][0].is_string(),
        "{sparse_before}"
    );
    until(&server, "a standby is ready", |state| {
        state["front"]["standby_ready"] == true
    });
    let front = server.front();
    assert!(kill("-KILL", front));
    let start = Instant::now();
    while server
        .processes("front")
        .iter()
        .any(|(pid, _)| *pid == front)
    {
        assert!(start.elapsed() < PATIENCE, "never: the front is gone");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(infer(&server, "m", whole.as_bytes()).json(), before);
    assert_eq!(post(&server, "/invocations", &sparse).json(), sparse_before);
    assert_eq!(
        post(&server, "/invocations", &body).json()["predictions"],
        names
    );
}
