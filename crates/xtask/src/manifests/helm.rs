//! Runs the version of Helm of the tests' cluster programs, without the kubeconfig of the
//! environment.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Path of the chart in the repository.
pub const CHART: &str = "charts/albacore";

/// The oldest Kubernetes version that the chart accepts; the output does not depend on it.
const KUBERNETES: &str = "1.30.0";

/// Runs helm; returns its output, even if it fails.
///
/// # Errors
/// Helm cannot be built or started.
pub fn output(arguments: &[&str]) -> Result<Output> {
    let helm = albacore_testbed::programs()?.join("helm");
    let nowhere = std::env::temp_dir();
    Command::new(&helm)
        .args(arguments)
        .env("KUBECONFIG", "/dev/null")
        .env("HELM_CONFIG_HOME", &nowhere)
        .env("HELM_CACHE_HOME", &nowhere)
        .env("HELM_DATA_HOME", &nowhere)
        .stdin(Stdio::null())
        .output()
        .with_context(|| helm.display().to_string())
}

/// Runs helm and returns its standard output.
///
/// # Errors
/// Same as [`output`], or helm fails: the error contains its output.
pub fn run(arguments: &[&str]) -> Result<String> {
    let output = output(arguments)?;
    if !output.status.success() {
        bail!(
            "helm {}: {}{}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Arguments of `helm template` for a release `albacore` in `namespace`, followed by `more`.
pub fn template_arguments<'a>(
    chart: &'a str,
    namespace: &'a str,
    more: &[&'a str],
) -> Vec<&'a str> {
    let mut arguments = vec![
        "template",
        "albacore",
        chart,
        "--namespace",
        namespace,
        "--kube-version",
        KUBERNETES,
    ];
    arguments.extend_from_slice(more);
    arguments
}

/// The objects rendered from the chart with its default values and the arguments `more`.
///
/// # Errors
/// Same as [`run`], or the output is not valid YAML.
pub fn template(root: &Path, namespace: &str, more: &[&str]) -> Result<Vec<Value>> {
    let chart = root.join(CHART);
    let chart = chart.to_string_lossy();
    objects(&run(&template_arguments(&chart, namespace, more))?)
}

/// Parses the objects in a text with several YAML documents; empty documents are skipped.
///
/// # Errors
/// A document is not valid YAML.
pub fn objects(text: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in format!("\n{text}").split("\n---") {
        let is_content = |line: &str| !line.trim().is_empty() && !line.starts_with('#');
        if document.lines().any(is_content) {
            let object = serde_saphyr::from_str(document).with_context(|| document.to_owned())?;
            objects.push(object);
        }
    }
    Ok(objects)
}
