//! Identifies unsupported text files.

use super::{CATBOOST, EXPORT, HEAD_BYTES, SUPPORTED, XGBOOST_SAVE, foreign};
use crate::error::{ModelError, excerpt};

/// Returns the error for text in an unsupported format; `None` if the bytes are not text.
pub(super) fn identify(bytes: &[u8]) -> Option<ModelError> {
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    // The excerpt may end within a multi-byte character.
    let head = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if head.len() < bytes.len() && error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return None,
    };
    let is_text = |letter: char| !letter.is_control() || letter.is_ascii_whitespace();
    if !head.chars().all(is_text) {
        return None;
    }
    let text = head.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Some(foreign("only white space", SUPPORTED));
    }
    if text.starts_with("version https://git-lfs.github.com/spec/") {
        let remedy = "Fetch the file it stands for: git lfs pull";
        return Some(foreign("a Git LFS pointer, not the model itself", remedy));
    }
    if text.starts_with('<') {
        return Some(markup(text));
    }
    if text.starts_with("booster[") {
        return Some(foreign("XGBoost's dump_model as text", XGBOOST_SAVE));
    }
    if text.starts_with('[') && text.contains("\"nodeid\"") {
        return Some(foreign("XGBoost's dump_model as JSON", XGBOOST_SAVE));
    }
    let is_exported = text.starts_with("###  Model data") || text.starts_with("#include <string>");
    if is_exported {
        return Some(foreign("code that CatBoost wrote", CATBOOST));
    }
    let first = text.lines().next().unwrap_or_default();
    let what = match text.starts_with(['{', '[']) {
        true => format!(
            "JSON of something else; it begins with '{}'",
            excerpt(first)
        ),
        false => format!("plain text that begins with '{}'", excerpt(first)),
    };
    Some(foreign(what, SUPPORTED))
}

/// Identifies HTML, PMML and other XML by the first element.
fn markup(text: &str) -> ModelError {
    let elements = text.split('<').skip(1);
    let names = elements.map(|element| {
        let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | ':');
        element
            .split(|letter| !is_part(letter))
            .next()
            .unwrap_or_default()
    });
    let root = names
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or_default();
    let start: String = text.chars().take(14).collect();
    let is_html = start.eq_ignore_ascii_case("<!doctype html") || root.eq_ignore_ascii_case("html");
    if is_html {
        let title = between(text, "<title>", "</title>");
        let title = title.map_or_else(String::new, |it| {
            format!(" titled '{}'", excerpt(it.trim()))
        });
        let remedy = "The server returned a page instead of the file, as for an error or a login: \
                      check the URL with curl";
        return foreign(format!("an HTML page{title}"), remedy);
    }
    if root == "PMML" {
        return foreign("a PMML document", EXPORT);
    }
    let code = between(text, "<Code>", "</Code>");
    let code = code.map_or_else(String::new, |it| format!(" with the code {}", excerpt(it)));
    let what = format!("XML with the element <{}>{code}", excerpt(root));
    foreign(what, SUPPORTED)
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(start)?;
    rest.split_once(end).map(|(inner, _)| inner)
}
