//! `xtask docs`: the generated parts of `docs/`.
//!
//! A page consists of prose and blocks. The lines between `<!-- begin: NAME -->` and `<!-- end -->`
//! are generated from code, from `crds/`, from `manifests/` or from the output of `--help`.

mod commands;
mod crd;
mod decisions;
mod metrics;
mod protocols;
mod source;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

pub use commands::PROGRAMS;
pub use metrics::missing_rows;

const BEGIN: &str = "<!-- begin: ";
const END: &str = "<!-- end -->";

/// Text of the block `name`. `programs` is the directory of the built programs.
fn block(name: &str, root: &Path, programs: &Path) -> Result<String> {
    match name {
        "InferenceDeployment" => Ok(crd::tables(&albacore_api::inference_deployment_crd())),
        "NodePlacement" => Ok(crd::tables(&albacore_api::node_placement_crd())),
        "commands" => commands::all(programs),
        "decisions" => decisions::index(root),
        "exit codes" => source::exit_codes(root),
        "remedies" => source::remedies(root),
        "alerts" => source::alerts(root),
        "http calls" => protocols::http_calls(root),
        "grpc calls" => protocols::grpc_calls(root),
        _ => bail!("unknown block {name:?}"),
    }
}

/// Path below `root` and generated text of every page with a block.
///
/// # Errors
/// A page contains an unknown or unterminated block, or the source of a block is missing.
pub fn generate(root: &Path, programs: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut pages = Vec::new();
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                let text = std::fs::read_to_string(&path)?;
                if text.contains(BEGIN) {
                    let fill = |name: &str| block(name, root, programs);
                    let text = filled(&text, fill).with_context(|| path.display().to_string())?;
                    pages.push((path.strip_prefix(root)?.to_path_buf(), text));
                }
            }
        }
    }
    pages.sort();
    Ok(pages)
}

/// Replaces every block of `page` with the result of `fill` for its name.
fn filled(page: &str, fill: impl Fn(&str) -> Result<String>) -> Result<String> {
    let mut text = String::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        text.push_str(line);
        text.push('\n');
        let name = line
            .strip_prefix(BEGIN)
            .and_then(|rest| rest.strip_suffix(" -->"));
        if let Some(name) = name {
            if !lines.any(|line| line == END) {
                bail!("block {name:?} has no line {END:?}");
            }
            let block = fill(name).with_context(|| format!("block {name:?}"))?;
            text.push_str(&format!("\n{}\n\n{END}\n", block.trim_end()));
        }
    }
    Ok(text)
}

/// Writes the pages below `root`.
///
/// # Errors
/// Same as [`generate`], or a file cannot be written.
pub fn write(root: &Path, programs: &Path) -> Result<()> {
    for (path, text) in generate(root, programs)? {
        let path = root.join(path);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

/// Fails if a committed page differs from the generated one.
///
/// # Errors
/// Same as [`generate`], or a page differs: the error contains its path and the first such line.
pub fn check(root: &Path, programs: &Path) -> Result<()> {
    for (path, text) in generate(root, programs)? {
        let committed = std::fs::read_to_string(root.join(&path)).unwrap_or_default();
        if committed != text {
            let mut lines = committed.lines().zip(text.lines()).enumerate();
            let first = lines.find(|(_, (before, now))| before != now);
            let number = first.map_or(0, |(index, _)| index + 1);
            let (before, now) = first.map_or(("", ""), |(_, lines)| lines);
            bail!(
                "{}:{number} does not match the code: run `make docs`\n- {before}\n+ {now}",
                path.display()
            );
        }
    }
    Ok(())
}

/// A row of a table; `|` and line breaks in cells are escaped.
fn row(cells: &[&str]) -> String {
    let escaped = |cell: &&str| {
        cell.replace('|', "\\|")
            .replace("\n\n", "<br>")
            .replace('\n', " ")
    };
    let cells: Vec<String> = cells.iter().map(escaped).collect();
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // tests fail by panicking

    use super::*;

    #[test]
    fn blocks_are_replaced_and_prose_is_kept() {
        let page = "a\n<!-- begin: x -->\nold\n<!-- end -->\nb\n";
        let text = filled(page, |name| Ok(format!("new {name}\n"))).unwrap();
        assert_eq!(text, "a\n<!-- begin: x -->\n\nnew x\n\n<!-- end -->\nb\n");
        assert_eq!(filled(&text, |_| Ok("new x".to_owned())).unwrap(), text);
    }

    #[test]
    fn a_block_without_end_or_with_an_unknown_name_is_an_error() {
        assert!(filled("<!-- begin: x -->\n", |_| Ok(String::new())).is_err());
        assert!(block("x", Path::new("."), Path::new(".")).is_err());
    }

    #[test]
    fn cells_are_escaped() {
        assert_eq!(row(&["a|b", "c\nd\n\ne"]), "| a\\|b | c d<br>e |\n");
    }
}
