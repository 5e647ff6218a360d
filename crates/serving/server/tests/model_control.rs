//! Triton's load and unload calls to real servers: their effect on later requests, also after
//! respawns of workers and takeovers of fronts; rejected and failed calls.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod running;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use albacore_proto::inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use albacore_proto::inference::model_repository_parameter::ParameterChoice;
use albacore_proto::inference::{
    ModelReadyRequest, ModelRepositoryParameter, RepositoryModelLoadRequest,
    RepositoryModelUnloadRequest,
};
use running::{Answer, PATIENCE, Running, kill, zoo};
use serde_json::{Value, json};
use tonic::Code;

const MODELS: [(&str, &str); 2] = [("a", "xgb_exact.ubj"), ("b", "xgb_stump.ubj")];

/// Two models of ten features whose results differ.
const FILES: [&str; 2] = ["xgb_exact.ubj", "xgb_stump.ubj"];

fn start() -> Running {
    let further = ["--workers", "2", "--model-control", "explicit"];
    Running::start(&MODELS, &further)
}

/// Starts a server whose only model, `m`, is this file, given by argument or by a settings file.
fn start_on(file: &Path, folder: Option<&Path>) -> Running {
    let source = match folder {
        None => vec!["--model".to_owned(), format!("m={}", file.display())],
        Some(folder) => {
            let settings = folder.join("settings.yaml");
            std::fs::write(&settings, settings_of(file)).unwrap();
            vec!["--settings".to_owned(), settings.display().to_string()]
        }
    };
    let further = ["--workers", "2", "--model-control", "explicit"];
    let further = further.map(str::to_owned);
    let mut server = Running::spawn(&[&source[..], &further[..]].concat());
    server.wait_until_ready();
    server
}

fn settings_of(file: &Path) -> String {
    json!({"models": [{"name": "m", "path": file}]}).to_string()
}

/// Replaces a file atomically, as publishers of models do.
fn put(content: &[u8], file: &Path) {
    let new = file.with_extension("new");
    std::fs::write(&new, content).unwrap();
    std::fs::rename(new, file).unwrap();
}

fn model_file(name: &str) -> Vec<u8> {
    std::fs::read(zoo(name)).unwrap()
}

fn infer_body(rows: usize) -> Vec<u8> {
    let data: Vec<f64> = (0..rows * 10).map(|at| at as f64 / 7.0 - 2.0).collect();
    let input = json!({"name": "input", "shape": [rows, 10], "datatype": "FP32", "data": data});
    json!({ "inputs": [input] }).to_string().into_bytes()
}

fn infer(server: &Running, model: &str) -> Answer {
    server.post(&format!("/v2/models/{model}/infer"), &[], &infer_body(3))
}

/// The output `value` of the model.
fn output(server: &Running, model: &str) -> Value {
    let answer = infer(server, model);
    assert_eq!(answer.status, 200, "{:?}", answer.json());
    answer.json()["outputs"][0]["data"].clone()
}

fn control(server: &Running, model: &str, call: &str) -> Answer {
    let path = format!("/v2/repository/models/{model}/{call}");
    server.post(&path, &[], b"")
}

/// Loads or unloads a model; the call must succeed.
fn control_ok(server: &Running, model: &str, call: &str) {
    let answer = control(server, model, call);
    assert_eq!(answer.status, 200, "{:?}", answer.json());
    assert_eq!(answer.json(), json!({}));
}

/// The entry of a model in the index.
fn index(server: &Running, model: &str) -> Value {
    let index = server.post("/v2/repository/index", &[], b"").json();
    let found = index.as_array().unwrap().iter();
    let mut found = found.filter(|entry| entry["name"] == model);
    found.next().unwrap().clone()
}

