//! A real server over HTTP: replies equal those of the libraries bit by bit, and errors of invalid
//! requests describe the problem.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;
#[path = "../../../models/trees/tests/zoo/mod.rs"]
mod zoo;

use std::io::Write;

use running::Running;
use serde_json::{Value, json};

const MODELS: [(&str, &str); 3] = [
    ("small", "main_small_d6.ubj"),
    ("multi", "xgb_multi_softmax.json"),
    ("light", "lgb_binary.txt"),
];

/// Path of the infer call of the small model.
const INFER: &str = "/v2/models/small/infer";

/// Starts one server per test, because tests run concurrently.
fn start() -> Running {
    Running::start(&MODELS, &["--workers", "2", "--threads", "1"])
}

fn infer(rows: usize, values: &[f64], features: usize) -> Value {
    let data: Vec<Value> = values
        .iter()
        .map(|value| {
            if value.is_finite() {
                json!(value)
            } else {
                Value::Null
            }
        })
        .collect();
    let shape = [rows, features];
    json!({"inputs": [{"name": "input", "shape": shape, "datatype": "FP32", "data": data}]})
}

fn floats(output: &Value) -> Vec<f64> {
    output["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|value| value.as_f64().unwrap())
        .collect()
}

#[test]
fn health_and_metadata_are_json() {
    let server = start();
    assert_eq!(server.get("/v2/health/live").json(), json!({"live": true}));
    assert_eq!(
        server.get("/v2/health/ready").json(),
        json!({"live": true, "ready": true})
    );
    assert_eq!(
        server.get("/v2/models/small/ready").json(),
        json!({"name": "small", "ready": true})
    );
    assert_eq!(server.get("/v2/models/small/versions/1/ready").status, 200);
    let metadata = server.get("/v2/").json();
    assert_eq!(metadata["name"], "albacore-server");
    assert_eq!(
        metadata["extensions"],
        json!([
            "binary_tensor_data",
            "classification",
            "schedule_policy",
            "model_configuration",
            "statistics",
            "model_repository"
        ])
    );
    let model = server.get("/v2/models/small").json();
    assert_eq!(model["platform"], "xgboost_ubj");
    assert_eq!(
        model["inputs"],
        json!([{"name": "input", "datatype": "FP32", "shape": [-1, 29]}])
    );
    assert_eq!(model["outputs"][0]["name"], "output");
    let light = server.get("/v2/models/light").json();
    assert_eq!(light["inputs"][0]["datatype"], "FP64");
    let columns = &light["inputs"][0]["parameters"];
    assert_eq!(columns["feature_names"][9], "Column_9");
    assert_eq!(columns["feature_types"][9], "numerical");
    let end = &light["parameters"]["iterations_in_file"];
    assert!(end.as_u64().unwrap() > 0);
    let used = json!({"iterations_begin": 0, "iterations_end": end, "iterations_in_file": end});
    assert_eq!(light["parameters"], used);
}

#[test]
fn a_request_with_other_column_names_than_the_model_is_refused() {
    let server = start();
    let infer = |model: &str, features: usize, location: &str, names: &Value| {
        let mut body = infer(1, &vec![0.5; features], features);
        let parameters = json!({ "feature_names": names });
        match location {
            "input" => body["inputs"][0]["parameters"] = parameters,
            _ => body["parameters"] = parameters,
        }
        let path = format!("/v2/models/{model}/infer");
        server.post(&path, &[], body.to_string().as_bytes())
    };
    let names: Vec<String> = (0..10).map(|column| format!("Column_{column}")).collect();
    let mut swapped = names.clone();
    swapped.swap(3, 4);
    for location in ["input", "request"] {
        for good in [
            json!(names),
            json!(names.join(",")),
            json!(json!(names).to_string()),
            json!(swapped),
        ] {
            assert_eq!(infer("light", 10, location, &good).status, 200, "{good}");
        }
        let mut other = names.clone();
        other[7] = "amount".to_owned();
        let longer = [names.clone(), vec!["Column_10".to_owned()]].concat();
        for (wrong, part) in [
            (json!(other), "column \"amount\" is unknown"),
            (json!(names[..9]), "column \"Column_9\" is missing"),
            (json!(longer), "column \"Column_10\" is unknown"),
            (json!(7), "is not a list of strings"),
            (json!(["Column_0", true]), "is not a list of strings"),
        ] {
            let refused = infer("light", 10, location, &wrong);
            assert_eq!(refused.status, 400, "{wrong}");
            assert!(refused.error().contains(part), "{}", refused.error());
        }
    }
    let nameless = infer("small", 29, "input", &json!(["a"]));
    assert_eq!(nameless.status, 400);
    assert!(
        nameless.error().contains("has no column names"),
        "{}",
        nameless.error()
    );
}

#[test]
fn json_values_equal_those_of_the_library_bit_for_bit() {
    let server = start();
    for (name, sample) in [("small", "main_small_d6"), ("multi", "xgb_multi_softmax")] {
        let sample = zoo::sample(sample);
        let (rows, want) = (sample.array("X").unwrap(), sample.array("margin").unwrap());
        let mut body = infer(rows.shape[0], &rows.data, rows.width());
        body["id"] = json!("an id");
        body["outputs"] = json!([{"name": "margin"}]);
        let answer = server.post(
            &format!("/v2/models/{name}/infer"),
            &[],
            body.to_string().as_bytes(),
        );
        let answer = answer.json();
        assert_eq!(
            (&answer["id"], &answer["model_name"]),
            (&json!("an id"), &json!(name))
        );
        let output = &answer["outputs"][0];
        assert_eq!(output["shape"], json!(want.shape));
        let bits = |values: &[f64]| -> Vec<u32> {
            values
                .iter()
                .map(|&value| (value as f32).to_bits())
                .collect()
        };
        assert_eq!(bits(&floats(output)), bits(&want.data), "{name}");
    }
}

#[test]
fn binary_tensors_both_ways_equal_those_of_the_library() {
    let server = start();
    let sample = zoo::sample("lgb_binary");
    let (rows, want) = (sample.array("X").unwrap(), sample.array("margin").unwrap());
    let tensor: Vec<u8> = rows
        .data
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let head = json!({
        "parameters": {"binary_data_output": true},
        "inputs": [{"name": "input", "shape": rows.shape, "datatype": "FP64",
            "parameters": {"binary_data_size": tensor.len()}}],
        "outputs": [{"name": "margin"}, {"name": "output", "parameters": {"binary_data": false}},
            {"name": "leaf"}],
    })
    .to_string();
    let length = head.len().to_string();
    let headers = [
        ("Inference-Header-Content-Length", &*length),
        ("Content-Type", "application/octet-stream"),
    ];
    let answer = server.post(
        "/v2/models/light/infer",
        &headers,
        &[head.as_bytes(), &tensor].concat(),
    );
    assert_eq!(
        answer.status,
        200,
        "{:?}",
        String::from_utf8_lossy(&answer.body)
    );
    let json_bytes: usize = answer
        .header("inference-header-content-length")
        .unwrap()
        .parse()
        .unwrap();
    let (json, binary) = answer.body.split_at(json_bytes);
    let json: Value = serde_json::from_slice(json).unwrap();
    let margins = json["outputs"][0]["parameters"]["binary_data_size"]
        .as_u64()
        .unwrap() as usize;
    let (margins, leaves) = binary.split_at(margins);
    let margins: Vec<u64> = margins
        .as_chunks()
        .0
        .iter()
        .map(|&b| u64::from_le_bytes(b))
        .collect();
    assert_eq!(
        margins,
        want.data
            .iter()
            .map(|value| value.to_bits())
            .collect::<Vec<_>>()
    );
    assert_eq!(floats(&json["outputs"][1]).len(), rows.shape[0]);
    let leaves: Vec<f64> = leaves
        .as_chunks()
        .0
        .iter()
        .map(|&b| i32::from_le_bytes(b).into())
        .collect();
    assert_eq!(leaves, sample.array("leaf").unwrap().data);
}

#[test]
fn a_raw_body_is_rows_and_returns_raw_values() {
    let server = start();
    let sample = zoo::sample("main_small_d6");
    let (rows, want) = (sample.array("X").unwrap(), sample.array("pred").unwrap());
    let tensor: Vec<u8> = rows
        .as_f32()
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let headers = [
        ("Inference-Header-Content-Length", "0"),
        ("Content-Type", "application/octet-stream"),
    ];
    let answer = server.post("/v2/models/small/infer", &headers, &tensor);
    let json_bytes: usize = answer
        .header("inference-header-content-length")
        .unwrap()
        .parse()
        .unwrap();
    let values = answer.body[json_bytes..].as_chunks().0;
    let values: Vec<f32> = values
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect();
    assert_eq!(values.len(), want.data.len());
    for (have, want) in values.iter().zip(want.as_f32()) {
        assert!(
            (have - want).abs() <= f32::EPSILON * want.abs(),
            "{have} {want}"
        );
    }
}

#[test]
fn compressed_bodies_are_accepted_and_sent() {
    use flate2::{Compression, read::GzDecoder, write::GzEncoder, write::ZlibEncoder};
    use std::io::Read;
    let server = start();
    let body = infer(100, &[0.5; 2900], 29).to_string();
    let plain = server.post("/v2/models/small/infer", &[], body.as_bytes());
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(body.as_bytes()).unwrap();
    let headers = [("Content-Encoding", "gzip"), ("Accept-Encoding", "gzip")];
    let packed = server.post("/v2/models/small/infer", &headers, &gzip.finish().unwrap());
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut unpacked = Vec::new();
    GzDecoder::new(&packed.body[..])
        .read_to_end(&mut unpacked)
        .unwrap();
    assert_eq!(unpacked, plain.body);
    let mut deflate = ZlibEncoder::new(Vec::new(), Compression::fast());
    deflate.write_all(body.as_bytes()).unwrap();
    let headers = [("Content-Encoding", "deflate")];
    let packed = server.post(
        "/v2/models/small/infer",
        &headers,
        &deflate.finish().unwrap(),
    );
    assert_eq!(packed.body, plain.body);
}

/// Sends an invalid request on a keep-alive connection, followed by a valid one.
fn refused(
    connection: &mut running::Connection,
    status: u16,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> String {
    let answer = connection.call("POST", path, headers, body.as_bytes());
    let error = answer.error();
    assert_eq!(answer.status, status, "{path} {headers:?} {body}: {error}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert!(error.len() > 10, "{error}");
    let good = infer(1, &[0.5; 29], 29).to_string();
    let still = connection.call("POST", INFER, &[], good.as_bytes());
    assert_eq!(still.status, 200, "after {path} {headers:?} {body}");
    error
}

#[test]
fn bad_requests_get_400_and_the_server_keeps_serving() {
    let server = start();
    let mut connection = server.connect();
    let good = infer(1, &[0.5; 29], 29);
    for (location, value) in [
        ("/inputs/0/shape", json!([29])),
        ("/inputs/0/shape", json!([1, 30])),
        ("/inputs/0/shape", json!([0, 29])),
        ("/inputs/0/shape", json!([-1, 29])),
        ("/inputs/0/shape", json!([2, 29])),
        ("/inputs/0/shape", json!("1, 29")),
        ("/inputs/0/datatype", json!("BYTES")),
        ("/inputs/0/datatype", json!("FP16")),
        ("/inputs/0/datatype", json!("INT32")),
        ("/inputs/0/name", Value::Null),
        ("/inputs/0/data", json!("abc")),
        ("/inputs/0/data", json!([])),
        ("/inputs/0/data/3", json!("abc")),
        ("/inputs/0/data/3", json!(1e300)),
        ("/inputs", json!([])),
        ("/inputs", Value::Null),
    ] {
        let mut body = good.clone();
        *body.pointer_mut(location).unwrap() = value;
        refused(&mut connection, 400, INFER, &[], &body.to_string());
    }
    let text = good.to_string();
    for body in ["", "{", "null", "[]", "\u{0}", &text[..text.len() - 9]] {
        refused(&mut connection, 400, INFER, &[], body);
    }
    let mut body = good;
    body["outputs"] = json!([{"name": "outptu"}]);
    let error = refused(&mut connection, 400, INFER, &[], &body.to_string());
    assert!(error.contains("has [\"output\", \"margin\""), "{error}");
}

#[test]
fn bad_headers_and_paths_get_their_status_and_the_server_keeps_serving() {
    let server = start();
    let mut connection = server.connect();
    let text = infer(1, &[0.5; 29], 29).to_string();
    for (status, header, value) in [
        (400, "Inference-Header-Content-Length", "99999"),
        (400, "Inference-Header-Content-Length", "-1"),
        (400, "Inference-Header-Content-Length", "100"),
        (400, "Content-Encoding", "gzip"),
        (415, "Content-Type", "text/xml"),
        (415, "Content-Encoding", "br"),
    ] {
        refused(&mut connection, status, INFER, &[(header, value)], &text);
    }
    for (status, path) in [
        (404, "/v2/models/nobody/infer"),
        (404, "/v2/models/small/versions/2/infer"),
        (404, "/v2/models/small/infer/more"),
        (404, "/v3"),
        (405, "/v2/health/live"),
    ] {
        refused(&mut connection, status, path, &[], &text);
    }
    let answer = connection.call("GET", INFER, &[], b"");
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
}

#[test]
fn bytes_that_are_not_http_get_an_error_in_json() {
    let server = start();
    let long = format!(
        "GET /v2 HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n",
        "x".repeat(40_000)
    );
    for (sent, status) in [
        (&b"complete nonsense\r\n\r\n"[..], 400),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400),
        (long.as_bytes(), 431),
    ] {
        let mut connection = server.connect();
        connection.send(sent);
        let answer = connection.answer();
        assert_eq!(answer.status, status);
        assert!(answer.error().len() > 10);
        assert!(connection.is_closed());
    }
    assert_eq!(server.get("/v2/health/live").status, 200);
}

#[test]
fn a_body_beyond_the_limit_is_refused_and_the_answer_can_be_read() {
    let server = start();
    let body = vec![b' '; 65 << 20];
    let answer = server.post("/v2/models/small/infer", &[], &body);
    assert_eq!(answer.status, 413, "{}", answer.error());
    // A decompression bomb: 80 MiB of zeros in 80 KiB.
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gzip.write_all(&vec![0; 80 << 20]).unwrap();
    let packed = gzip.finish().unwrap();
    let answer = server.post(
        "/v2/models/small/infer",
        &[("Content-Encoding", "gzip")],
        &packed,
    );
    assert_eq!(answer.status, 413, "{}", answer.error());
    assert_eq!(server.get("/v2/health/live").status, 200);
}

#[test]
fn chunked_bodies_pipelining_and_clients_that_leave_are_served() {
    let server = start();
    let body = infer(1, &[0.5; 29], 29).to_string();
    let mut connection = server.connect();
    let (first, second) = body.split_at(40);
    connection.send(
        format!(
            "POST /v2/models/small/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
             {:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n\
             GET /v2 HTTP/1.1\r\nHost: x\r\n\r\nGET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n",
            first.len(),
            second.len()
        )
        .as_bytes(),
    );
    assert_eq!(connection.answer().status, 200);
    assert_eq!(connection.answer().json()["name"], "albacore-server");
    assert_eq!(connection.answer().json()["live"], true);
    for cut in [10, 60, 200] {
        let mut leaving = server.connect();
        let head = format!(
            "POST /v2/models/small/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        leaving.send(&(head + &body).as_bytes()[..cut]);
    }
    assert_eq!(
        server
            .post("/v2/models/small/infer", &[], body.as_bytes())
            .status,
        200
    );
}

#[test]
fn metrics_count_what_happened() {
    let server = start();
    let body = infer(3, &[0.5; 87], 29).to_string();
    let answer = server.post("/v2/models/small/infer", &[], body.as_bytes());
    assert_eq!(answer.status, 200);
    let timing = answer.header("server-timing").unwrap();
    let times = timing.split(", ").map(|metric| {
        let (name, ms) = metric.split_once(";dur=").unwrap();
        (name, ms.parse::<f64>().unwrap())
    });
    let times: Vec<(&str, f64)> = times.collect();
    let names: Vec<&str> = times.iter().map(|&(name, _)| name).collect();
    let stages = [
        "parse",
        "admission",
        "queue",
        "defer",
        "compute",
        "serialize",
        "run",
    ];
    assert_eq!(names, stages, "{timing}");
    assert!(times[4].1 > 0.0 && times[4].1 == times[6].1, "{timing}");
    assert_eq!(
        server
            .post("/v2/models/nobody/infer", &[], body.as_bytes())
            .status,
        404
    );
    let answer = server.get("/metrics");
    assert!(
        answer
            .header("content-type")
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    let text = String::from_utf8(answer.body).unwrap();
    for line in [
        "albacore_requests_total{model=\"small\",kind=\"value\",protocol=\"http\",code=\"200\"} 1",
        "albacore_requests_total{model=\"\",kind=\"none\",protocol=\"http\",code=\"404\"} 1",
        "albacore_rows_total{model=\"small\"} 3",
        "albacore_late_total{model=\"small\"} 0",
        "albacore_worker_restarts_total{worker=\"0\"} 0",
        "albacore_worker_hangs_total 0",
        "albacore_batch_beta_seconds{model=\"small\",kind=\"value\"} 0.0",
        "albacore_workers_ready 2",
        "albacore_good_total{model=\"small\"} 1",
        "albacore_batch_rows_bucket{le=\"+Inf\",model=\"small\",kind=\"value\"} 1",
        "albacore_defer_duration_seconds_bucket{le=\"+Inf\",model=\"small\",kind=\"value\"} 1",
        "albacore_batches_left_total{model=\"small\",kind=\"value\",cause=\"arrival\"} 1",
        "albacore_batches_shared_total{model=\"small\",kind=\"value\",by=\"alone\"} 1",
        "albacore_worker_batches_total{worker=\"0\"} 1",
        "albacore_worker_batches_total{worker=\"1\"} 0",
        "albacore_request_stage_seconds_count{model=\"small\",stage=\"parse\"} 1",
        "albacore_request_stage_seconds_count{model=\"small\",stage=\"serialize\"} 1",
        "albacore_request_stage_seconds_bucket{le=\"+Inf\",model=\"small\",stage=\"compute\"} 1",
        "# TYPE albacore_requests_total counter",
        "# TYPE process_cpu_seconds_total counter",
    ] {
        assert!(
            text.lines().any(|known| known == line),
            "{line} is not in\n{text}"
        );
    }
}

#[test]
fn a_full_queue_refuses_with_retry_advice() {
    let arguments = ["--workers", "1", "--threads", "1", "--queue-rows", "4"];
    let server = Running::start(&MODELS, &arguments);
    server.signal_workers("-STOP");
    let (sender, answers) = std::sync::mpsc::channel();
    for _ in 0..4 {
        let (sender, mut connection) = (sender.clone(), server.connect());
        std::thread::spawn(move || {
            let body = infer(3, &[0.5; 87], 29).to_string();
            let path = "/v2/models/small/infer";
            let _ = sender.send(connection.call("POST", path, &[], body.as_bytes()));
        });
    }
    // One request may run and one may wait. The workers are stopped, so the first reply is a
    // rejection.
    let first = answers.recv_timeout(running::PATIENCE).unwrap();
    assert_eq!(first.status, 429, "{}", first.error());
    assert!(first.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    server.signal_workers("-CONT");
    let rest: Vec<u16> = (0..3)
        .map(|_| answers.recv_timeout(running::PATIENCE).unwrap().status)
        .collect();
    assert!(
        rest.contains(&200) && rest.iter().all(|status| [200, 429].contains(status)),
        "{rest:?}"
    );
    let body = infer(5, &[0.5; 145], 29).to_string();
    let never = server.post("/v2/models/small/infer", &[], body.as_bytes());
    assert_eq!(never.status, 413, "{}", never.error());
}

#[test]
fn a_killed_worker_loses_no_request() {
    let mut server = start();
    let body = infer(1, &[0.5; 29], 29).to_string();
    let mut connection = server.connect();
    let path = "/v2/models/small/infer";
    let want = connection.call("POST", path, &[], body.as_bytes());
    server.signal_workers("-KILL");
    for _ in 0..200 {
        let answer = connection.call("POST", path, &[], body.as_bytes());
        if answer.status != 503 {
            assert_eq!(
                answer.body,
                want.body,
                "{:?}",
                String::from_utf8_lossy(&answer.body)
            );
        }
    }
    assert_eq!(server.event("worker_died")["cause"], "signal 9");
}

#[test]
fn a_draining_server_answers_accepted_requests_and_exits_with_zero() {
    let server = start();
    let mut idle = server.connect();
    assert_eq!(idle.call("GET", "/v2/health/live", &[], b"").status, 200);
    let body = infer(1, &[0.5; 29], 29).to_string();
    assert_eq!(
        server
            .post("/v2/models/small/infer", &[], body.as_bytes())
            .status,
        200
    );
    assert_eq!(server.stop("-TERM"), Some(0));
    assert!(idle.is_closed());
}
