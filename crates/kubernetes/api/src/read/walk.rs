//! Validates a document against the schema of the custom resource, field by field.
//!
//! The schema is that of `crds/`, so `albacore run` rejects what the API server rejects, with the
//! same limits and better messages: with the line, the value and the correct form. Texts with their
//! own syntax (durations, URIs, quantities) are parsed by their type.

use albacore_settings::yaml_tree::{YamlEntry, YamlNode, YamlValue};
use serde_json::{Value, json};

use super::nearest::nearest;
use crate::deployment::MODEL_NAME_PATTERN;
use crate::limits::QUOTED_CHARS_MAX;
use crate::model_threads;
use crate::quantity;
use crate::timespan::{self, Timespan};
use crate::uri::{self, ModelUri};
use crate::violation::{Violation, quoted};

/// The violations of one document, in the order of the document.
pub(crate) struct SchemaWalk<'a> {
    /// The root schema, used to find the correct place of a misplaced field.
    root: &'a Value,
    pub(crate) violations: Vec<Violation>,
}

impl<'a> SchemaWalk<'a> {
    pub(crate) fn new(root: &'a Value) -> Self {
        Self {
            root,
            violations: Vec::new(),
        }
    }

    /// Validates `node` at `path` against `schema`.
    pub(crate) fn check(&mut self, schema: &Value, node: &YamlNode, path: &str) {
        if schema["x-kubernetes-int-or-string"] == true {
            return self.check_int_or_text(schema, node, path);
        }
        if schema["oneOf"].is_array() {
            return self.check_name_or_map(schema, node, path);
        }
        match (schema["type"].as_str(), &node.kind) {
            (_, YamlValue::Null) | (None, _) => {}
            (Some("object"), YamlValue::Map(entries)) => {
                self.check_map(schema, node, entries, path)
            }
            (Some("array"), YamlValue::List(items)) => self.check_list(schema, node, items, path),
            (Some("string"), YamlValue::Text(text)) => self.check_text(schema, node, text, path),
            (Some("boolean"), YamlValue::Bool(_)) => {}
            (Some("number"), YamlValue::Number(number)) => {
                self.check_range(schema, node, number.as_f64(), path);
            }
            (Some("integer"), YamlValue::Number(number)) if !number.is_f64() => {
                self.check_range(schema, node, number.as_f64(), path);
            }
            (Some(wanted), _) => self.report(node.line, path, wrong_type(wanted, schema, node)),
        }
    }

    fn report(&mut self, line: u64, path: &str, problem: String) {
        self.violations.push(Violation {
            field: path.to_owned(),
            problem,
            line: Some(line),
        });
    }

