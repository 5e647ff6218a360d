//! The list of decision records.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::row;

/// A table of all records in `docs/decisions` with date and title, newest first.
pub(super) fn index(root: &Path) -> Result<String> {
    let folder = root.join("docs/decisions");
    let mut records = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name == "README.md" || !name.ends_with(".md") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let title = text.lines().find_map(|line| line.strip_prefix("# "));
        let title = title.with_context(|| format!("{name} has no title"))?;
        let date = name
            .get(..10)
            .with_context(|| format!("{name} has no date"))?;
        records.push((date.to_owned(), title.to_owned(), name.into_owned()));
    }
    records.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let rows = records
        .iter()
        .map(|(date, title, name)| row(&[date, &format!("[{title}]({name})")]));
    Ok(format!(
        "| Date | Decision |\n|---|---|\n{}",
        rows.collect::<String>()
    ))
}
