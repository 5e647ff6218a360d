//! Formats JSON values as YAML.
//!
//! The writer produces block style, with double quotes around every string that YAML could parse as
//! another type. It supports only the types of JSON.

use std::fmt::Write as _;

use serde_json::Value;

/// `value` as a YAML document.
pub(crate) fn document(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value, 0);
    text
}

fn write_value(text: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                let _ = write!(text, "{:indent$}{}:", "", scalar_text(key));
                write_field(text, value, indent);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                let _ = write!(text, "{:indent$}-", "");
                write_item(text, item, indent);
            }
        }
        scalar => {
            let _ = writeln!(text, "{:indent$}{}", "", scalar_value(scalar));
        }
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

fn write_field(text: &mut String, value: &Value, indent: usize) {
    if !is_block(value) {
        let _ = writeln!(text, " {}", scalar_value(value));
        return;
    }
    text.push('\n');
    // As in the output of kubectl, lists are not indented relative to their key.
    let below = if value.is_array() { indent } else { indent + 2 };
    write_value(text, value, below);
}

fn write_item(text: &mut String, value: &Value, indent: usize) {
    if !is_block(value) {
        let _ = writeln!(text, " {}", scalar_value(value));
        return;
    }
    let start = text.len();
    write_value(text, value, indent + 2);
    // The first line of the block is on the line of the dash, so its indentation is replaced by one
    // space.
    text.replace_range(start..start + indent + 2, " ");
}

fn scalar_value(value: &Value) -> String {
    match value {
        Value::String(text) => scalar_text(text),
        // Integer bounds are stored as f64: 256.0 is written as 256.
        Value::Number(n)
            if n.as_f64()
                .is_some_and(|f| f.fract() == 0.0 && f.abs() < 1e15) =>
        {
            n.as_f64().map(|f| format!("{f:.0}")).unwrap_or_default()
        }
        other => other.to_string(),
    }
}

/// A string, without quotes if every YAML reader parses it as a string.
fn scalar_text(text: &str) -> String {
    const RESERVED: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c))
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_documents_are_read_back_unchanged() {
        let value = serde_json::json!({
            "plain": "text", "number": 1.5, "whole": 256, "empty": {}, "none": [],
            "yes": "no", "x y": "a: b",
            "lines": "one\ntwo \"three\"", "list": [1, [2, {"a": 1, "b": [3]}], {"c": {"d": null}}],
            "": "", "2": "2", "colon:": "-", "pattern": "^[\\x00-\\x1f]$",
        });
        assert_eq!(
            serde_saphyr::from_str::<Value>(&document(&value)).unwrap(),
            value
        );
    }
}