    fn check_map(&mut self, schema: &Value, node: &YamlNode, entries: &[YamlEntry], path: &str) {
        let known = &schema["properties"];
        let additional = &schema["additionalProperties"];
        let takes_any = schema["x-kubernetes-preserve-unknown-fields"] == true;
        for entry in entries {
            let below = join(path, &entry.key);
            if known[&entry.key].is_object() {
                self.check(&known[&entry.key], &entry.value, &below);
            } else if additional.is_object() {
                self.check(additional, &entry.value, &below);
            } else if !takes_any {
                let problem = self.unknown(known, &entry.key);
                self.report(entry.line, &below, problem);
            }
        }
        for name in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if node.get(name).is_none() {
                self.report(node.line, &join(path, name), "is missing".to_owned());
            }
        }
    }

    fn unknown(&self, known: &Value, key: &str) -> String {
        let names = || {
            known
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| name.as_str())
        };
        if let Some(name) = nearest(key, names()) {
            return format!("is not a field; did you mean \"{name}\"?");
        }
        if let Some(place) = find_place(&self.root["properties"]["spec"], "spec", key) {
            return format!("is not a field here; it belongs to {place}");
        }
        let list: Vec<&str> = names().collect();
        match list.len() {
            0 => "is not a field; remove it".to_owned(),
            1..=16 => format!("is not a field; the fields here are {}", list.join(", ")),
            _ => "is not a field; remove it or see `kubectl explain pod`".to_owned(),
        }
    }

    fn check_list(&mut self, schema: &Value, node: &YamlNode, items: &[YamlNode], path: &str) {
        if let Some(max) = schema["maxItems"]
            .as_u64()
            .filter(|&max| items.len() as u64 > max)
        {
            self.report(
                node.line,
                path,
                format!("has {} items; at most {max}", items.len()),
            );
        }
        for (index, item) in items.iter().enumerate() {
            let below = format!("{path}[{index}]");
            if matches!(item.kind, YamlValue::Null) {
                self.report(
                    item.line,
                    &below,
                    "is empty; fill it or remove it".to_owned(),
                );
            }
            self.check(&schema["items"], item, &below);
            for key in schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .take(1)
            {
                let Some(key) = key.as_str() else { continue };
                let Some(name) = item.get(key).and_then(YamlNode::text) else {
                    continue;
                };
                let is_first = |n: &YamlNode| n.get(key).and_then(YamlNode::text) == Some(name);
                if let Some(first) = items[..index].iter().position(is_first) {
                    let problem = format!(
                        "is {}, like {path}[{first}].{key}; each {key} must be unique",
                        quoted(name)
                    );
                    self.report(item.line_of(key), &join(&below, key), problem);
                }
            }
        }
    }

    fn check_text(&mut self, schema: &Value, node: &YamlNode, text: &str, path: &str) {
        if let Some(names) = schema["enum"].as_array() {
            if !names.iter().any(|n| n == text) {
                let problem = not_in(names, text);
                self.report(node.line, path, problem);
            }
            return;
        }
        let chars = text.chars().count() as u64;
        if let Some(max) = schema["maxLength"].as_u64().filter(|&max| chars > max)
            && schema["pattern"] != timespan::PATTERN
        {
            let problem = format!("is {}; at most {max} characters", quoted(text));
            return self.report(node.line, path, problem);
        }
        let problem = match schema["pattern"].as_str() {
            Some(timespan::PATTERN) => text.parse::<Timespan>().err().map(|e| e.to_string()),
            Some(uri::PATTERN) => text.parse::<ModelUri>().err().map(|e| e.to_string()),
            Some(MODEL_NAME_PATTERN) => model_name_problem(text),
            Some(quantity::PATTERN) => quantity::problem(text),
            Some(model_threads::PATTERN) if text != "auto" => {
                Some("must be auto or a whole number from 1 to spec.threads".to_owned())
            }
            _ => None,
        };
        if let Some(problem) = problem {
            self.report(
                node.line,
                path,
                format!("is {}; it {problem}", quoted(text)),
            );
        }
    }

    fn check_int_or_text(&mut self, schema: &Value, node: &YamlNode, path: &str) {
        match &node.kind {
            YamlValue::Null => {}
            YamlValue::Text(text) => self.check_text(schema, node, text, path),
            YamlValue::Number(number) if !number.is_f64() => {
                self.check_range(schema, node, number.as_f64(), path);
            }
            _ => {
                let text = match schema["pattern"].as_str() {
                    Some(model_threads::PATTERN) => "auto",
                    _ => "a string in quotes such as \"500m\"",
                };
                let problem = format!("is {}; it must be a whole number, or {text}", shown(node));
                self.report(node.line, path, problem);
            }
        }
    }

    /// Accepts one of the names of the first alternative, or all fields of the second.
    fn check_name_or_map(&mut self, schema: &Value, node: &YamlNode, path: &str) {
        let [names, fields] = [&schema["oneOf"][0], &schema["oneOf"][1]];
        match &node.kind {
            YamlValue::Null => {}
            YamlValue::Text(text) => self.check_text(names, node, text, path),
            YamlValue::Map(entries) => {
                let map = json!({
                    "properties": schema["properties"],
                    "required": fields["required"],
                });
                self.check_map(&map, node, entries, path);
            }
            _ => {
                let (names, fields) = (texts(&names["enum"]), texts(&fields["required"]));
                let (names, fields) = (names.join(" or "), fields.join(" and "));
                let problem = format!(
                    "is {}; it must be {names}, or the fields {fields}",
                    shown(node)
                );
                self.report(node.line, path, problem);
            }
        }
    }

    fn check_range(&mut self, schema: &Value, node: &YamlNode, value: Option<f64>, path: &str) {
        let Some(value) = value else { return };
        let (min, max) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
        if min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max) {
            return;
        }
        let range = match (min, max) {
            (Some(min), Some(max)) => format!("from {min} to {max}"),
            (Some(min), None) => format!("at least {min}"),
            (None, Some(max)) => format!("at most {max}"),
            (None, None) => return,
        };
        self.report(
            node.line,
            path,
            format!("is {}; it must be {range}", shown(node)),
        );
    }
}

