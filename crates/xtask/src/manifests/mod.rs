//! `xtask manifests` and `xtask charts`: the files that are generated from `charts/albacore`.
//!
//! In `manifests/`, `crds.yaml`, `install.yaml`, `observe.yaml`, `agent.yaml` and `monitoring/` are
//! the chart rendered with its default values, without fields that only Helm needs. The dashboard
//! is defined as a table in `dashboard.rs`; the chart and `manifests/` contain it as JSON.

mod argocd;
mod dashboard;
pub mod helm;
mod values;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::yaml;

const HEAD: &str =
    "# Written by `make manifests` from charts/albacore; a test compares. DO NOT EDIT.\n";

/// Comment at the top of `crds.yaml`.
const DEFINITIONS: &str = "\
# kubectl apply --server-side -f crds.yaml
# The definitions of InferenceDeployment and NodePlacement. Deleting them deletes every
# InferenceDeployment and its pods; install.yaml can be deleted without that, and is a separate file
# for this reason.
";

/// Comment at the top of `install.yaml`.
const INSTALL: &str = "\
# kubectl apply --server-side -f crds.yaml -f install.yaml
# Deleting the objects of this file removes the operator; the pods of InferenceDeployments keep
# running.
";

/// Comment at the top of `observe.yaml`.
const OBSERVE: &str = "\
# kubectl apply --server-side -f crds.yaml -f observe.yaml
# As install.yaml, but the node agent only observes: it plans, compares and reports, and writes no
# mask. It has no capability, is not root and does not share the host's pid namespace. Apply
# install.yaml over it to enable pinning.
";

/// Comment at the top of `agent.yaml`.
const AGENT: &str = "\
# kubectl apply --server-side -f agent.yaml
# The node agent of install.yaml alone, for those who have the definitions and the controller from
# the Operator Lifecycle Manager, which installs no DaemonSet.
";

/// Namespace of the plain install.
pub(crate) const NAMESPACE: &str = "albacore-system";

/// Labels and annotations that only Helm uses.
const OF_HELM: [&str; 2] = ["helm.sh/chart", "helm.sh/resource-policy"];

/// Path below `root` and text of every file generated from the chart, and of the dashboard.
///
/// # Errors
/// Helm is not available, or it rejects the chart.
pub fn generate(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let health = root.join(argocd::HEALTH);
    let health = std::fs::read_to_string(&health).with_context(|| health.display().to_string())?;
    let dashboard = dashboard::text()?;
    let seccomp = root.join(helm::CHART).join("files/seccomp/agent.json");
    let seccomp =
        std::fs::read_to_string(&seccomp).with_context(|| seccomp.display().to_string())?;
    let values = root.join(values::VALUES);
    let values = std::fs::read_to_string(&values).with_context(|| values.display().to_string())?;
    let file = |path: &str, text: String| (PathBuf::from(path), text);
    Ok(vec![
        file("charts/albacore/files/dashboard.json", dashboard.clone()),
        file(values::README, values::readme(&values)?),
        file("manifests/crds.yaml", definitions(root)?),
        file("manifests/install.yaml", install(root, INSTALL, &[])?),
        file(
            "manifests/observe.yaml",
            install(root, OBSERVE, &["--set", "agent.enforcement=Observe"])?,
        ),
        file("manifests/agent.yaml", agent(root)?),
        file("manifests/seccomp/agent.json", seccomp),
        file("manifests/monitoring/dashboard.json", dashboard),
        file("manifests/monitoring/rules.yaml", rules(root)?),
        file(argocd::CONFIG, argocd::config(&health)),
    ])
}

