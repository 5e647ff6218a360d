//! A model in a real object store: loaded, replaced, lost.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use albacore_settings::{Model, Policy, Source};

use super::running::{Running, zoo};
use super::seaweed::{READER, Seaweed};
use super::volume::digest;
use super::{FILES, Volume, call, infer, model, settings, until};

/// A server whose environment has `variables`; its log goes to the file that is returned.
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

fn in_store(key: &str) -> Model {
    Model {
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
    let volume = Volume::new(&settings(vec![in_store("m.ubj")], Policy::Eager, 64));
    let variables = [
        ("AWS_ENDPOINT_URL", store.endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", READER.0),
        ("AWS_SECRET_ACCESS_KEY", READER.1),
        ("ALBACORE_LOG_FILTER", "trace"),
    ];
    let (mut server, log) = start(&volume, &variables);
    for file in [FILES[0], FILES[1]] {
        store.put("m.ubj", &bytes(file));
        let wanted = digest(file).to_string();
        until(&server, "the object is served", |state| {
            state["models"][0]["sha256"] == *wanted
        });
    }
    let before = infer(&server, "m", &call(3));
    assert_eq!(before.status, 200);
    store.delete("m.ubj");
    let state = until(&server, "the loss is reported", |state| {
        state["models"][0]["state"] == "failed"
    });
    let error = state["models"][0]["error"].as_str().unwrap();
    let words = "s3://models/m.ubj does not exist: the store answered 404 NoSuchKey";
    assert!(error.starts_with(words), "{error}");
    assert_eq!(infer(&server, "m", &call(3)).body, before.body);
    store.put("m.ubj", &bytes(FILES[0]));
    until(&server, "the new object is served", |state| {
        state["models"][0]["state"] == "loaded"
            && state["models"][0]["sha256"] == *digest(FILES[0]).to_string()
    });
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("fetched from a store"), "{log}");
    let metrics = server.get("/metrics").body;
    let shown = format!("{log}{state}{}", String::from_utf8_lossy(&metrics));
    assert!(
        !shown.contains(READER.1) && !shown.contains(READER.0),
        "{shown}"
    );
    assert!(server.try_exit().is_none());
}
