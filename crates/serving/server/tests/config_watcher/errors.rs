//! Errors leave the served models unchanged, are reported, and are retried.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use albacore_settings::{ModelSettings, Policy, Source};

use super::running::{Running, zoo};
use super::volume::digest;
use super::{
    FILES, Volume, infer, infer_body, model, settings, start, state, until, until_in_force,
};

/// An HTTP server of models. `/gone` returns 404 until `is_found`, `/page` an HTML page, `/slow`
/// sends slowly, `/loop` redirects to itself.
fn store(is_found: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let is_found = Arc::clone(&is_found);
            // The thread ends when its client disconnects.
            std::thread::spawn(move || answer(stream, &is_found).is_ok());
        }
    });
    address
}

fn answer(mut stream: TcpStream, is_found: &AtomicBool) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    lines
        .take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty()))
        .count();
    match first.split(' ').nth(1).unwrap_or_default() {
        "/gone" if !is_found.load(Ordering::Relaxed) => {
            write!(
                stream,
                "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            )
        }
        "/loop" => {
            write!(
                stream,
                "HTTP/1.1 302 Found\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n"
            )
        }
        "/page" => {
            let page = "<!DOCTYPE html><html><head><title>Sign in</title></head></html>";
            let length = page.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{page}"
            )
        }
        "/slow" => {
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")?;
            loop {
                stream.write_all(b"x")?;
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        _ => {
            let bytes = std::fs::read(zoo(FILES[0]))?;
            let length = bytes.len();
            write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"
            )?;
            stream.write_all(&bytes)
        }
    }
}

fn url(name: &str, address: SocketAddr, path: &str) -> ModelSettings {
    ModelSettings {
        name: name.to_owned(),
        source: Source::Url(format!("http://{address}{path}")),
        sha256: None,
        iterations: None,
        slo: None,
        outputs: Vec::new(),
        threads: None,
        weight: albacore_settings::WEIGHT_DEFAULT,
        batching: None,
        schema_names: albacore_settings::SchemaNames::default(),
    }
}

fn settings_with(models: Vec<ModelSettings>) -> String {
    settings(models, Policy::default(), 1024)
}

#[test]
fn a_server_without_its_model_is_live_and_becomes_ready_once_the_model_exists() {
    let is_found = Arc::new(AtomicBool::new(false));
    let address = store(Arc::clone(&is_found));
    let there = url("there", address, "/model");
    let volume = Volume::new(&settings_with(vec![there, url("gone", address, "/gone")]));
    let mut server = start(&volume, &[]);
    let failed = server.event("model_failed");
    let error = failed["error"].as_str().unwrap();
    assert!(
        error.contains("/gone answered 404: file not found"),
        "{error}"
    );
    assert_eq!(server.get("/v2/health/live").status, 200);
    assert_eq!(server.get("/v2/health/ready").status, 503);
    let state = until(&server, "one is loaded", |state| {
        state["models"][0]["state"] == "loaded" && state["models"][1]["state"] == "failed"
    });
    assert_eq!(state["models"][1]["error"], *error);
    assert_eq!(state["models"][1]["sha256"], serde_json::Value::Null);
    let body = infer_body(2);
    assert_eq!(
        infer(&server, "there", &body).status,
        200,
        "what is loaded serves"
    );
    let refused = infer(&server, "gone", &body);
    assert_eq!(refused.status, 503);
    assert!(
        refused.error().contains("not loaded yet"),
        "{}",
        refused.error()
    );
    is_found.store(true, Ordering::Relaxed);
    server.event("ready");
    assert_eq!(server.get("/v2/health/ready").status, 200);
    assert_eq!(infer(&server, "gone", &body).status, 200);
}

/// Applies `bad`; the model must fail with `words`, and `m` must be served as before.
fn assert_load_fails(server: &Running, volume: &Volume, bad: ModelSettings, words: &str) {
    volume.update(&settings_with(vec![bad]));
    let state = until(server, words, |state| {
        let error = state["models"][0]["error"].as_str().unwrap_or_default();
        state["models"][0]["state"] == "failed" && error.contains(words)
    });
    assert_eq!(
        state["models"][0]["sha256"],
        digest(FILES[0]).to_string(),
        "{words}"
    );
    assert_eq!(infer(server, "m", &infer_body(2)).status, 200, "{words}");
    assert_eq!(server.get("/v2/health/ready").status, 200, "{words}");
}