/// Checks that every call for an unloaded model reports that it is unloaded.
fn assert_unloaded(server: &Running, model: &str) {
    let answer = infer(server, model);
    assert_eq!(answer.status, 404);
    let message = format!("model {model:?} is unloaded; load it first");
    assert_eq!(answer.error(), message);
    let ready = server.get(&format!("/v2/models/{model}/ready"));
    assert_eq!((ready.status, ready.error()), (404, message));
    let entry = index(server, model);
    assert_eq!(
        entry,
        json!({"name": model, "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"})
    );
    assert_eq!(
        server.get("/v2/health/ready").status,
        200,
        "the server is ready"
    );
}

fn state(server: &Running) -> Value {
    server.get("/albacore/v1/state").json()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Number of model images mapped by the workers.
fn mapped_images(server: &Running) -> usize {
    let mapped = |pid: &u32| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        maps.matches("albacore-model").count()
    };
    server.live_workers().iter().map(mapped).sum()
}

/// Number of model image descriptors in supervisor, front and standby.
fn open_images(server: &Running) -> usize {
    let fronts = server.processes("front").into_iter().map(|(pid, _)| pid);
    let open = |pid: u32| {
        let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
            return 0;
        };
        let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        let is_image = |link: &PathBuf| link.to_string_lossy().contains("albacore-model");
        links.filter(is_image).count()
    };
    fronts.chain([server.pid()]).map(open).sum()
}

fn is_prepared(server: &Running) -> bool {
    state(server)["front"]["standby_ready"] == true
}

