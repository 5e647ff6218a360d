//! A YAML tree that stores the line number of every key and value.
//!
//! Deserialization into a typed struct would lose the line number of a well-formed but invalid
//! value, and would skip unknown fields.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

use crate::limits::DEPTH_MAX;

/// A value and its first line, counted from 1.
#[derive(Clone, Debug)]
pub struct YamlNode {
    pub line: u64,
    pub kind: YamlValue,
}

/// Value of a node.
#[derive(Clone, Debug)]
pub enum YamlValue {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

/// A field of a map.
#[derive(Clone, Debug)]
pub struct YamlEntry {
    pub key: String,
    pub line: u64,
    pub value: YamlNode,
}

/// Parses a document.
///
/// # Errors
/// The text is not YAML or is nested too deeply. The message completes a sentence that begins with
/// the file.
pub fn parse(text: &str) -> Result<YamlNode, String> {
    let budget = serde_saphyr::budget! { max_depth: DEPTH_MAX };
    let options = serde_saphyr::options! { budget: budget, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map_or(0, |location| location.line());
        let problem = error.to_string();
        let problem = problem.lines().next().unwrap_or_default();
        format!("is not YAML: line {line}: {problem}")
    })
}

impl YamlNode {
    /// Returns the value of a field that is present and not null.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&YamlNode> {
        match &self.kind {
            YamlValue::Map(entries) => entries
                .iter()
                .find(|e| e.key == key && !matches!(e.value.kind, YamlValue::Null))
                .map(|e| &e.value),
            _ => None,
        }
    }

    /// Returns the text if the node is a string.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            YamlValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the line of the field `path` (`spec.models[0].uri`), or of the deepest existing part
    /// of it.
    pub fn line_of(&self, path: &str) -> u64 {
        let (mut node, mut line) = (self, self.line);
        for part in path.split('.') {
            let (name, index) = match part.split_once('[') {
                Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<usize>().ok()),
                None => (part, None),
            };
            let YamlValue::Map(entries) = &node.kind else {
                return line;
            };
            let Some(entry) = entries.iter().find(|e| e.key == name) else {
                return line;
            };
            (node, line) = (&entry.value, entry.line);
            if let (Some(index), YamlValue::List(items)) = (index, &node.kind) {
                let Some(item) = items.get(index) else {
                    return line;
                };
                (node, line) = (item, item.line);
            }
        }
        line
    }

    /// Converts the tree to JSON. Null fields are omitted, as by the API server.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            YamlValue::Null => Value::Null,
            YamlValue::Bool(b) => Value::Bool(*b),
            YamlValue::Number(n) => Value::Number(n.clone()),
            YamlValue::Text(t) => Value::String(t.clone()),
            YamlValue::List(items) => Value::Array(items.iter().map(YamlNode::to_json).collect()),
            YamlValue::Map(entries) => Value::Object(
                entries
                    .iter()
                    .filter(|e| !matches!(e.value.kind, YamlValue::Null))
                    .map(|e| (e.key.clone(), e.value.to_json()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<YamlValue>::deserialize(deserializer)?;
        Ok(Self {
            line: spanned.referenced.line(),
            kind: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KindVisitor)
    }
}

struct KindVisitor;

impl<'de> Visitor<'de> for KindVisitor {
    type Value = YamlValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_none<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlValue, D::Error> {
        YamlValue::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<YamlValue, E> {
        Number::from_f64(value)
            .map(YamlValue::Number)
            .ok_or_else(|| E::custom(format_args!("{value} is not a finite number")))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<YamlValue, E> {
        Ok(YamlValue::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<YamlValue, A::Error> {
        let mut items = Vec::new();
        // bound: the length of the document, which the caller bounds.
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(YamlValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlValue, A::Error> {
        let mut entries = Vec::new();
        // bound: the length of the document, which the caller bounds.
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let value = map.next_value()?;
            entries.push(YamlEntry {
                key: key.value,
                line: key.referenced.line(),
                value,
            });
        }
        Ok(YamlValue::Map(entries))
    }
}