/// Writes the files below `root`.
///
/// # Errors
/// Same as [`generate`], or a file cannot be written.
pub fn write(root: &Path) -> Result<()> {
    for (path, text) in generate(root)? {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(root))?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

/// Fails if a committed file differs from the generated one.
///
/// # Errors
/// Same as [`generate`], or a file differs: the error contains its path.
pub fn check(root: &Path) -> Result<()> {
    for (path, text) in generate(root)? {
        let committed = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        if committed != text {
            bail!(
                "{} does not match the chart: run `make manifests`",
                path.display()
            );
        }
    }
    Ok(())
}

/// `xtask charts`: lints the chart and packages it into `target/charts`.
///
/// # Errors
/// A committed file is outdated, or Helm's lint fails.
pub fn package(root: &Path) -> Result<()> {
    check(root)?;
    let chart = root.join(helm::CHART);
    let chart = chart.to_string_lossy();
    let folder = root.join("target/charts");
    let folder = folder.to_string_lossy();
    print!("{}", helm::run(&["lint", "--strict", &chart])?);
    print!(
        "{}",
        helm::run(&["package", &chart, "--destination", &folder])?
    );
    Ok(())
}

/// Whether an object is a CustomResourceDefinition.
fn is_definition(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
}

fn definitions(root: &Path) -> Result<String> {
    let rendered = helm::template(root, NAMESPACE, &[])?;
    Ok(print(
        DEFINITIONS,
        rendered.into_iter().filter(is_definition),
    ))
}

/// The objects rendered from the chart, except CustomResourceDefinitions.
pub(crate) fn rendered(root: &Path, values: &[&str]) -> Result<Vec<Value>> {
    let mut objects = helm::template(root, NAMESPACE, values)?;
    // Helm hooks are run only by Helm.
    let is_hook = |object: &Value| object["metadata"]["annotations"]["helm.sh/hook"].is_string();
    objects.retain(|object| !is_definition(object) && !is_hook(object));
    Ok(objects)
}

/// Whether an object belongs to the node agent.
pub(crate) fn is_agents(object: &Value) -> bool {
    object["metadata"]["labels"]["app.kubernetes.io/component"] == "agent"
}

fn agent(root: &Path) -> Result<String> {
    let rendered = rendered(root, &[])?;
    Ok(print(AGENT, rendered.into_iter().filter(is_agents)))
}

fn install(root: &Path, about: &str, values: &[&str]) -> Result<String> {
    let rest = rendered(root, values)?;
    let namespace = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": NAMESPACE,
            "labels": {
                "app.kubernetes.io/part-of": "albacore",
                "pod-security.kubernetes.io/enforce": "restricted",
            },
        },
    });
    Ok(print(about, [namespace].into_iter().chain(rest)))
}

fn rules(root: &Path) -> Result<String> {
    let rendered = helm::template(
        root,
        NAMESPACE,
        &["--set", "monitoring.prometheusRule.enabled=true"],
    )?;
    let rules = rendered
        .into_iter()
        .filter(|object| object["kind"] == "PrometheusRule");
    Ok(print("", rules))
}

/// Formats the objects as one file, without fields that only Helm needs.
fn print(about: &str, objects: impl Iterator<Item = Value>) -> String {
    let mut text = format!("{HEAD}{about}");
    for (index, mut object) in objects.enumerate() {
        strip(&mut object, "kubectl");
        if index > 0 {
            text.push_str("---\n");
        }
        text.push_str(&yaml::document(&object));
    }
    text
}

/// Removes fields that only Helm needs; `manager` becomes the manager of the object.
pub(crate) fn strip(object: &mut Value, manager: &str) {
    let metadata = &mut object["metadata"];
    for field in ["labels", "annotations"] {
        if let Some(entries) = metadata.get_mut(field).and_then(Value::as_object_mut) {
            entries.retain(|key, _| !OF_HELM.contains(&key.as_str()));
            if let Some(by) = entries.get_mut("app.kubernetes.io/managed-by") {
                *by = manager.into();
            }
            if entries.is_empty()
                && let Some(metadata) = metadata.as_object_mut()
            {
                metadata.shift_remove(field);
            }
        }
    }
}
