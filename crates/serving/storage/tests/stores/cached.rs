//! A cache shared by several servers: repeated downloads, cache hits, and corrupt files.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, SystemTime};

use albacore_settings::Source;
use albacore_storage::{
    CacheUse, Estimator, Fetched, PythonModel, Storage, StorageErrorKind, sha256,
};
use tempfile::TempDir;

use crate::registry::Registry;
use crate::s3::{reader, seaweed};
use crate::{BYTES_MAX, Variables, model, storage, variables};

/// Cache size in bytes: two models.
const ROOM: u64 = 7_000_000;

struct Node(TempDir);

impl Node {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Creates a server on the node.
    fn server(&self, variables: &Variables) -> Storage {
        storage(variables).with_cache(self.folder(), ROOM).unwrap()
    }

    fn fetch(&self, url: &str, variables: &Variables) -> Fetched {
        let source = Source::Url(url.to_owned());
        let server = self.server(variables);
        server.fetch(&source, None, &|| true).unwrap()
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        self.folder().join(format!("sha256-{}", sha256(bytes)))
    }
}

#[test]
fn an_object_is_downloaded_once_per_node_and_version() {
    let store = seaweed();
    let variables = reader(&store.endpoint);
    let (node, url) = (Node::new(), "s3://models/shared.ubj");
    for (seed, uses) in [
        (20, [CacheUse::Written, CacheUse::Read, CacheUse::Read]),
        (21, [CacheUse::Written, CacheUse::Read, CacheUse::Read]),
    ] {
        store.put("shared.ubj", &model(seed));
        let fetched = [(); 3].map(|()| node.fetch(url, &variables));
        for one in &fetched {
            assert_eq!(one.sha256, sha256(&model(seed)));
            assert_eq!(one.version, fetched[0].version);
        }
        assert_eq!(fetched.map(|one| one.cache), uses);
    }
    // A known version is not read again.
    let known = node.fetch(url, &variables).version;
    let source = Source::Url(url.to_owned());
    let server = node.server(&variables);
    let again = server.fetch_if_changed(&source, known.as_deref(), None, &|| true);
    assert!(again.unwrap().is_none());
    store.delete("shared.ubj");
    let error = server.fetch(&source, None, &|| true).unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
}

#[test]
fn servers_that_start_together_download_an_object_once() {
    let store = seaweed();
    store.put("together.ubj", &model(22));
    let variables = reader(&store.endpoint);
    let (node, barrier) = (Node::new(), Barrier::new(4));
    let uses = std::thread::scope(|scope| {
        let starts = [(); 4].map(|()| {
            scope.spawn(|| {
                barrier.wait();
                node.fetch("s3://models/together.ubj", &variables)
            })
        });
        starts.map(|start| start.join().unwrap().cache)
    });
    let sent = uses.iter().filter(|one| **one == CacheUse::Written).count();
    let read = uses.iter().filter(|one| **one == CacheUse::Read).count();
    assert_eq!((sent, read), (1, 3), "{uses:?}");
}

#[test]
fn a_cached_object_is_not_returned_without_read_access() {
    let store = seaweed();
    store.put("secret.ubj", &model(23));
    let node = Node::new();
    node.fetch("s3://models/secret.ubj", &reader(&store.endpoint));
    let other = variables(&[
        ("AWS_ENDPOINT_URL", store.endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", "AKIDOTHER"),
        ("AWS_SECRET_ACCESS_KEY", "word-of-the-other"),
    ]);
    let source = Source::Url("s3://models/secret.ubj".to_owned());
    let error = node.server(&other).fetch(&source, None, &|| true);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("cannot be accessed"), "{error}");
}

#[test]
fn corrupt_cached_files_are_downloaded_again() {
    let store = seaweed();
    let (variables, bytes) = (reader(&store.endpoint), model(24));
    store.put("damaged.ubj", &bytes);
    let (node, url) = (Node::new(), "s3://models/damaged.ubj");
    node.fetch(url, &variables);
    let file = node.file(&bytes);
    let cached_file = std::fs::File::options().write(true).open(&file).unwrap();
    let damages: [&dyn Fn(); 3] = [
        &|| cached_file.write_all_at(b"fraud", 1000).unwrap(),
        &|| {
            std::fs::File::options()
                .write(true)
                .open(&file)
                .unwrap()
                .set_len(10)
                .unwrap()
        },
        &|| {
            std::fs::remove_file(&file).unwrap();
            std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        },
    ];
    for damage in damages {
        damage();
        let fetched = node.fetch(url, &variables);
        assert_eq!(
            (fetched.sha256, fetched.cache),
            (sha256(&bytes), CacheUse::Written)
        );
        assert_eq!(node.fetch(url, &variables).cache, CacheUse::Read);
    }
    // Version records that contain no valid ETag.
    let mut entries = std::fs::read_dir(node.folder()).unwrap().flatten();
    let origin = entries.find(|entry| entry.file_name().to_string_lossy().starts_with("origin-"));
    let origin = origin.unwrap().path();
    for text in [
        "",
        "word\r\nHost: other",
        &format!("{} a\r\nb", sha256(&bytes)),
        &"x".repeat(9000),
    ] {
        std::fs::write(&origin, text).unwrap();
        assert_eq!(
            node.fetch(url, &variables).cache,
            CacheUse::Written,
            "{text}"
        );
    }
}

