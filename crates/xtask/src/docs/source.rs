//! Tables generated from Rust sources and from the monitoring rules.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::row;

/// Path and text of every Rust file below `folder`, sorted.
pub(super) fn rust_files(root: &Path, folder: &str) -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path)?;
                files.push((path, text));
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The exit codes of `albacore`, from the comments of the variants of its failure type that end in
/// `Exit code N.`
pub(super) fn exit_codes(root: &Path) -> Result<String> {
    let folder = "crates/cli/command/src";
    let mut codes = vec![(0_u8, "Done.".to_owned())];
    for (_, text) in rust_files(root, folder)? {
        let mut comment = String::new();
        for line in text.lines() {
            match line.trim_start().strip_prefix("/// ") {
                Some(words) => {
                    comment.push_str(words);
                    comment.push(' ');
                }
                None => {
                    if let Some((about, code)) = comment.split_once(" Exit code ") {
                        let code = code.trim_end().trim_end_matches('.');
                        codes.push((code.parse().context("exit code")?, about.to_owned()));
                    }
                    comment.clear();
                }
            }
        }
    }
    if codes.len() < 4 {
        bail!("{folder}: comments of the failures that end in `Exit code N.` are missing");
    }
    codes.sort();
    let rows = codes
        .iter()
        .map(|(code, about)| row(&[&code.to_string(), about]));
    Ok(format!(
        "| Code | Meaning |\n|---|---|\n{}",
        rows.collect::<String>()
    ))
}

/// Reasons and their remedies, from `remedy_of` in `crates/kubernetes/api`.
pub(super) fn remedies(root: &Path) -> Result<String> {
    let files = rust_files(root, "crates/kubernetes/api/src")?;
    let source = files
        .iter()
        .find(|(_, text)| text.contains("pub fn remedy_of"));
    let (_, source) = source.context("crates/kubernetes/api has no function remedy_of")?;
    let quoted = source.split('"').skip(1).step_by(2);
    let mut rows = String::new();
    for word in quoted {
        if let Some(remedy) = albacore_api::remedy_of(word) {
            rows.push_str(&row(&[&format!("`{word}`"), remedy]));
        }
    }
    Ok(format!("| Reason | What to do |\n|---|---|\n{rows}"))
}

/// The alerts of the chart.
pub(super) fn alerts(root: &Path) -> Result<String> {
    let path = root.join("manifests/monitoring/rules.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let rules: Value = serde_saphyr::from_str(&text)?;
    let mut rows = String::new();
    let groups = rules["spec"]["groups"].as_array().into_iter().flatten();
    for rule in groups.flat_map(|group| group["rules"].as_array().into_iter().flatten()) {
        let Some(alert) = rule["alert"].as_str() else {
            continue;
        };
        let said = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        rows.push_str(&row(&[
            &format!("`{alert}`"),
            &said(&rule["labels"]["severity"]),
            &said(&rule["for"]),
            &format!("`{}`", said(&rule["expr"]).replace('\n', " ")),
            &said(&rule["annotations"]["description"]),
        ]));
    }
    let head = "| Alert | Severity | For | Expression | What to do |\n|---|---|---|---|---|\n";
    Ok(format!("{head}{rows}"))
}
