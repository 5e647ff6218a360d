//! The parameter `feature_names`: the column names of a request, in any order.
//!
//! Over HTTP it is a list of strings; over gRPC, whose parameters cannot be lists, it is one
//! string: the list as JSON, or the names separated by commas. HTTP accepts the string, too.

use std::borrow::Cow;

use albacore_engine::ModelInfo;

use crate::table_json::names;
use crate::{ColumnOrder, InvalidRows};

pub const FEATURE_NAMES: &str = "feature_names";

/// Matches the names in the JSON value of the parameter with the columns of `model`; `None` if they
/// are in the model's order.
///
/// # Errors
/// The value is not a list of strings, or a name is unknown, a duplicate or missing.
pub fn order_from_json(model: &ModelInfo, value: &str) -> Result<Option<ColumnOrder>, InvalidRows> {
    match value.as_bytes().first() {
        Some(b'[') => order_from_list(model, value),
        Some(b'"') => match serde_json::from_str::<Cow<'_, str>>(value) {
            Ok(text) => order_from_text(model, &text),
            Err(_) => Err(not_a_list()),
        },
        _ => Err(not_a_list()),
    }
}

/// Like [`order_from_json`], for a string: a list as JSON, or names separated by commas.
///
/// # Errors
/// As [`order_from_json`].
pub fn order_from_text(model: &ModelInfo, text: &str) -> Result<Option<ColumnOrder>, InvalidRows> {
    match text.trim_start().starts_with('[') {
        true => order_from_list(model, text),
        false => {
            // Enough to find an error: with more names than columns, one is unknown or a duplicate.
            let names = text.split(',').take(model.features + 1);
            find(model, &names.collect::<Vec<_>>())
        }
    }
}

fn order_from_list(model: &ModelInfo, text: &str) -> Result<Option<ColumnOrder>, InvalidRows> {
    let names = names(text, model.features).map_err(|_| not_a_list())?;
    find(model, &names)
}

fn find(model: &ModelInfo, names: &[impl AsRef<str>]) -> Result<Option<ColumnOrder>, InvalidRows> {
    ColumnOrder::find(model, names)
        .map_err(|error| InvalidRows::new(format!("parameter {FEATURE_NAMES:?}, {error}")))
}

/// Returns the error for a value of another type.
#[must_use]
pub fn not_a_list() -> InvalidRows {
    InvalidRows::new(format!(
        "parameter {FEATURE_NAMES:?} is not a list of strings: send [\"age\", \"amount\"], or one \
         string, \"age,amount\""
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use albacore_engine::Columns;

    fn model(names: [&str; 3]) -> ModelInfo {
        ModelInfo {
            columns: Columns {
                names: names.map(str::to_owned).to_vec(),
                types: Vec::new(),
                ..Columns::default()
            },
            name: "m".to_owned(),
            features: 3,
            ..ModelInfo::default()
        }
    }

    fn sources(found: Result<Option<ColumnOrder>, InvalidRows>) -> Vec<usize> {
        let order = found.unwrap();
        order.map_or(vec![0, 1, 2], |order| {
            order.sources().iter().copied().flatten().collect()
        })
    }

    #[test]
    fn both_forms_are_put_in_the_order_of_the_model() {
        let model = model(["age", "a,b", "c"]);
        for (json, wanted) in [
            (r#"["age", "a,b", "c"]"#, [0, 1, 2]),
            (r#"["\u0061ge","a,b","c"]"#, [0, 1, 2]),
            (r#""[\"c\",\"a,b\",\"age\"]""#, [2, 1, 0]),
            (r#"["c","age","a,b"]"#, [1, 2, 0]),
        ] {
            assert_eq!(sources(order_from_json(&model, json)), wanted, "{json}");
        }
        let plain = self::model(["x", "y", "z"]);
        assert_eq!(sources(order_from_text(&plain, "x,y,z")), [0, 1, 2]);
        assert_eq!(sources(order_from_json(&plain, r#""z,x,y""#)), [1, 2, 0]);
        for (json, part) in [
            (r#"["x", "z", "w"]"#, "column \"w\" is unknown"),
            (r#""x,z""#, "column \"y\" is missing"),
            (
                r#"["x", "y", "z", "x", "x"]"#,
                "column \"x\" is given twice",
            ),
            (r#""x,y,z,w,v""#, "column \"w\" is unknown"),
        ] {
            let message = order_from_json(&plain, json).unwrap_err().to_string();
            assert!(
                message.starts_with("parameter \"feature_names\", model \"m\": "),
                "{message}"
            );
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn values_that_are_not_lists_are_refused_by_the_name_of_the_parameter() {
        let model = model(["age", "b", "c"]);
        for json in [
            "1",
            "null",
            "{}",
            "[1.5]",
            r#"["age", -2, "c"]"#,
            "true",
            "[\"age\"",
            "[[]]",
        ] {
            let message = order_from_json(&model, json).unwrap_err().to_string();
            assert!(
                message.contains("\"feature_names\" is not a list of strings"),
                "{message}"
            );
        }
    }
}
