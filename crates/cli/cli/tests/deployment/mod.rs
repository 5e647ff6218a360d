//! Deployments for tests, each in its own directory, and requests for them.
#![allow(dead_code, reason = "each test program uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use albacore_load::Request;

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)
        .unwrap()
        .to_path_buf()
}

/// A temporary directory for the files of one deployment.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        build_server();
        Self(tempfile::Builder::new().prefix(name).tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Replaces the deployment's file atomically and returns its path.
    pub(crate) fn write(&self, text: &str) -> PathBuf {
        let (new, file) = (self.path().join("new"), self.path().join("deployment.yaml"));
        std::fs::write(&new, text).unwrap();
        std::fs::rename(&new, &file).unwrap();
        file
    }

    /// examples/fraud.yaml with additional lines under `spec`.
    pub(crate) fn fraud(&self, more: &str) -> PathBuf {
        self.write(&format!("{}{more}", fraud_text()))
    }

    /// A user's own server with two workers of two threads each.
    pub(crate) fn custom_server(&self, command: &[&str], environment: &[(&str, &str)]) -> PathBuf {
        let environment: Vec<String> = environment
            .iter()
            .map(|(name, value)| format!("{{name: {name}, value: {value:?}}}"))
            .collect();
        let environment = environment.join(", ");
        self.write(&format!(
            "apiVersion: albacore.dev/v1beta1\nkind: InferenceDeployment\n\
             metadata: {{name: own}}\nspec:\n  workers: 2\n  threads: 2\n  template:\n    spec:\n\
             \x20     containers:\n      - name: server\n        command: {command:?}\n\
             \x20       env: [{environment}]\n",
        ))
    }

    /// Makes the directory and its files readable for all users.
    pub(crate) fn open_to_all(&self) {
        use std::os::unix::fs::PermissionsExt as _;
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.path(), all).unwrap();
    }

    /// gunicorn with tests/servers/preload_app.py and two workers of two threads each.
    pub(crate) fn gunicorn(&self, port: u16, more_args: &[&str]) -> PathBuf {
        self.gunicorn_with_import_delay(Duration::ZERO, port, more_args)
    }

    /// The same, with a master whose import of the application takes `longer`.
    pub(crate) fn gunicorn_with_import_delay(
        &self,
        longer: Duration,
        port: u16,
        more_args: &[&str],
    ) -> PathBuf {
        let servers = root().join("tests/servers");
        let mut args = vec![
            "-m".to_owned(),
            "gunicorn".to_owned(),
            "--config".to_owned(),
            servers.join("preload_app.py").display().to_string(),
            "--chdir".to_owned(),
            servers.display().to_string(),
            "--preload".to_owned(),
            "--workers".to_owned(),
            "2".to_owned(),
            "--bind".to_owned(),
            format!("127.0.0.1:{port}"),
            "--log-level".to_owned(),
            "critical".to_owned(),
            // By default all gunicorns of a user share one socket, but tests run concurrently.
            "--no-control-socket".to_owned(),
        ];
        args.extend(more_args.iter().map(|arg| (*arg).to_owned()));
        args.push("preload_app:app".to_owned());
        let python = python();
        let model = root().join("examples/fraud.ubj");
        self.write(&format!(
            "apiVersion: albacore.dev/v1beta1\nkind: InferenceDeployment\n\
             metadata: {{name: gunicorn}}\nspec:\n  workers: 2\n  threads: 2\n  mode: Scatter\n\
             \x20 template:\n    spec:\n      containers:\n      - name: server\n\
             \x20       command: [{python:?}]\n        args: {args:?}\n\
             \x20       env:\n        - {{name: MODEL, value: {model:?}}}\n\
             \x20       - {{name: IMPORT_SECONDS, value: \"{}\"}}\n",
            longer.as_secs_f64()
        ))
    }
}

/// examples/fraud.yaml with the absolute path of the model. A test that edits the file of a
/// running server edits this text: a file written in between would be an edit of its own.
pub(crate) fn fraud_text() -> String {
    let text = std::fs::read_to_string(root().join("examples/fraud.yaml")).unwrap();
    let model = root().join("examples/fraud.ubj");
    text.replace("file://./fraud.ubj", &format!("file://{}", model.display()))
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// One row for the fraud model, as JSON.
pub(crate) fn one_row(address: SocketAddr) -> Request {
    let data = vec!["0.5"; 61].join(",");
    let body = format!(
        r#"{{"inputs":[{{"name":"input","datatype":"FP32","shape":[1,61],"data":[{data}]}}]}}"#
    );
    let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
    Request {
        address,
        path: "/v2/models/fraud/infer".into(),
        headers,
        body: body.into(),
    }
}

/// Four rows of raw float32 for the server of [`Folder::gunicorn`].
pub(crate) fn raw_rows(port: u16) -> Request {
    let body: Vec<u8> = std::iter::repeat_n(0.5f32.to_le_bytes(), 4 * 61)
        .flatten()
        .collect();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    Request {
        address,
        path: "/".into(),
        headers: Vec::new(),
        body: body.into(),
    }
}

fn python() -> PathBuf {
    let output = Command::new(root().join("tests/python-env.sh"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Path::new(String::from_utf8(output.stdout).unwrap().trim()).join("bin/python3")
}

/// `albacore run` starts the `albacore-server` in the same directory; for the tests of this
/// package, cargo builds it only on request.
fn build_server() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        for name in ["albacore-server", "albacore-params"] {
            drop(albacore_testbed::product(name).unwrap());
        }
    });
}
