//! Excerpts of client texts for error messages.

/// Returns the beginning of a client's text, short enough for an error message.
pub(crate) fn excerpt(text: &str) -> String {
    const SHOWN_CHARS: usize = 64;
    text.chars().take(SHOWN_CHARS).collect()
}

/// Formats the first few names, quoted, and the number of the others.
pub(crate) fn some_names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN_NAMES: usize = 5;
    let mut names = names.into_iter();
    let shown = names.by_ref().take(SHOWN_NAMES);
    let mut text = shown
        .map(|name| format!("{:?}", excerpt(name)))
        .collect::<Vec<_>>()
        .join(", ");
    let more = names.count();
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}
