//! A model in a real object store: loaded, replaced, deleted.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use albacore_settings::{ModelSettings, Policy, Source};

use super::running::{Running, zoo};
use super::seaweed::{READER, Seaweed};
use super::volume::digest;
use super::{FILES, Volume, infer, infer_body, model, settings, until};

/// Starts a server with `variables` in its environment; returns it with the path of its log.
fn start(volume: &Volume, variables: &[(&str, &str)]) -> (Running, PathBuf) {
    let (script, log) = (volume.path().join("start"), volume.path().join("log"));
    let exported = variables.iter();
    let exported: String = exported
        .map(|(name, value)| format!("export {name}='{value}'\n"))
        .collect();
    let program = env!("CARGO_BIN_EXE_albacore-server");
    let text = format!(
        "#!/bin/sh\n{exported}exec {program} \"$@\" 2>{}\n",
        log.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let file = volume.settings().display().to_string();
    let arguments = ["--settings", &file, "--model-poll", "1s"].map(str::to_owned);
    (Running::spawn_program(&script, &arguments), log)
}

fn in_store(key: &str) -> ModelSettings {
    ModelSettings {
        source: Source::Url(format!("s3://models/{key}")),
        ..model(FILES[0])
    }
}

fn bytes(file: &str) -> Vec<u8> {
    std::fs::read(zoo(file)).unwrap()
}

#[test]
fn a_model_follows_its_object_and_outlives_it() {
    let store = Seaweed::start();
    store.put("m.ubj", &bytes(FILES[0]));
    // A URL that contains a signature; the blob does not exist.
    let signed = ModelSettings {
        name: "signed".to_owned(),
        source: Source::Url("az://models/m.ubj".to_owned()),
        ..model(FILES[0])
    };
    let models = vec![in_store("m.ubj"), signed];
    let volume = Volume::new(&settings(models, Policy::Eager, 64));
    let variables = [
        ("AWS_ENDPOINT_URL", store.endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", READER.0),
        ("AWS_SECRET_ACCESS_KEY", READER.1),
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
        ("AZURE_STORAGE_ENDPOINT", store.endpoint.as_str()),
        (
            "AZURE_STORAGE_SAS_TOKEN",
            "sv=2026&sig=word-of-the-signature",
        ),
        ("ALBACORE_LOG", "trace"),
    ];
    let (mut server, log) = start(&volume, &variables);
    for file in [FILES[0], FILES[1]] {
        store.put("m.ubj", &bytes(file));
        let expected = digest(file).to_string();
        until(&server, "the object is served", |state| {
            state["models"][0]["sha256"] == *expected
        });
    }
    let before = infer(&server, "m", &infer_body(3));
    assert_eq!(before.status, 200);
    store.delete("m.ubj");
    let state = until(&server, "the loss is reported", |state| {
        state["models"][0]["state"] == "failed"
    });
    let error = state["models"][0]["error"].as_str().unwrap();
    let words = "s3://models/m.ubj does not exist: the store answered 404 NoSuchKey";
    assert!(error.starts_with(words), "{error}");
    assert_eq!(infer(&server, "m", &infer_body(3)).body, before.body);
    store.put("m.ubj", &bytes(FILES[0]));
    until(&server, "the new object is served", |state| {
        state["models"][0]["state"] == "loaded"
            && state["models"][0]["sha256"] == *digest(FILES[0]).to_string()
    });
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("fetched from a store"), "{log}");
    until(&server, "the other model has failed", |state| {
        let error = state["models"][1]["error"].as_str().unwrap_or_default();
        error.starts_with("az://models/m.ubj ")
    });
    let metrics = server.get("/metrics").body;
    let shown = format!("{log}{state}{}", String::from_utf8_lossy(&metrics));
    for secret in [READER.0, READER.1, "word-of-the-signature"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert!(server.try_exit().is_none());
}

#[test]
fn a_model_of_the_cache_is_served_without_its_store() {
    let store = Seaweed::start();
    store.put("m.ubj", &bytes(FILES[0]));
    let pinned = ModelSettings {
        sha256: Some(digest(FILES[0])),
        ..in_store("m.ubj")
    };
    let volume = Volume::new(&settings(vec![pinned], Policy::Eager, 64));
    let cache = volume.path().join("cache");
    let endpoint = store.endpoint.clone();
    let variables = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", READER.0),
        ("AWS_SECRET_ACCESS_KEY", READER.1),
        ("ALBACORE_MODEL_CACHE", cache.to_str().unwrap()),
        ("ALBACORE_LOG", "info"),
    ];
    let is_loaded = |state: &serde_json::Value| state["models"][0]["state"] == "loaded";
    let (server, log) = start(&volume, &variables);
    until(&server, "the object is served", is_loaded);
    drop(server);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("fetched from a store"), "{text}");
    assert!(!text.contains("read from the cache"), "{text}");
    drop(store);
    let (server, log) = start(&volume, &variables);
    until(&server, "the file of the cache is served", is_loaded);
    assert_eq!(infer(&server, "m", &infer_body(3)).status, 200);
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains("read from the cache"), "{text}");
}
