//! The user's file with other values: comments, order and layout stay as they are.

use std::path::Path;

use albacore_api::{InferenceDeployment, MainThread, read_deployment};
use yaml_serde::{Mapping, Value};
use yamlpatch::{Op, Patch, apply_yaml_patches};
use yamlpath::{Component, Document, Route};

use crate::configuration::Configuration;
use crate::error::TuneError;

/// One field below `spec`: its path and its value; `None` removes it.
type Field = (&'static [&'static str], Option<Value>);

/// The file with the values of `chosen` where they differ from `current`.
///
/// # Errors
/// The file's layout does not allow it; nothing is guessed.
pub(crate) fn patched(
    path: &Path,
    text: &str,
    current: &Configuration,
    chosen: &Configuration,
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
    let patched = document.source().to_owned();
    verify(path, text, &patched, chosen)?;
    Ok(patched)
}

fn fields(of: &Configuration) -> Vec<Field> {
    let number = |value: u64| Some(Value::from(value));
    let text = |value: String| Some(Value::from(value));
    let time =
        |time: Option<albacore_api::Timespan>| time.map(|time| Value::from(time.to_string()));
    let is_pinned = of.main_thread == MainThread::Pinned;
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

/// Replaces, adds or removes one field, with the map that it is in.
fn with_field(document: &Document, (keys, value): &Field) -> Result<Document, String> {
    let whole = route(keys);
    let found = document.query_exact(&whole).ok().flatten();
    let operation = match (found, value) {
        (None, None) => return Ok(document.clone()),
        (Some(_), None) => Patch {
            route: whole,
            operation: Op::Remove,
        },
        // only the value's bytes: a replacement by the library loses values of flow maps
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

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// Adds the field to its map, or the map with it.
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

/// What was written has to be read as what was chosen, and as the old file in all else.
fn verify(path: &Path, text: &str, patched: &str, chosen: &Configuration) -> Result<(), TuneError> {
    let name = path.display().to_string();
    let mut due: InferenceDeployment = read_deployment(text, &name)?;
    chosen.apply(&mut due.spec);
    let own = read_deployment(patched, &name)?;
    match own == due {
        true => Ok(()),
        false => Err(TuneError::Patch {
            path: path.to_owned(),
            what: "the edited text has another meaning than the values that were chosen: write them by hand".to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use albacore_api::{BatchingPolicy, Mode};

    const FILE: &str = "\
# A comment at the top.
apiVersion: albacore.dev/v1alpha1
kind: InferenceDeployment
metadata:
  name: fraud
spec:
  workers: 2  # as many as cpus
  threads: 2
  mode: Scatter
  models:
  # the model
  - name: fraud
    uri: file://./fraud.ubj
    slo: {latency: 25ms, percentile: 99}
  batching: {policy: Auto, maxRows: 1024} # flow
";

    fn both(change: impl FnOnce(&mut Configuration)) -> (String, String) {
        let current = Configuration::of(&read_deployment(FILE, "f").unwrap().spec);
        let mut chosen = current.clone();
        change(&mut chosen);
        let text = patched(Path::new("f.yaml"), FILE, &current, &chosen).unwrap();
        let back = Configuration::of(&read_deployment(&text, "f").unwrap().spec);
        assert_eq!(back, chosen);
        (FILE.to_owned(), text)
    }

    #[test]
    fn nothing_changes_without_other_values() {
        let (before, after) = both(|_| {});
        assert_eq!(before, after);
    }

    #[test]
    fn values_change_and_comments_stay() {
        let (before, after) = both(|chosen| {
            chosen.workers = 4;
            chosen.mode = Mode::Compact;
            chosen.max_rows = 256;
        });
        let due = before
            .replace("workers: 2 ", "workers: 4 ")
            .replace("Scatter", "Compact")
            .replace("1024", "256");
        assert_eq!(after, due);
    }

    #[test]
    fn fields_and_maps_that_are_missing_are_added() {
        let (_, after) = both(|chosen| {
            chosen.front_threads = Some(2);
            chosen.main_thread = MainThread::WorkerSet;
            chosen.policy = BatchingPolicy::Timeout;
            chosen.max_delay = albacore_api::Timespan::from_micros(500);
        });
        for line in [
            "# A comment at the top.",
            "# as many as cpus",
            "# the model",
            "# flow",
        ] {
            assert!(after.contains(line), "{after}");
        }
    }
}
