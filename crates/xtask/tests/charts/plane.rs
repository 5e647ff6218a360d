//! One control plane for all tests of this program, which use their own namespaces and releases.

use std::io::Write as _;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

use albacore_testbed::{ControlPlane, Options};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::root;

static PLANE: LazyLock<ControlPlane> = LazyLock::new(|| {
    let options = Options {
        controller_manager: true,
        ..Options::default()
    };
    let mut plane = ControlPlane::start(&options).unwrap();
    plane.serve_crds(&root().join("crds")).unwrap();
    plane
});

pub(crate) fn plane() -> &'static ControlPlane {
    &PLANE
}

/// Runs one of the cluster's programs; returns its standard output, or its error output on failure.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = plane().run(program, arguments).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{}{}", text(&output.stdout), text(&output.stderr)))
    }
}

/// Runs kubectl as an administrator and asserts success.
pub(crate) fn kubectl(arguments: &[&str]) -> String {
    run("kubectl", arguments).unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
}

/// Runs kubectl as another user.
pub(crate) fn kubectl_as(config: &Path, arguments: &[&str]) -> Result<String, String> {
    let config = format!("--kubeconfig={}", config.display());
    run("kubectl", &[&[config.as_str()], arguments].concat())
}

/// A file with this text for kubectl.
pub(crate) fn file(text: &str) -> NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// The objects as one file; JSON is valid YAML.
pub(crate) fn file_of(objects: &[Value]) -> NamedTempFile {
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    file(&texts.join("\n---\n"))
}

/// Applies a file as an administrator. Serialized, because tests that set up the same objects would
/// conflict.
pub(crate) fn apply(file: &NamedTempFile) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    kubectl(&["apply", "-f", file.path().to_str().unwrap()]);
}

/// Creates a namespace if it does not exist.
pub(crate) fn namespace(name: &str) {
    apply(&file(&format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n"
    )));
}

/// Waits until `is_so`; `what` is used in the error message.
pub(crate) fn wait(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("still waiting for {what} after a minute and more");
}