#[test]
fn a_failed_load_keeps_the_previous_version_serving() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let source = Source::Path(path.display().to_string());
        ModelSettings {
            source,
            ..model(FILES[0])
        }
    };
    let address = store(Arc::default());
    let volume = Volume::new(&settings_with(vec![model(FILES[0])]));
    let mut server = start(&volume, &["--model-bytes-max", "1000000"]);
    server.wait_until_ready();
    let whole = std::fs::read(zoo(FILES[1])).unwrap();
    let wrong = ModelSettings {
        sha256: Some(digest(FILES[0])),
        ..model(FILES[1])
    };
    for (bad, words) in [
        (
            file("half.ubj", &whole[..whole.len() / 2]),
            "half.ubj: damaged model",
        ),
        (file("text.ubj", b"hello"), "text.ubj: not a model"),
        (
            file("large.ubj", &vec![0; 1_000_001]),
            "has more than 1000000 bytes",
        ),
        (wrong, "has the SHA-256"),
        (
            file("pickle.pkl", b"\x80\x04\x8c\x0fxgboost.sklearn\x94"),
            "pickle.pkl: not a model file of XGBoost, LightGBM or scikit-learn: it is a Python pickle",
        ),
        (
            url("m", address, "/page"),
            "it is an HTML page titled 'Sign in'",
        ),
        (url("m", address, "/gone"), "/gone answered 404"),
        (url("m", address, "/loop"), "redirects more than 5 times"),
        (model("xgb_gblinear.json"), "xgb_gblinear"),
    ] {
        assert_load_fails(&server, &volume, bad, words);
    }
    volume.update(&settings_with(vec![model(FILES[1])]));
    let state = until_in_force(&server, &volume);
    assert_eq!(state["models"][0]["sha256"], digest(FILES[1]).to_string());
    assert_eq!(state["models"][0].get("error"), None);
}

#[test]
fn a_slow_download_delays_no_other_model_and_is_cancelled_with_its_model() {
    let address = store(Arc::default());
    let volume = Volume::new(&settings_with(vec![model(FILES[0])]));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let mut other = model(FILES[1]);
    other.name = "other".to_owned();
    volume.update(&settings_with(vec![url("m", address, "/slow"), other]));
    let state = until(&server, "the other one is loaded", |state| {
        state["models"].as_array().unwrap().len() == 2 && state["models"][1]["state"] == "loaded"
    });
    assert_eq!(state["models"][0]["state"], "loading");
    assert_eq!(
        infer(&server, "m", &infer_body(2)).status,
        200,
        "the old one serves"
    );
    volume.update(&settings_with(vec![model(FILES[2])]));
    until_in_force(&server, &volume);
    assert_eq!(server.stop("-TERM"), Some(0));
}

#[test]
fn invalid_settings_change_nothing_and_are_reported() {
    let volume = Volume::new(&settings_with(vec![model(FILES[0])]));
    let mut server = start(&volume, &[]);
    server.wait_until_ready();
    let right = volume.sha256();
    for (text, words) in [
        ("models: []\n", "models: is empty"),
        ("models: [\n", "line "),
        ("batching: {policy: lazy}\n", "batching.policy"),
        ("\u{0}", "line "),
    ] {
        volume.update(text);
        let refused = server.event("settings_refused");
        let error = refused["error"].as_str().unwrap();
        assert!(
            error.contains(words) && error.contains("settings.yaml"),
            "{error}"
        );
        let state = state(&server);
        assert_eq!(state["settings_sha256"], *right);
        assert_eq!(state["settings_error"], *error);
        assert_eq!(infer(&server, "m", &infer_body(2)).status, 200);
    }
    volume.update(&settings_with(vec![model(FILES[1])]));
    let state = until_in_force(&server, &volume);
    assert_eq!(state.get("settings_error"), None);
    std::fs::remove_file(volume.settings()).unwrap();
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(
        infer(&server, "m", &infer_body(2)).status,
        200,
        "a file that is gone changes nothing"
    );
}

#[test]
fn invalid_settings_at_start_end_the_server_with_a_message() {
    for (text, words) in [
        (
            Some("models: []"),
            "models: is empty: name at least one model",
        ),
        (
            Some("models: [{name: a, path: /a}]\nbatching: {policy: lazy}"),
            "batching.policy: \"lazy\" is not a policy",
        ),
        (None, "cannot be opened"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings.yaml");
        if let Some(text) = text {
            std::fs::write(&file, text).unwrap();
        }
        let output = Command::new(env!("CARGO_BIN_EXE_albacore-server"))
            .arg("--settings")
            .arg(&file)
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains(words) && stderr.contains("settings.yaml"),
            "{stderr}"
        );
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