#[test]
fn an_unloaded_model_is_found_by_no_request_until_it_is_loaded() {
    let server = start();
    let before = [output(&server, "a"), output(&server, "b")];
    assert_ne!(before[0], before[1]);
    until("a standby is prepared", || is_prepared(&server));
    let (images, open) = (mapped_images(&server), open_images(&server));
    assert!(images >= 4, "two models in two workers: {images}");
    assert!(
        open >= 6,
        "two models in supervisor, front and standby: {open}"
    );
    control_ok(&server, "a", "unload");
    assert_unloaded(&server, "a");
    assert_eq!(state(&server)["models"][0]["state"], "unloaded");
    until("the others close it", || open_images(&server) == open / 2);
    until("the workers close it", || {
        mapped_images(&server) == images / 2
    });
    assert_eq!(output(&server, "b"), before[1]);
    control_ok(&server, "a", "unload");
    assert_unloaded(&server, "a");
    let only_ready = server.post("/v2/repository/index", &[], br#"{"ready": true}"#);
    assert_eq!(only_ready.json(), json!([index(&server, "b")]));
    for _ in 0..2 {
        control_ok(&server, "a", "load");
        assert_eq!(output(&server, "a"), before[0]);
        assert_eq!(index(&server, "a")["state"], "READY");
    }
    assert_eq!(server.get("/v2/models/a/ready").status, 200);
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn respawned_workers_and_the_next_front_keep_what_calls_have_done() {
    let mut server = start();
    let before = [output(&server, "a"), output(&server, "b")];
    control_ok(&server, "a", "unload");
    server.signal_workers("-KILL");
    until("the workers are respawned", || {
        let workers = &state(&server)["workers"];
        workers["alive"] == 2 && workers["restarts"] == 2
    });
    assert_unloaded(&server, "a");
    assert_eq!(output(&server, "b"), before[1]);
    for is_loaded in [false, true, false] {
        until("a standby is prepared", || is_prepared(&server));
        control_ok(&server, "a", if is_loaded { "load" } else { "unload" });
        let front = server.front();
        assert!(kill("-KILL", front));
        assert_eq!(server.event("front_died")["pid"], front);
        if is_loaded {
            assert_eq!(output(&server, "a"), before[0]);
            assert_eq!(index(&server, "a")["state"], "READY");
        } else {
            assert_unloaded(&server, "a");
        }
        assert_eq!(output(&server, "b"), before[1]);
    }
    control_ok(&server, "a", "load");
    assert_eq!(output(&server, "a"), before[0]);
    // A standby that is started later gets the unloaded models, too.
    control_ok(&server, "b", "unload");
    until("a standby is prepared", || is_prepared(&server));
    assert!(kill("-KILL", server.front()));
    server.event("front_died");
    assert_unloaded(&server, "b");
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn requests_in_flight_are_answered_after_their_model_is_unloaded() {
    let server = start();
    let expected = output(&server, "a");
    server.signal_workers("-STOP");
    let mut connection = server.connect();
    let body = infer_body(3);
    let head = format!(
        "POST /v2/models/a/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    connection.send(&[head.as_bytes(), &body].concat());
    until("a worker has the batch", || {
        let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
        metrics.contains("albacore_workers_busy 1")
    });
    control_ok(&server, "a", "unload");
    assert_unloaded(&server, "a");
    server.signal_workers("-CONT");
    let answer = connection.answer();
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["outputs"][0]["data"], expected);
    assert_eq!(server.stop("-TERM"), Some(0));
}

/// Loads versions of `file` by calls.
fn check_versions(server: &Running, file: &Path, expected: &[Value; 2]) {
    assert_eq!(output(server, "m"), expected[0]);
    put(&model_file(FILES[1]), file);
    control_ok(server, "m", "load");
    assert_eq!(output(server, "m"), expected[1]);
    put(b"no model", file);
    let failed = control(server, "m", "load");
    assert_eq!(failed.status, 500);
    let message = failed.error();
    assert!(
        message.contains("\"m\" cannot be loaded") && message.contains("model.ubj"),
        "{message}"
    );
    assert_eq!(output(server, "m"), expected[1], "the version before");
    assert_eq!(index(server, "m")["state"], "READY");
    control_ok(server, "m", "unload");
    assert_unloaded(server, "m");
    assert_eq!(control(server, "m", "load").status, 500);
    assert_eq!(
        infer(server, "m").status,
        404,
        "a call that failed changes nothing"
    );
    let entry = index(server, "m");
    assert_eq!(entry["state"], "UNAVAILABLE");
    assert!(
        entry["reason"].as_str().unwrap().contains("model.ubj"),
        "{entry}"
    );
    put(&model_file(FILES[0]), file);
    control_ok(server, "m", "load");
    assert_eq!(output(server, "m"), expected[0]);
}

#[test]
fn load_reads_the_current_file_and_an_invalid_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.ubj");
    let other = folder.path().join("other.ubj");
    let server = start();
    let expected = [output(&server, "a"), output(&server, "b")];
    assert_eq!(server.stop("-TERM"), Some(0));
    put(&model_file(FILES[0]), &file);
    let server = start_on(&file, None);
    check_versions(&server, &file, &expected);
    assert_eq!(server.stop("-TERM"), Some(0));
    put(&model_file(FILES[0]), &file);
    let mut server = start_on(&file, Some(folder.path()));
    check_versions(&server, &file, &expected);
    // The settings define the source of a model, calls whether it is loaded.
    control_ok(&server, "m", "unload");
    put(&model_file(FILES[1]), &other);
    put(
        settings_of(&other).as_bytes(),
        &folder.path().join("settings.yaml"),
    );
    server.event("settings_applied");
    assert_unloaded(&server, "m");
    control_ok(&server, "m", "load");
    assert_eq!(output(&server, "m"), expected[1]);
    assert_eq!(server.stop("-TERM"), Some(0));
}

/// A model source that sends each response when the test permits it.
struct SlowSource {
    arrivals: Receiver<()>,
    go: Sender<()>,
    url: String,
}

impl SlowSource {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/model.ubj", listener.local_addr().unwrap());
        let (arrived, arrivals) = channel();
        let (go, release) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                // The thread ends with the test.
                if answer_when(stream.unwrap(), &arrived, &release).is_none() {
                    return;
                }
            }
        });
        Self { arrivals, go, url }
    }

    fn wait_for_request(&self) {
        self.arrivals.recv_timeout(PATIENCE).unwrap();
    }

    fn answer(&self) {
        self.go.send(()).unwrap();
    }
}

