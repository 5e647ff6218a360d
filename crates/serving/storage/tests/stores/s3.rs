//! Objects of S3, with SeaweedFS, which checks signatures and permissions.

use std::sync::{Arc, Mutex, Weak};

use albacore_settings::Source;
use albacore_storage::{StorageErrorKind, is_versioned, sha256};

use crate::seaweed::{READER, Seaweed};
use crate::{Variables, model, refusal, storage, variables};

/// Returns a server that is shared by concurrent tests and stopped after the last of them.
pub(crate) fn seaweed() -> Arc<Seaweed> {
    static RUNNING: Mutex<Weak<Seaweed>> = Mutex::new(Weak::new());
    let mut running = RUNNING.lock().unwrap();
    running.upgrade().unwrap_or_else(|| {
        let started = Arc::new(Seaweed::start());
        *running = Arc::downgrade(&started);
        started
    })
}

pub(crate) fn reader(endpoint: &str) -> Variables {
    let (id, word) = READER;
    variables(&[
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", id),
        ("AWS_SECRET_ACCESS_KEY", word),
    ])
}

#[test]
fn an_object_is_fetched_with_credentials_and_checked() {
    let seaweed = seaweed();
    let bytes = model(1);
    seaweed.put("v1/fraud%20model.ubj", &bytes);
    let source = Source::Url("s3://models/v1/fraud model.ubj".to_owned());
    assert!(is_versioned(&source));
    let storage = storage(&reader(&seaweed.endpoint));
    let fetched = storage
        .fetch(&source, Some(sha256(&bytes)), &|| true)
        .unwrap();
    assert_eq!(
        (fetched.bytes.len(), fetched.sha256),
        (bytes.len(), sha256(&bytes))
    );
    let other = sha256(b"other");
    let error = storage.fetch(&source, Some(other), &|| true).unwrap_err();
    assert!(
        matches!(error.problem, StorageErrorKind::Digest { .. }),
        "{error}"
    );
}

#[test]
fn only_a_new_version_is_downloaded() {
    let seaweed = seaweed();
    seaweed.put("changes.ubj", &model(2));
    let source = Source::Url("s3://models/changes.ubj".to_owned());
    let storage = storage(&reader(&seaweed.endpoint));
    let first = storage.fetch(&source, None, &|| true).unwrap();
    let known = first.version.as_deref();
    assert!(known.is_some_and(|known| !known.is_empty()));
    let unless = || {
        storage
            .fetch_if_changed(&source, known, None, &|| true)
            .unwrap()
    };
    assert!(unless().is_none());
    seaweed.put("changes.ubj", &model(3));
    let second = unless().unwrap();
    assert_eq!(second.sha256, sha256(&model(3)));
    assert_ne!(second.version, first.version);
}

#[test]
fn errors_of_the_store_are_reported_with_a_remedy() {
    let seaweed = seaweed();
    seaweed.put("there.ubj", b"bytes");
    let reader = reader(&seaweed.endpoint);
    let with = |name: &str, value: &str| {
        let mut all = reader.clone();
        all.retain(|(other, _)| other != name);
        all.push((name.to_owned(), value.to_owned()));
        all
    };
    let other = {
        let mut all = with("AWS_ACCESS_KEY_ID", "AKIDOTHER");
        all.retain(|(name, _)| name != "AWS_SECRET_ACCESS_KEY");
        all.extend(variables(&[("AWS_SECRET_ACCESS_KEY", "word-of-the-other")]));
        all
    };
    for (url, variables, words) in [
        (
            "s3://models/absent.ubj",
            &reader,
            "does not exist: the store answered 404 NoSuchKey",
        ),
        (
            "s3://absent/there.ubj",
            &reader,
            "the store answered 403 AccessDenied",
        ),
        (
            "s3://models/there.ubj",
            &other,
            "cannot be accessed with these credentials",
        ),
        (
            "s3://models/there.ubj",
            &with("AWS_SECRET_ACCESS_KEY", "wrong-word"),
            "403 SignatureDoesNotMatch: correct AWS_ACCESS_KEY_ID",
        ),
        (
            "s3://models/there.ubj",
            &with("AWS_ACCESS_KEY_ID", "AKIDNOBODY"),
            "403 InvalidAccessKeyId: correct AWS_ACCESS_KEY_ID",
        ),
    ] {
        let text = refusal(url, variables);
        assert!(text.contains(words), "{url}: {text}");
    }
}

#[test]
fn the_model_of_a_folder_is_found_as_in_local_folders() {
    let seaweed = seaweed();
    let reader = reader(&seaweed.endpoint);
    let mlmodel = b"flavors: {xgboost: {data: data/model.xgb}}";
    for (key, bytes) in [
        ("folders/one/model.ubj", &model(7)[..]),
        ("folders/one/README.md", b"text"),
        ("folders/one/deeper/other.ubj", b"not in it"),
        ("folders/mlflow/MLmodel", mlmodel),
        ("folders/mlflow/data/model.xgb", &model(8)),
        ("folders/mlflow/other.json", b"{}"),
        ("folders/two/a.ubj", b"a"),
        ("folders/two/b.ubj", b"b"),
        ("folders/bad/MLmodel", b"flavors: {pytorch: {}}"),
        (
            "folders/out/MLmodel",
            b"flavors: {xgboost: {data: ../one/model.ubj}}",
        ),
    ] {
        seaweed.put(key, bytes);
    }
    for (url, seed) in [
        ("s3://models/folders/one/", 7),
        ("s3://models/folders/mlflow/", 8),
    ] {
        let storage = storage(&reader);
        let source = Source::Url(url.to_owned());
        let fetched = storage.fetch(&source, None, &|| true).unwrap();
        assert_eq!(fetched.sha256, sha256(&model(seed)), "{url}");
        let known = fetched.version.as_deref();
        assert!(known.is_some());
        let again = storage.fetch_if_changed(&source, known, None, &|| true);
        assert!(again.unwrap().is_none(), "{url}");
    }
    for (folder, words) in [
        ("two", "has several model files, a.ubj and b.ubj among them"),
        ("absent", "has no model file"),
        (
            "bad",
            "has a file MLmodel that has the flavors [\"pytorch\"]",
        ),
        ("out", "which is outside of the folder"),
    ] {
        let text = refusal(&format!("s3://models/folders/{folder}/"), &reader);
        assert!(text.contains(words), "{text}");
    }
    let other = variables(&[
        ("AWS_ENDPOINT_URL", seaweed.endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "AKIDOTHER"),
        ("AWS_SECRET_ACCESS_KEY", "word-of-the-other"),
    ]);
    let text = refusal("s3://models/folders/one/", &other);
    assert!(
        text.contains("cannot be accessed with these credentials"),
        "{text}"
    );
}
