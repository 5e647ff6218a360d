//! The parameter `feature_names` of an input: the names of the columns that a request sends.
//!
//! Over HTTP a list of strings; over gRPC, whose parameters cannot be lists, one string: the same
//! list as JSON, or the names separated by commas. HTTP accepts both forms, too.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};

use super::request_error::RequestError;
use albacore_engine::{ColumnError, Columns, ModelInfo};

pub(super) const FEATURE_NAMES: &str = "feature_names";

/// Compares the value of the parameter, as JSON, with the columns of `model`.
pub(super) fn check_json(model: &ModelInfo, value: &str) -> Result<(), RequestError> {
    match value.as_bytes().first() {
        Some(b'[') => check_list(model, value),
        Some(b'"') => match serde_json::from_str::<Cow<'_, str>>(value) {
            Ok(text) => check_text(model, &text),
            Err(_) => Err(not_a_list()),
        },
        _ => Err(not_a_list()),
    }
}

/// Compares a string, a list as JSON or names separated by commas, with the columns of `model`.
pub(super) fn check_text(model: &ModelInfo, text: &str) -> Result<(), RequestError> {
    match text.trim_start().starts_with('[') {
        true => check_list(model, text),
        false => {
            let checked = model.columns.check(text.split(','));
            checked.map_err(|error| mismatch(model, &error))
        }
    }
}

fn check_list(model: &ModelInfo, text: &str) -> Result<(), RequestError> {
    let mut found = None;
    let list = List {
        columns: &model.columns,
        found: &mut found,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = list.deserialize(&mut json).and_then(|()| json.end());
    match (found, read) {
        (Some(error), _) => Err(mismatch(model, &error)),
        (None, Ok(())) => Ok(()),
        (None, Err(_)) => Err(not_a_list()),
    }
}

/// Compares names while they are parsed, so that a long list needs no memory.
struct List<'a> {
    columns: &'a Columns,
    found: &'a mut Option<ColumnError>,
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut broken = None;
        let names = std::iter::from_fn(|| match list.next_element::<Cow<'de, str>>() {
            Ok(name) => name,
            Err(error) => {
                broken = Some(error);
                None
            }
        });
        let checked = self.columns.check(names);
        match broken {
            Some(error) => Err(error),
            None => {
                *self.found = checked.err();
                Ok(())
            }
        }
    }
}

fn mismatch(model: &ModelInfo, error: &ColumnError) -> RequestError {
    let name = &model.name;
    RequestError::invalid(format!(
        "parameter {FEATURE_NAMES:?}, model {name:?}: {error}"
    ))
}

/// Refuses a value of another kind.
pub(super) fn not_a_list() -> RequestError {
    RequestError::invalid(format!(
        "parameter {FEATURE_NAMES:?} is not a list of strings: send [\"age\", \"amount\"], or one text, \
         \"age,amount\""
    ))
}

#[cfg(test)]
mod tests {
    use super::super::sample_model::sample_model;
    use super::*;
    use albacore_engine::Kind;

    fn model() -> ModelInfo {
        let names = ["age", "a,b", "c"].map(str::to_owned).to_vec();
        ModelInfo {
            columns: Columns {
                names,
                types: Vec::new(),
            },
            ..sample_model(3, Kind::Leaf)
        }
    }

    fn said(checked: Result<(), RequestError>) -> String {
        checked.unwrap_err().message.into_owned()
    }

    #[test]
    fn both_forms_are_compared_with_the_columns_of_the_model() {
        let model = model();
        for json in [
            r#"["age", "a,b", "c"]"#,
            r#"["\u0061ge","a,b","c"]"#,
            r#""[\"age\",\"a,b\",\"c\"]""#,
        ] {
            assert!(check_json(&model, json).is_ok(), "{json}");
        }
        assert!(check_text(&model, r#" ["age","a,b","c"]"#).is_ok());
        let plain = ModelInfo {
            columns: Columns {
                names: ["x", "y"].map(str::to_owned).to_vec(),
                types: Vec::new(),
            },
            ..model.clone()
        };
        assert!(check_text(&plain, "x,y").is_ok());
        assert!(check_json(&plain, r#""x,y""#).is_ok());
        for json in [r#"["x", "z", "y"]"#, r#""x,z""#] {
            let said = said(check_json(&plain, json));
            assert!(
                said.contains(r#"column 1 is "z", where the model has "y""#),
                "{said}"
            );
        }
        let missing = said(check_json(&plain, r#"["x"]"#));
        assert!(
            missing.contains(r#"column 1, "y", is missing"#),
            "{missing}"
        );
        let extra = said(check_text(&plain, "x,y,z"));
        assert!(
            extra.contains(r#"column 2, "z", is one too many"#),
            "{extra}"
        );
    }

    #[test]
    fn values_that_are_not_lists_are_refused_by_the_name_of_the_parameter() {
        let model = model();
        for json in [
            "1",
            "null",
            "{}",
            "[1]",
            r#"["age", 2, "c"]"#,
            "true",
            "[\"age\"",
            "[[]]",
        ] {
            let said = said(check_json(&model, json));
            assert!(
                said.contains("\"feature_names\" is not a list of strings"),
                "{said}"
            );
        }
    }
}