fn answer_when(mut stream: TcpStream, arrived: &Sender<()>, release: &Receiver<()>) -> Option<()> {
    let content = model_file(FILES[0]);
    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    arrived.send(()).ok()?;
    release.recv().ok()?;
    let length = content.len();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    // The client may have disconnected.
    let _ = stream.write_all(&[head.as_bytes(), &content].concat());
    Some(())
}

/// Starts a server with model `slow` from this source and a model `fast`.
fn start_slow(source: &SlowSource) -> Running {
    source.answer();
    let models = [
        format!("slow={}", source.url),
        format!("fast={}", zoo(FILES[1]).display()),
    ];
    let [slow, fast] = &models;
    let arguments = [
        "--model",
        slow,
        "--model",
        fast,
        "--model-control",
        "explicit",
    ];
    let mut server = Running::spawn(&arguments.map(str::to_owned));
    server.wait_until_ready();
    source.wait_for_request();
    server
}

#[test]
fn concurrent_calls_for_one_model_are_refused_while_one_runs() {
    let source = SlowSource::start();
    let server = start_slow(&source);
    let expected = output(&server, "slow");
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| control(&server, "slow", "load"));
        source.wait_for_request();
        for call in ["load", "unload", "load"] {
            let refused = control(&server, "slow", call);
            assert_eq!(refused.status, 429);
            let message = refused.error();
            assert!(message.contains("another call"), "{message}");
            assert_eq!(refused.header("retry-after"), Some("1"));
        }
        // Other models and requests do not wait for the load.
        assert_eq!(output(&server, "slow"), expected);
        control_ok(&server, "fast", "unload");
        control_ok(&server, "fast", "load");
        source.answer();
        assert_eq!(loading.join().unwrap().status, 200);
    });
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn a_load_goes_on_without_its_client_and_ends_with_the_server() {
    let source = SlowSource::start();
    let mut server = start_slow(&source);
    let mut connection = server.connect();
    let path = "/v2/repository/models/slow/load";
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    connection.send(head.as_bytes());
    source.wait_for_request();
    drop(connection);
    assert_eq!(control(&server, "slow", "unload").status, 429);
    source.answer();
    until("the model is free", || {
        control(&server, "slow", "unload").status == 200
    });
    assert_unloaded(&server, "slow");
    std::thread::scope(|scope| {
        let loading = scope.spawn(|| control(&server, "slow", "load"));
        source.wait_for_request();
        assert!(kill("-TERM", server.pid()));
        let ended = loading.join().unwrap();
        assert_eq!(ended.status, 503);
        let message = ended.error();
        assert!(message.contains("the server stops"), "{message}");
    });
    let mut code = None;
    until("the server ends", || {
        code = server.try_exit();
        code.is_some()
    });
    assert_eq!(code, Some(Some(0)));
}

