//! The registry of the distribution project, with passwords, and a faulty registry.

use std::path::Path;

use albacore_settings::Source;
use albacore_storage::{StorageErrorKind, sha256};
use serde_json::{Value, json};
use tempfile::TempDir;
use ureq::Agent;

use crate::faults::{respond, serve};
use crate::servers::{Server, free_ports, registry};
use crate::{Variables, fetch, model, refusal, storage, variables};

/// `reader` and the bcrypt hash of `word-of-the-reader`.
const PASSWORDS: &str = "reader:$2b$04$abcdefghijklmnopqrstuuRP50QK0d4.bq3QVV3j7h.KN/1/v.isi\n";

/// `reader:word-of-the-reader` in base64.
const LOGIN: &str = "cmVhZGVyOndvcmQtb2YtdGhlLXJlYWRlcg==";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

pub(crate) struct Registry {
    pub(crate) server: Server,
    pub(crate) host: String,
}

impl Registry {
    pub(crate) fn start() -> Self {
        let [port] = free_ports();
        let host = format!("127.0.0.1:{port}");
        let mut server = Server::start(registry(), |folder| {
            std::fs::write(folder.join("passwords"), PASSWORDS).unwrap();
            let settings = json!({
                "version": 0.1,
                "log": {"level": "error"},
                "storage": {"filesystem": {"rootdirectory": folder.join("data")}},
                "http": {"addr": host},
                "auth": {"htpasswd": {"realm": "models", "path": folder.join("passwords")}},
            });
            // JSON is YAML.
            std::fs::write(folder.join("settings"), settings.to_string()).unwrap();
            ["serve", "settings"].map(str::to_owned).to_vec()
        });
        let ready = format!("http://{host}/v2/");
        let status = || {
            agent()
                .get(&ready)
                .call()
                .map(|answer| answer.status().as_u16())
        };
        server.wait_until(|| status().is_ok_and(|status| status == 401));
        Self { server, host }
    }

    /// Pushes an artifact with one file; returns the digest of its manifest.
    pub(crate) fn push(&self, tag: &str, file: &[u8]) -> String {
        let (config, layer) = (self.upload(b"{}"), self.upload(file));
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "artifactType": "application/vnd.albacore.model",
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": config, "size": 2},
            "layers": [{
                "mediaType": "application/octet-stream", "digest": layer, "size": file.len(),
                "annotations": {"org.opencontainers.image.title": "fraud.ubj"},
            }],
        });
        let manifest = manifest.to_string();
        let url = format!("http://{}/v2/team/fraud/manifests/{tag}", self.host);
        let put = agent().put(url).content_type(MANIFEST);
        let put = put.header("Authorization", format!("Basic {LOGIN}"));
        assert_eq!(put.send(&manifest).unwrap().status(), 201);
        format!("sha256:{}", sha256(manifest.as_bytes()))
    }

    fn upload(&self, bytes: &[u8]) -> String {
        let digest = format!("sha256:{}", sha256(bytes));
        let url = format!("http://{}/v2/team/fraud/blobs/uploads/", self.host);
        let login = format!("Basic {LOGIN}");
        let begun = agent()
            .post(url)
            .header("Authorization", &login)
            .send_empty();
        let begun = begun.unwrap();
        let location = begun.headers()["Location"].to_str().unwrap();
        let put = agent().put(location).query("digest", &digest);
        let put = put.header("Authorization", login).send(bytes).unwrap();
        assert_eq!(put.status(), 201);
        digest
    }

    pub(crate) fn login(&self) -> (TempDir, Variables) {
        login(&self.host, LOGIN)
    }
}

fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .build()
        .into()
}

/// Writes a Docker configuration with one login to a folder, which must outlive the test.
fn login(host: &str, login: &str) -> (TempDir, Variables) {
    let folder = tempfile::tempdir().unwrap();
    let auths = json!({"auths": {host: {"auth": login}}});
    std::fs::write(folder.path().join("config.json"), auths.to_string()).unwrap();
    let variables = variables(&[("DOCKER_CONFIG", folder.path().to_str().unwrap())]);
    (folder, variables)
}

#[test]
fn an_artifact_is_fetched_by_tag_and_by_digest() {
    let registry = Registry::start();
    let (one, two) = (model(5), model(6));
    let digest = registry.push("v1", &one);
    let (_folder, variables) = registry.login();
    let base = format!("oci://{}/team/fraud", registry.host);
    let tagged = fetch(&format!("{base}:v1"), &variables).unwrap();
    assert_eq!(
        (tagged.bytes, tagged.version),
        (one.clone(), Some(digest.clone()))
    );
    // The tag is moved; a pinned digest is unchanged.
    let moved = registry.push("v1", &two);
    let tagged = fetch(&format!("{base}:v1"), &variables).unwrap();
    assert_eq!((tagged.bytes, tagged.version), (two, Some(moved)));
    let source = Source::Url(format!("{base}@{digest}"));
    let storage = storage(&variables);
    let pinned = storage
        .fetch(&source, Some(sha256(&one)), &|| true)
        .unwrap();
    assert_eq!((pinned.bytes, pinned.version), (one, Some(digest)));
    let error = storage
        .fetch(&source, Some(sha256(b"other")), &|| true)
        .unwrap_err();
    assert!(
        matches!(error.problem, StorageErrorKind::Digest { .. }),
        "{error}"
    );
}

