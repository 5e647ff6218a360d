//! A user's own server in a pod: gunicorn and XGBoost with the local Python, in the configuration
//! of users of the release.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use albacore_testbed::Image;

use crate::rig::{Rig, root};

const REFERENCE: &str = "test.albacore.dev/gunicorn:1";

/// The deployment; PYTHONHOME and PYTHONPATH are the locations of Python and its packages in the
/// image.
fn deployment(home: &Path, packages: &Path) -> String {
    format!(
        "apiVersion: albacore.dev/v1beta1
kind: InferenceDeployment
metadata: {{name: gunicorn}}
spec:
  workers: 2
  threads: 2
  mode: Scatter
  template:
    spec:
      containers:
      - name: server
        image: {REFERENCE}
        imagePullPolicy: Never
        args: [-m, gunicorn, --chdir, /examples, --workers, \"2\", --bind, \"0.0.0.0:8000\", \"gunicorn_app:app\"]
        ports: [{{containerPort: 8000}}]
        env:
        - {{name: MODEL, value: /examples/fraud.ubj}}
        - {{name: PYTHONHOME, value: {}}}
        - {{name: PYTHONPATH, value: {}}}
",
        home.display(),
        packages.display(),
    )
}

/// The same server in a Deployment independent of Albacore.
fn plain_deployment(home: &Path, packages: &Path) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 1
  strategy: {{type: Recreate}}
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers:
      - name: app
        image: {REFERENCE}
        imagePullPolicy: Never
        args: [-m, gunicorn, --chdir, /examples, --workers, \"2\", --bind, \"0.0.0.0:8000\", \"gunicorn_app:app\"]
        env:
        - {{name: MODEL, value: /examples/fraud.ubj}}
        - {{name: OMP_NUM_THREADS, value: \"2\"}}
        - {{name: PYTHONHOME, value: {}}}
        - {{name: PYTHONPATH, value: {}}}
        volumeMounts: [{{name: tmp, mountPath: /tmp}}]
      volumes: [{{name: tmp, emptyDir: {{}}}}]
",
        home.display(),
        packages.display(),
    )
}

/// Imports the image on the node and deploys it; waits until it is ready and placed.
pub(crate) fn deploy(rig: &Rig) {
    let (home, packages) = import_image(rig);
    rig.apply("gunicorn", &deployment(&home, &packages));
    for condition in ["Ready", "Placed"] {
        let condition = format!("--for=condition={condition}");
        rig.kubectl(&["wait", "infd/gunicorn", &condition, "--timeout=180s"]);
    }
}

/// Deploys it without Albacore, replacing the previous deployment; waits until its pod is ready.
pub(crate) fn deploy_plain(rig: &Rig) {
    let (home, packages) = import_image(rig);
    rig.apply("web", &plain_deployment(&home, &packages));
    rig.kubectl(&["rollout", "status", "deployment/web", "--timeout=180s"]);
}

/// Imports the image on the node; returns the locations of Python and its packages in it.
fn import_image(rig: &Rig) -> (PathBuf, PathBuf) {
    let folder = Command::new(root().join("tests/python-env.sh"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let folder = PathBuf::from(String::from_utf8(folder.stdout).unwrap().trim());
    let program = folder.join("bin/python3").canonicalize().unwrap();
    let home = program.ancestors().nth(2).unwrap();
    let version = program.file_name().unwrap();
    let packages = folder.join("lib").join(version).join("site-packages");
    let mut files = Vec::new();
    add(&mut files, &home.join("lib").join(version));
    add(&mut files, &packages);
    for name in ["gunicorn_app.py", "fraud.ubj"] {
        files.push((
            format!("/examples/{name}"),
            root().join("examples").join(name),
        ));
    }
    let archive = rig.folder().join("gunicorn.tar");
    let image = Image {
        reference: REFERENCE.into(),
        program: program.clone(),
        user: 65_532,
        files,
        ..Image::default()
    };
    image.write(&archive).unwrap();
    rig.node.import(&archive).unwrap();
    (home.to_owned(), packages)
}

/// Adds a directory to the image at the same path as on this machine, without files that only
/// Python's own tests and installer need, and without desktop libraries.
fn add(files: &mut Vec<(String, PathBuf)>, folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        let is_wanted = ![
            "site-packages",
            "test",
            "tests",
            "pip",
            "setuptools",
            "tkinter",
            "idlelib",
        ]
        .contains(&name.as_str())
            && !["_tkinter", "nis", "_ctypes_test", "libpython"]
                .iter()
                .any(|n| name.starts_with(n));
        if !is_wanted || name.ends_with(".a") {
            continue;
        }
        if path.is_dir() {
            add(files, &path);
        } else {
            files.push((path.to_str().unwrap().to_owned(), path));
        }
    }
}