#[test]
fn many_calls_at_once_leave_a_server_that_answers() {
    let server = start();
    let expected = [output(&server, "a"), output(&server, "b")];
    std::thread::scope(|scope| {
        for client in 0..4 {
            let server = &server;
            scope.spawn(move || {
                for turn in 0..40 {
                    let call = ["load", "unload"][(client + turn) % 2];
                    let status = control(server, "a", call).status;
                    assert!([200, 429].contains(&status), "{status}");
                }
            });
        }
        for _ in 0..40 {
            assert_eq!(output(&server, "b"), expected[1]);
            assert!([200, 404].contains(&infer(&server, "a").status));
        }
    });
    control_ok(&server, "a", "load");
    assert_eq!(output(&server, "a"), expected[0]);
    assert_eq!(state(&server)["workers"]["restarts"], 0);
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn models_that_the_settings_do_not_name_and_sources_in_requests_are_refused() {
    let server = start();
    for call in ["load", "unload"] {
        let unknown = control(&server, "c", call);
        assert_eq!(unknown.status, 404);
        assert!(
            unknown.error().contains("not in the settings"),
            "{}",
            unknown.error()
        );
        let path = format!("/v2/repository/models/a/{call}");
        assert_eq!(server.get(&path).status, 405);
        for parameter in ["config", "file:1/model.ubj", "path"] {
            let body = json!({"parameters": {parameter: "x"}}).to_string();
            let refused = server.post(&path, &[], body.as_bytes());
            assert_eq!(refused.status, 400);
            assert!(refused.error().contains(parameter), "{}", refused.error());
        }
        let large = vec![b' '; 65 << 10];
        assert_eq!(server.post(&path, &[], &large).status, 413);
    }
    assert_eq!(infer(&server, "a").status, 200, "nothing was unloaded");
    let body = br#"{"parameters": {"unload_dependents": true}}"#;
    let answer = server.post("/v2/repository/models/a/unload", &[], body);
    assert_eq!(answer.status, 200);
    assert_unloaded(&server, "a");
}

#[test]
fn by_default_calls_do_not_load_or_unload_models() {
    let server = Running::start(&MODELS, &[]);
    for call in ["load", "unload"] {
        let refused = control(&server, "a", call);
        assert_eq!(refused.status, 501);
        assert!(
            refused.error().contains("--model-control explicit"),
            "{}",
            refused.error()
        );
    }
    assert_eq!(infer(&server, "a").status, 200);
    assert_eq!(index(&server, "a")["state"], "READY");
}

fn load(model: &str) -> RepositoryModelLoadRequest {
    RepositoryModelLoadRequest {
        model_name: model.to_owned(),
        ..Default::default()
    }
}

fn unload(model: &str) -> RepositoryModelUnloadRequest {
    RepositoryModelUnloadRequest {
        model_name: model.to_owned(),
        ..Default::default()
    }
}

#[tokio::test]
async fn grpc_loads_and_unloads_models() {
    let server = start();
    let address = format!("http://{}", server.grpc);
    let mut client = GrpcInferenceServiceClient::connect(address).await.unwrap();
    let ready = || ModelReadyRequest {
        name: "a".to_owned(),
        version: String::new(),
    };
    client.repository_model_unload(unload("a")).await.unwrap();
    assert_unloaded(&server, "a");
    assert!(
        !client
            .model_ready(ready())
            .await
            .unwrap()
            .into_inner()
            .ready
    );
    let value = ModelRepositoryParameter {
        parameter_choice: Some(ParameterChoice::BytesParam(b"x".to_vec())),
    };
    let mut with_file = load("a");
    with_file
        .parameters
        .insert("file:1/model".to_owned(), value);
    let refused = client.repository_model_load(with_file).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("file:1/model"), "{refused}");
    let mut named = unload("a");
    named.repository_name = "models".to_owned();
    let refused = client.repository_model_unload(named).await.unwrap_err();
    assert!(refused.message().contains("repository_name"), "{refused}");
    let unknown = client.repository_model_load(load("c")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    client.repository_model_load(load("a")).await.unwrap();
    assert!(
        client
            .model_ready(ready())
            .await
            .unwrap()
            .into_inner()
            .ready
    );
    let without = Running::start(&MODELS[..1], &[]);
    let address = format!("http://{}", without.grpc);
    let mut client = GrpcInferenceServiceClient::connect(address).await.unwrap();
    let refused = [
        client.repository_model_load(load("a")).await.unwrap_err(),
        client
            .repository_model_unload(unload("a"))
            .await
            .unwrap_err(),
    ];
    for refused in refused {
        assert_eq!(refused.code(), Code::Unimplemented);
        assert!(
            refused.message().contains("--model-control explicit"),
            "{refused}"
        );
    }
}
