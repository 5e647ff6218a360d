//! Generates `charts/albacore/README.md`: the chart's values as a table, from `values.yaml` and its
//! comments that begin with `# --`.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Path of the file with the table.
pub(super) const README: &str = "charts/albacore/README.md";

/// Path of the values.
pub(super) const VALUES: &str = "charts/albacore/values.yaml";

const HEAD: &str = "\
<!-- Written by `make manifests` from values.yaml; a test compares. DO NOT EDIT. -->
# Albacore chart

Controller, node agent and custom resource definitions of Albacore. Needs Kubernetes 1.30 or newer.

    helm install albacore charts/albacore --namespace albacore-system --create-namespace
    helm test albacore --namespace albacore-system

What `helm uninstall` keeps, how to install over existing definitions, and what an upgrade restarts: `docs/operate/install.md`
and `docs/operate/upgrade.md` of the repository. `values.schema.json` refuses names and values that are not in this table.

| Value | Default | |
|---|---|---|
";

/// Maps with these names are documented as one value, regardless of their content.
const MAPS: [&str; 4] = ["labels", "nodeSelector", "resources", "annotations"];

/// The content of the README for a `values.yaml` with this text.
///
/// # Errors
/// The text is not valid YAML, or a value has no comment.
pub(super) fn readme(text: &str) -> Result<String> {
    let values: Value = serde_saphyr::from_str(text).context(VALUES)?;
    let about = comments(text);
    let mut rows = Vec::new();
    walk("", &values, &mut rows);
    let mut table = HEAD.to_owned();
    for (path, default) in rows {
        let Some(about) = about.get(&path) else {
            bail!("{VALUES}: {path} has no comment `# -- what it is` above it");
        };
        let about = about.replace('|', "\\|");
        table.push_str(&format!("| `{path}` | `{default}` | {about} |\n"));
    }
    Ok(table)
}

fn walk(path: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    let name = path.rsplit('.').next().unwrap_or_default();
    match value {
        Value::Object(fields) if !fields.is_empty() && !MAPS.contains(&name) => {
            for (key, value) in fields {
                let below = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                walk(&below, value, rows);
            }
        }
        leaf => rows.push((path.to_owned(), leaf.to_string())),
    }
}

/// The comments that begin with `# --`, by the dotted path of the value that follows.
fn comments(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut comment = String::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if let Some(rest) = trimmed.strip_prefix('#') {
            match rest.trim().strip_prefix("--") {
                Some(first) => first.trim().clone_into(&mut comment),
                None if !comment.is_empty() => {
                    comment.push(' ');
                    comment.push_str(rest.trim());
                }
                None => {}
            }
        } else if let Some((key, _)) = trimmed
            .split_once(':')
            .filter(|_| !trimmed.starts_with('-'))
        {
            while open.last().is_some_and(|(at, _)| *at >= indent) {
                open.pop();
            }
            open.push((indent, key));
            if !comment.is_empty() {
                let path: Vec<&str> = open.iter().map(|(_, key)| *key).collect();
                found.insert(path.join("."), std::mem::take(&mut comment));
            }
        } else {
            comment.clear();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // tests fail by panicking

    use super::*;

    #[test]
    fn every_value_has_a_documented_row() {
        let text = "a:\n  # -- What b is,\n  # in two lines.\n  b: 1\n  # -- A map.\n  labels:\n    x: z\n";
        let readme = readme(text).unwrap();
        let rows = "| `a.b` | `1` | What b is, in two lines. |\n| `a.labels` | `{\"x\":\"z\"}` | A map. |\n";
        assert!(readme.ends_with(rows), "{readme}");
        let error = super::readme("a: 1\n").unwrap_err().to_string();
        assert!(error.contains("a has no comment"), "{error}");
    }
}