/// Joins `metadata.labels` and `app` to `metadata.labels.app`; a key with other characters is put
/// in quotes and brackets.
fn join(path: &str, key: &str) -> String {
    let is_plain = key.chars().all(|c| c.is_alphanumeric() || "-_".contains(c))
        && key.chars().count() <= QUOTED_CHARS_MAX;
    match (path, is_plain) {
        ("", true) => key.to_owned(),
        ("", false) => quoted(key),
        (_, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{}]", quoted(key)),
    }
}

/// The path at which Albacore's own part of the schema has a field of this name.
fn find_place(schema: &Value, path: &str, name: &str) -> Option<String> {
    let known = schema["properties"]
        .as_object()
        .or(schema["items"]["properties"].as_object())?;
    if known.contains_key(name) {
        return Some(path.to_owned());
    }
    known
        .iter()
        .filter(|(key, _)| !matches!(key.as_str(), "template" | "resources"))
        .find_map(|(key, below)| find_place(below, &format!("{path}.{key}"), name))
}

fn texts(list: &Value) -> Vec<&str> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

fn not_in(names: &[Value], text: &str) -> String {
    let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
    let meant = nearest(text, names.iter().copied())
        .map(|name| format!("; did you mean \"{name}\"?"))
        .unwrap_or_default();
    format!(
        "is {}; it must be {}{meant}",
        quoted(text),
        names.join(" or ")
    )
}

fn model_name_problem(text: &str) -> Option<String> {
    let is_edge = |c: char| c.is_ascii_alphanumeric();
    let is_name = text.starts_with(is_edge)
        && text.ends_with(is_edge)
        && text.chars().all(|c| is_edge(c) || "._-".contains(c));
    (!is_name).then(|| {
        "is not a valid name: use letters, digits, \"-\", \"_\" and \".\", with a letter or digit \
         at both ends, as in \"fraud-v2\""
            .to_owned()
    })
}

/// A value formatted for messages.
fn shown(node: &YamlNode) -> String {
    match &node.kind {
        YamlValue::Null => "empty".to_owned(),
        YamlValue::Bool(value) => value.to_string(),
        YamlValue::Number(value) => value.to_string(),
        YamlValue::Text(text) => format!("the string {}", quoted(text)),
        YamlValue::List(_) => "a list".to_owned(),
        YamlValue::Map(_) => "a map of fields".to_owned(),
    }
}

fn wrong_type(wanted: &str, schema: &Value, node: &YamlNode) -> String {
    let name = match wanted {
        "object" => "a map of fields",
        "array" => "a list",
        "string" => "a string",
        "boolean" => "true or false",
        "integer" => "a whole number",
        _ => "a number",
    };
    let cure = match (wanted, &node.kind) {
        ("string", YamlValue::Number(n)) if schema["pattern"] == timespan::PATTERN => {
            format!(" with a unit; write \"{n}us\", \"{n}ms\" or \"{n}s\"")
        }
        ("string", YamlValue::Number(_) | YamlValue::Bool(_)) => {
            format!("; write it in quotes, \"{}\"", shown(node))
        }
        ("integer" | "number", YamlValue::Text(text)) if text.parse::<f64>().is_ok() => {
            format!("; write {text} without quotes")
        }
        ("array", YamlValue::Map(_)) => "; write \"- \" before its first field".to_owned(),
        _ => String::new(),
    };
    format!("is {}; it must be {name}{cure}", shown(node))
}
