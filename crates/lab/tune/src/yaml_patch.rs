//! Edits values in the user's file: comments, order and layout are preserved.

use std::path::Path;

use albacore_api::{InferenceDeployment, MainThreadPolicy, read_deployment};
use yaml_serde::{Mapping, Value};
use yamlpatch::{Op, Patch, apply_yaml_patches};
use yamlpath::{Component, Document, Route};

use crate::configuration::Configuration;
use crate::error::TuneError;

/// A field below `spec`: its path and its value; `None` removes it.
type Field = (&'static [&'static str], Option<Value>);

/// The file with the values of `chosen` that differ from `current`, and with these replicas, if
/// any.
///
/// # Errors
/// The file's layout does not allow the edit.
pub(crate) fn patched(
    path: &Path,
    text: &str,
    current: &Configuration,
    chosen: &Configuration,
    replicas: Option<i32>,
) -> Result<String, TuneError> {
    let failed = |what: String| TuneError::Patch {
        path: path.to_owned(),
        what,
    };
    let mut document = Document::new(text).map_err(|e| failed(e.to_string()))?;
    let (before, after) = (fields(current), fields(chosen));
    for (own, new) in before.into_iter().zip(after) {
        if own == new {
            continue;
        }
        document = with_field(&document, &new).map_err(failed)?;
    }
    if let Some(replicas) = replicas {
        let field: Field = (&["replicas"], Some(Value::from(replicas)));
        document = with_field(&document, &field).map_err(failed)?;
    }
    let patched = document.source().to_owned();
    let mut due = read_deployment(text, &path.display().to_string())?;
    chosen.apply(&mut due.spec);
    due.spec.replicas = replicas.or(due.spec.replicas);
    verify(path, &patched, &due)?;
    Ok(patched)
}

fn fields(of: &Configuration) -> Vec<Field> {
    let number = |value: u64| Some(Value::from(value));
    let text = |value: String| Some(Value::from(value));
    let time =
        |time: Option<albacore_api::Timespan>| time.map(|time| Value::from(time.to_string()));
    let is_pinned = of.main_thread == MainThreadPolicy::Pinned;
    vec![
        (&["workers"], number(of.workers.into())),
        (&["threads"], number(of.threads.into())),
        (&["mode"], text(format!("{:?}", of.mode))),
        (
            &["placement", "mainThread"],
            (!is_pinned).then(|| Value::from(format!("{:?}", of.main_thread))),
        ),
        (&["batching", "policy"], text(format!("{:?}", of.policy))),
        (&["batching", "maxRows"], number(of.max_rows.into())),
        (&["batching", "maxDelay"], time(of.max_delay)),
        (&["batching", "window"], time(of.window)),
        (
            &["front", "threads"],
            of.front_threads
                .map(|threads| Value::from(u64::from(threads))),
        ),
    ]
}

fn route(keys: &[&'static str]) -> Route<'static> {
    let keys = std::iter::once("spec").chain(keys.iter().copied());
    Route::default().with_keys(keys.map(Component::from))
}

/// Replaces, adds or removes one field, including its map.
fn with_field(document: &Document, (keys, value): &Field) -> Result<Document, String> {
    let whole = route(keys);
    let found = document.query_exact(&whole).ok().flatten();
    let operation = match (found, value) {
        (None, None) => return Ok(document.clone()),
        (Some(_), None) => return without_field(document, keys),
        // replaces only the bytes of the value: the library's replacement loses values of flow maps
        (Some(feature), Some(value)) => {
            let (begin, end) = feature.location.byte_span;
            let mut text = document.source().to_owned();
            text.replace_range(begin..end, &scalar(value));
            return Document::new(text).map_err(|e| e.to_string());
        }
        (None, Some(value)) => addition(document, keys, value),
    };
    apply_yaml_patches(document, &[operation]).map_err(|e| e.to_string())
}

/// Removes a field, and its map if that has no other fields: an empty map may have another meaning
/// than a missing one.
fn without_field(document: &Document, keys: &[&'static str]) -> Result<Document, String> {
    let parents = &keys[..keys.len().saturating_sub(1)];
    let file: Value = yaml_serde::from_str(document.source()).map_err(|e| e.to_string())?;
    let map = parents.iter().fold(&file["spec"], |map, key| &map[*key]);
    let map = map.as_mapping().cloned().unwrap_or_default();
    let whole = document.query_exact(&route(parents)).ok().flatten();
    let is_only = map.len() == 1 && !parents.is_empty();
    // the library removes the whole line of a flow map with the field
    if let Some(whole) = whole.filter(|of| !is_only && document.extract(of).starts_with('{')) {
        let kept = map
            .iter()
            .filter(|(key, _)| key.as_str() != keys.last().copied());
        let kept: Vec<String> = kept
            .map(|(key, value)| format!("{}: {}", scalar(key), scalar(value)))
            .collect();
        let (begin, end) = whole.location.byte_span;
        let mut text = document.source().to_owned();
        text.replace_range(begin..end, &format!("{{{}}}", kept.join(", ")));
        return Document::new(text).map_err(|e| e.to_string());
    }
    let removal = Patch {
        route: route(if is_only { parents } else { keys }),
        operation: Op::Remove,
    };
    apply_yaml_patches(document, &[removal]).map_err(|e| e.to_string())
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// Adds the field to its map, or a new map with the field.
fn addition(document: &Document, keys: &[&'static str], value: &Value) -> Patch<'static> {
    let (last, parents) = keys.split_last().unwrap_or((&"", &[]));
    let parent = route(parents);
    let (route, key, value) = match (document.query_exists(&parent), parents.first()) {
        (false, Some(first)) => {
            let mut map = Mapping::new();
            map.insert(Value::from(*last), value.clone());
            (route(&[]), first, Value::Mapping(map))
        }
        _ => (parent, last, value.clone()),
    };
    Patch {
        route,
        operation: Op::Add {
            key: (*key).to_owned(),
            value,
        },
    }
}

/// Verifies that the new file parses to the chosen values, and is otherwise equal to the old one.
fn verify(path: &Path, patched: &str, due: &InferenceDeployment) -> Result<(), TuneError> {
    let own = read_deployment(patched, &path.display().to_string())?;
    match own == *due {
        true => Ok(()),
        false => Err(TuneError::Patch {
            path: path.to_owned(),
            what: "the edited text does not parse to the chosen values: write them by hand"
                .to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests;