#[test]
fn errors_of_a_registry_are_reported_with_a_remedy() {
    let registry = Registry::start();
    registry.push("v1", b"a model");
    let (_folder, right) = registry.login();
    let (_other, wrong) = login(&registry.host, "cmVhZGVyOndyb25n");
    let anonymous = variables(&[]);
    let existing = format!("oci://{}/team/fraud:v1", registry.host);
    for (url, variables, words) in [
        (
            existing.clone(),
            &anonymous,
            "cannot be accessed without credentials: the registry answered 401",
        ),
        (
            existing,
            &wrong,
            "cannot be accessed with these credentials: the registry answered 401",
        ),
        (
            format!("oci://{}/team/fraud:v2", registry.host),
            &right,
            "does not exist: the registry answered 404 MANIFEST_UNKNOWN",
        ),
        (
            format!("oci://{}/team/absent:v1", registry.host),
            &right,
            "does not exist: the registry answered 404",
        ),
    ] {
        let text = refusal(&url, variables);
        assert!(text.contains(words), "{url}: {text}");
        assert!(
            !text.contains(LOGIN) && !text.contains("cmVhZGVyOndyb25n"),
            "{text}"
        );
    }
    damage(
        registry.server.folder.path(),
        &sha256(b"a model").to_string(),
    );
    let text = refusal(&format!("oci://{}/team/fraud:v1", registry.host), &right);
    assert!(text.contains("it was replaced or damaged"), "{text}");
}

/// Changes the bytes of a layer in the registry's data folder.
fn damage(folder: &Path, digits: &str) {
    let blobs = folder.join("data/docker/registry/v2/blobs/sha256");
    let data = blobs.join(&digits[..2]).join(digits).join("data");
    std::fs::write(data, b"a fraud").unwrap();
}

/// Returns a manifest with one layer, `model(0)`.
fn manifest() -> String {
    let bytes = model(0);
    let digest = format!("sha256:{}", sha256(&bytes));
    let layer = json!({"mediaType": "any", "digest": digest, "size": bytes.len()});
    json!({ "layers": [layer] }).to_string()
}

#[test]
fn a_password_is_exchanged_for_a_token_and_an_interrupted_layer_is_resumed() {
    let (address, requests) = serve(|request, out| {
        let host = request.header("host").unwrap().to_owned();
        let authorization = request.header("authorization").unwrap_or_default();
        let bytes = model(0);
        if request.path.starts_with("/token") {
            let right = authorization == format!("basic {}", LOGIN.to_lowercase());
            let token: Value = if right { "a-token".into() } else { Value::Null };
            return respond(out, "200 OK", &json!({ "token": token }).to_string());
        }
        if authorization != "bearer a-token" {
            let challenge = format!(
                "401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"http://{host}/token\",\
                 service=\"models\",scope=\"repository:team/fraud:pull\""
            );
            return respond(out, &challenge, "");
        }
        if request.path.contains("/manifests/") {
            return respond(out, "200 OK", &manifest());
        }
        use std::io::Write as _;
        let (first, length) = (request.range_start(), bytes.len() - request.range_start());
        let status = if first == 0 {
            "200 OK"
        } else {
            "206 Partial Content"
        };
        write!(out, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n")?;
        let end = (first + 2_000_000).min(bytes.len());
        out.write_all(&bytes[first..end])
    });
    let host = address.to_string();
    let url = format!("oci://{host}/team/fraud:v1");
    let (_folder, variables) = login(&host, LOGIN);
    assert_eq!(fetch(&url, &variables).unwrap().bytes, model(0));
    {
        let requests = requests.lock().unwrap();
        let paths: Vec<&str> = requests
            .iter()
            .map(|request| request.path.as_str())
            .collect();
        let token = "/token?service=models&scope=repository";
        assert!(paths[1].starts_with(token), "{paths:?}");
        assert_eq!(requests.last().unwrap().range_start(), 2_000_000);
    }
    let (_other, wrong) = login(&host, "d3Jvbmc=");
    let text = refusal(&url, &wrong);
    assert!(
        text.contains("cannot be accessed because no token was issued"),
        "{text}"
    );
}

#[test]
fn a_manifest_with_another_digest_and_an_endless_one_are_rejected() {
    let (address, _) = serve(|_, out| respond(out, "200 OK", &manifest()));
    let other = sha256(b"other").to_string();
    let text = refusal(
        &format!("oci://{address}/team/fraud@sha256:{other}"),
        &vec![],
    );
    let found = sha256(manifest().as_bytes()).to_string();
    assert!(
        text.contains(&format!("has the SHA-256 {found}, not {other}")),
        "{text}"
    );
    let (address, _) = serve(|_, out| {
        use std::io::Write as _;
        write!(out, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
        loop {
            out.write_all(&[b' '; 1000])?;
        }
    });
    let text = refusal(&format!("oci://{address}/team/fraud:v1"), &vec![]);
    assert!(
        text.contains("has a manifest of more than 4194304 bytes"),
        "{text}"
    );
}

#[test]
fn a_docker_configuration_without_a_password_is_reported() {
    let (address, _) = serve(|_, out| {
        respond(
            out,
            "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"models\"",
            "",
        )
    });
    let folder = tempfile::tempdir().unwrap();
    let variables = variables(&[("DOCKER_CONFIG", folder.path().to_str().unwrap())]);
    for (config, words) in [
        ("no JSON", "config.json is not JSON"),
        (
            r#"{"credsStore": "desktop"}"#,
            "refers to a credential helper, which is not supported",
        ),
        (r#"{"auths": {"HOST": {}}}"#, "has no \"auth\" for it"),
        (
            r#"{"auths": {"elsewhere": {"auth": "x"}}}"#,
            "without credentials",
        ),
    ] {
        let config = config.replace("HOST", &address.to_string());
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let text = refusal(&format!("oci://{address}/team/fraud:v1"), &variables);
        assert!(text.contains(words), "{text}");
    }
}
