//! The calls of the server over HTTP and gRPC.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::row;
use super::source::rust_files;

/// Methods and paths, from comments in the server that begin with a method and a path in backticks.
pub(super) fn http_calls(root: &Path) -> Result<String> {
    let folder = "crates/serving/server/src";
    let mut rows = String::new();
    for (_, text) in rust_files(root, folder)? {
        let mut comment = String::new();
        for line in text.lines() {
            match line.trim_start().strip_prefix("/// ") {
                Some(words) => {
                    comment.push_str(words);
                    comment.push(' ');
                }
                None => {
                    rows.push_str(&call(&comment));
                    comment.clear();
                }
            }
        }
    }
    if rows.is_empty() {
        bail!("{folder}: no comment of a route begins with \"`GET /\" or \"`POST /\"");
    }
    Ok(format!("| Call | |\n|---|---|\n{rows}"))
}

/// The table row for a comment such as "`GET /v2/models/{name}`: metadata."; empty for other
/// comments.
fn call(comment: &str) -> String {
    let is_call = ["`GET /", "`POST /"].iter().any(|m| comment.starts_with(m));
    let Some((call, rest)) = comment
        .get(1..)
        .filter(|_| is_call)
        .and_then(|rest| rest.split_once('`'))
    else {
        return String::new();
    };
    let rest = rest.trim().trim_start_matches([':', ';', ',', '.']).trim();
    row(&[&format!("`{call}`"), rest])
}

/// Services and calls defined in the proto files.
pub(super) fn grpc_calls(root: &Path) -> Result<String> {
    let mut all = Vec::new();
    for file in ["inference.proto", "params.proto"] {
        let path = root.join("crates/serving/proto/proto").join(file);
        let proto = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        all.push(services(&proto));
    }
    // A table is terminated by an empty line.
    Ok(all.join("\n"))
}

fn services(proto: &str) -> String {
    let mut text = String::new();
    let mut package = "";
    let mut comment: Vec<&str> = Vec::new();
    for line in proto.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("//") {
            comment.extend(Some(words.trim()).filter(|words| !words.is_empty()));
            continue;
        }
        if let Some(name) = line.strip_prefix("package ") {
            package = name.trim_end_matches(';');
        } else if let Some(name) = line.strip_prefix("service ") {
            let name = name.trim_end_matches('{').trim();
            text.push_str(&format!("\n`{package}.{name}`: {}\n\n", comment.join(" ")));
            text.push_str("| Call | |\n|---|---|\n");
        } else if let Some(rest) = line.strip_prefix("rpc ") {
            let signature = rest.split([';', '{']).next().unwrap_or(rest).trim();
            text.push_str(&row(&[&format!("`{signature}`"), &comment.join(" ")]));
        }
        comment.clear();
    }
    text.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_a_row_and_other_comments_are_none() {
        assert_eq!(call("`GET /v2` "), "| `GET /v2` |  |\n");
        assert_eq!(call("`POST /x`; refused. "), "| `POST /x` | refused. |\n");
        assert_eq!(call("The route `GET /v2` "), "");
        assert_eq!(call(""), "");
    }

    #[test]
    fn services_and_calls_are_found_with_their_comments() {
        let proto =
            "package p;\n// About S.\nservice S {\n  // Does A.\n  rpc A(B) returns (C) {}\n}\n";
        let text = services(proto);
        assert!(text.starts_with("`p.S`: About S.\n"), "{text}");
        assert!(
            text.contains("| `A(B) returns (C)` | Does A. |\n"),
            "{text}"
        );
    }
}