#[test]
fn the_least_recently_used_file_is_evicted() {
    let store = seaweed();
    let variables = reader(&store.endpoint);
    let node = Node::new();
    let url = |seed: u8| format!("s3://models/room-{seed}.ubj");
    let hour = Duration::from_secs(3600);
    for seed in [30, 31] {
        store.put(&format!("room-{seed}.ubj"), &model(seed));
        node.fetch(&url(seed), &variables);
        let file = std::fs::File::open(node.file(&model(seed))).unwrap();
        file.set_modified(SystemTime::now() - hour).unwrap();
    }
    assert_eq!(node.fetch(&url(30), &variables).cache, CacheUse::Read);
    // Partial files of a killed writer and of an active one.
    let partial = |name: &str| node.folder().join(format!("partial-{name}"));
    for name in ["killed", "writes"] {
        std::fs::write(partial(name), b"half").unwrap();
    }
    let killed = std::fs::File::open(partial("killed")).unwrap();
    killed.set_modified(SystemTime::now() - hour).unwrap();
    store.put("room-32.ubj", &model(32));
    assert_eq!(node.fetch(&url(32), &variables).cache, CacheUse::Written);
    let is_cached = [30, 31, 32].map(|seed| node.file(&model(seed)).exists());
    assert_eq!(is_cached, [true, false, true]);
    let exist = ["killed", "writes"].map(|name| partial(name).exists());
    assert_eq!(exist, [false, true]);
    // A file larger than the cache is served, too.
    let small = storage(&variables).with_cache(node.folder(), 1000).unwrap();
    let source = Source::Url(url(31));
    let fetched = small.fetch(&source, None, &|| true).unwrap();
    assert_eq!(fetched.sha256, sha256(&model(31)));
    let words = "its 3000000 bytes are more than the 1000 of --model-cache-bytes-max";
    assert_eq!(fetched.cache, CacheUse::Failed(words.to_owned()));
}

#[test]
fn a_cached_digest_is_served_without_its_registry() {
    let registry = Registry::start();
    let (node, bytes) = (Node::new(), model(40));
    let digest = registry.push("v1", &bytes);
    let (_folder, variables) = registry.login();
    let base = format!("oci://{}/team/fraud", registry.host);
    assert_eq!(
        node.fetch(&format!("{base}:v1"), &variables).cache,
        CacheUse::Written
    );
    // The tag must be resolved; its file is cached.
    assert_eq!(
        node.fetch(&format!("{base}:v1"), &variables).cache,
        CacheUse::Read
    );
    drop(registry);
    let pinned = node.fetch(&format!("{base}@{digest}"), &variables);
    assert_eq!(
        (pinned.cache, pinned.version),
        (CacheUse::Read, Some(digest))
    );
    let server = node.server(&variables);
    let tagged = Source::Url(format!("{base}:v1"));
    let error = server.fetch(&tagged, None, &|| true).unwrap_err();
    assert!(
        matches!(error.problem, StorageErrorKind::Network(_)),
        "{error}"
    );
    let found = server.fetch(&tagged, Some(sha256(&bytes)), &|| true);
    assert_eq!(found.unwrap().cache, CacheUse::Read);
}

#[test]
fn waiting_for_a_lock_ends_on_cancellation() {
    let node = Node::new();
    let server = node.server(&variables(&[]));
    // All locks are held.
    let held: Vec<std::fs::File> = (0..16)
        .map(|number| {
            let file = std::fs::File::create(node.folder().join(format!("lock-{number}")));
            let file = file.unwrap();
            file.lock().unwrap();
            file
        })
        .collect();
    let source = Source::Url("s3://models/any.ubj".to_owned());
    let error = server.fetch(&source, None, &|| false).unwrap_err();
    assert!(
        matches!(error.problem, StorageErrorKind::Cancelled),
        "{error}"
    );
    drop(held);
}

#[test]
fn a_folder_that_cannot_be_written_is_rejected_by_name() {
    let node = Node::new();
    let file = node.folder().join("file");
    std::fs::write(&file, b"").unwrap();
    let storage = Storage::new(BYTES_MAX, None).unwrap();
    let error = storage.with_cache(&file, ROOM).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{} cannot be used for a cache: ", file.display())),
        "{error}"
    );
    assert!(error.contains("--model-cache needs a folder"), "{error}");
}

#[test]
fn a_changed_mlmodel_of_an_unchanged_object_is_detected() {
    let store = seaweed();
    let variables = reader(&store.endpoint);
    let (node, url) = (Node::new(), "s3://models/described/");
    let source = Source::Url(url.to_owned());
    let digest = sha256(&model(30));
    store.put("described/model.json", &model(30));
    for function in ["predict", "predict_proba"] {
        let mlmodel = format!(
            "flavors: {{sklearn: {{pickled_model: model.pkl}}, python_function: {{predict_fn: {function}}}}}"
        );
        let plain = storage(&variables);
        let before = plain.fetch(&source, None, &|| true).ok();
        store.put("described/MLmodel", mlmodel.as_bytes());
        let expected = Some(PythonModel {
            estimator: Estimator::Sklearn,
            is_predict_proba: function == "predict_proba",
        });
        let known = before.and_then(|fetched| fetched.version);
        let now = plain.fetch_if_changed(&source, known.as_deref(), None, &|| true);
        let now = now.unwrap().unwrap();
        assert_eq!((now.python, now.sha256), (expected, digest), "{function}");
        let again = plain.fetch_if_changed(&source, now.version.as_deref(), None, &|| true);
        assert!(again.unwrap().is_none(), "{function}");
        for sha256 in [None, Some(digest), None] {
            let fetched = node.server(&variables).fetch(&source, sha256, &|| true);
            assert_eq!(fetched.unwrap().python, expected, "{function}");
        }
    }
    let fetched = node.fetch(url, &variables);
    assert_eq!(fetched.cache, CacheUse::Read);
}
