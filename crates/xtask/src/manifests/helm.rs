//! Helm, as the tests' cluster programs bring it: of one version, and without a kubeconfig of the
//! environment.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// The chart, below the root of the repository.
pub const CHART: &str = "charts/albacore";

/// The oldest Kubernetes that the chart takes; what it renders does not depend on it.
const KUBERNETES: &str = "1.30.0";

/// Runs helm; its output whether it succeeds or not.
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

/// Runs helm; what it prints.
///
/// # Errors
/// As [`output`], or helm fails: the error is what it said.
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

/// The arguments of `helm template` for a release `albacore` in `namespace`, before `more`.
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

/// The objects that the chart makes of its values and of `more` arguments.
///
/// # Errors
/// As [`run`], or what is rendered is no YAML.
pub fn template(root: &Path, namespace: &str, more: &[&str]) -> Result<Vec<Value>> {
    let chart = root.join(CHART);
    let chart = chart.to_string_lossy();
    objects(&run(&template_arguments(&chart, namespace, more))?)
}

/// The objects of a text with several YAML documents; a document without content is none.
///
/// # Errors
/// A document is no YAML.
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
