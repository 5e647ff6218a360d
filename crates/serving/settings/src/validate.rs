//! Validates settings: first single fields, then constraints between fields.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use albacore_batching::{BatchingParams, ModelBatching, Slo};

use crate::limits::{
    BATCH_ROWS_MAX, CATEGORIES_MAX, CATEGORY_CHARS_MAX, CATEGORY_COLUMNS_MAX, CLASS_CHARS_MAX,
    CLASSES_MAX, MODEL_NAME_CHARS_MAX, MODELS_MAX, PERCENTILE_MAX, PERCENTILE_MIN, QUEUE_ROWS_MAX,
    SOURCE_CHARS_MAX, WEIGHT_MAX,
};
use crate::oci::OciReference;
use crate::settings::{
    IterationsSetting, ModelSettings, SchemaNames, Settings, Source, output_latencies,
};
use crate::timespan::{is_in_bounds, print_timespan};
use crate::validation_error::{ValidationError, quoted};

/// Remedy in error messages about the `threads` of a model.
pub(crate) const THREADS_REMEDY: &str = "write auto, or a number from 1 to the threads of a worker";

impl Settings {
    /// Checks that no model uses more than `threads`, the threads of each worker of this server.
    ///
    /// # Errors
    /// The first model that exceeds `threads`.
    pub fn check_threads(&self, threads: usize) -> Result<(), ValidationError> {
        check_threads("", self.models.iter().map(|model| model.threads), threads)
    }

    /// Checks settings built in memory; [`Settings::read`] returns only checked settings.
    ///
    /// # Errors
    /// The first error.
    pub fn check(&self) -> Result<(), ValidationError> {
        let Self { models, batching } = self;
        if models.is_empty() {
            return Err(ValidationError::field(
                "models",
                "is empty: name at least one model",
            ));
        }
        if models.len() > MODELS_MAX {
            let problem = format!("has {} entries, at most {MODELS_MAX}", models.len());
            return Err(ValidationError::field("models", problem));
        }
        let mut names = BTreeSet::new();
        for (index, model) in models.iter().enumerate() {
            check_model(&format!("models[{index}]"), model)?;
            if !names.insert(&model.name) {
                let problem = format!("{} is used twice: names must differ", quoted(&model.name));
                return Err(ValidationError::field(
                    format!("models[{index}].name"),
                    problem,
                ));
            }
        }
        let batched = models.iter().map(|model| BatchedModel {
            name: &model.name,
            slo: model.slo,
            batching: model.batching,
        });
        check_batching("", batching, batched)
    }
}

/// Checks the threads of models, in order, against the `threads` of a worker. `path` is the prefix
/// of their fields in errors.
pub(crate) fn check_threads(
    path: &str,
    models: impl Iterator<Item = Option<u16>>,
    threads: usize,
) -> Result<(), ValidationError> {
    let is_above = |count: Option<u16>| count.filter(|&count| usize::from(count) > threads);
    let mut models = models.enumerate();
    let found = models.find_map(|(index, count)| Some((index, is_above(count)?)));
    found.map_or(Ok(()), |(index, count)| {
        let problem = format!(
            "{count} is above the {threads} threads of a worker of this server: write auto or at \
             most {threads}, or start it with more --threads"
        );
        Err(ValidationError::field(
            format!("{path}models[{index}].threads"),
            problem,
        ))
    })
}

/// The parts of a model that constrain its batching.
pub(crate) struct BatchedModel<'a> {
    pub(crate) name: &'a str,
    pub(crate) slo: Option<Slo>,
    pub(crate) batching: Option<ModelBatching>,
}

/// Checks batching and objectives; `models` are in field order. `path` is the prefix of the fields
/// in errors.
pub(crate) fn check_batching<'a>(
    path: &str,
    params: &BatchingParams,
    models: impl Iterator<Item = BatchedModel<'a>> + Clone,
) -> Result<(), ValidationError> {
    let common = params.of_models();
    let queue_path = format!("{path}queue.max_rows");
    let queue_rows = params.queue_rows_max;
    check_rows(&queue_path, params.queue_rows_max, QUEUE_ROWS_MAX)?;
    let inheriting = models.clone().filter(|model| model.batching.is_none());
    let objectives = inheriting.filter_map(|model| Some((model.name, model.slo?)));
    check_model_batching(
        &format!("{path}batching"),
        &common,
        &queue_path,
        queue_rows,
        objectives,
    )?;
    for (index, model) in models.enumerate() {
        if let Some(batching) = &model.batching {
            let path = format!("{path}models[{index}].batching");
            let objective = model.slo.map(|slo| (model.name, slo)).into_iter();
            check_model_batching(&path, batching, &queue_path, queue_rows, objective)?;
        }
    }
    Ok(())
}

/// Checks one batching object at `path` against the queue bound and the objectives of its models.
fn check_model_batching<'a>(
    path: &str,
    batching: &ModelBatching,
    queue_path: &str,
    queue_rows: usize,
    objectives: impl Iterator<Item = (&'a str, Slo)>,
) -> Result<(), ValidationError> {
    let ModelBatching {
        policy,
        batch_rows_max,
        window,
    } = *batching;
    let rows_path = format!("{path}.max_rows");
    check_rows(&rows_path, batch_rows_max, BATCH_ROWS_MAX)?;
    if queue_rows < batch_rows_max {
        let problem = format!(
            "{queue_rows} is below {rows_path}, {batch_rows_max}: a full batch could never be \
             queued; raise it or lower {rows_path}"
        );
        return Err(ValidationError::field(queue_path, problem));
    }
    if let Some(window) = window {
        let path = format!("{path}.window");
        check_timespan(&path, window)?;
        if !policy.has_window() {
            let problem = format!(
                "\"{}\" is allowed with policy auto or deferred only, which hold requests back \
                 for it: leave it out",
                print_timespan(window)
            );
            return Err(ValidationError::field(path, problem));
        }
    }
    match policy.delay() {
        Some(delay) => check_delay(&format!("{path}.max_delay"), delay, objectives),
        None => Ok(()),
    }
}

pub(crate) fn check_weight(path: &str, weight: u32) -> Result<(), ValidationError> {
    if (1..=WEIGHT_MAX).contains(&weight) {
        return Ok(());
    }
    let problem = format!("{weight} is not from 1 to {WEIGHT_MAX}");
    Err(ValidationError::field(path, problem))
}

fn check_model(path: &str, model: &ModelSettings) -> Result<(), ValidationError> {
    let ModelSettings {
        name,
        source,
        sha256: _,
        iterations,
        slo,
        outputs,
        threads,
        weight,
        batching: _,
        schema_names:
            SchemaNames {
                missing: _,
                classes,
                categories,
            },
    } = model;
    check_model_name(&format!("{path}.name"), name)?;
    check_source(path, source)?;
    if let Some(IterationsSetting::Range { begin, end }) = *iterations
        && begin >= end
    {
        let problem = format!("{end} is not above begin, {begin}: the range is empty");
        return Err(ValidationError::field(
            format!("{path}.iterations.end"),
            problem,
        ));
    }
    for (index, output) in outputs.iter().enumerate() {
        if outputs.iter().take(index).any(|other| other == output) {
            let problem = format!("{} is listed twice: list it once", quoted(output.name()));
            return Err(ValidationError::field(
                format!("{path}.outputs[{index}]"),
                problem,
            ));
        }
    }
    check_classes(&format!("{path}.classes"), classes)?;
    check_categories(&format!("{path}.categories"), categories)?;
    check_threads_nonzero(&format!("{path}.threads"), *threads)?;
    check_weight(&format!("{path}.weight"), *weight)?;
    slo.as_ref()
        .map_or(Ok(()), |slo| check_slo(&format!("{path}.slo"), slo))
}

/// Checks class names. Their number is compared with the model when it is loaded.
fn check_classes(path: &str, classes: &[String]) -> Result<(), ValidationError> {
    if classes.len() == 1 || classes.len() > CLASSES_MAX {
        let problem = format!(
            "has {} names, not from 2 to {CLASSES_MAX}: name each class of the model, by number",
            classes.len()
        );
        return Err(ValidationError::field(path, problem));
    }
    let mut names = BTreeSet::new();
    for (index, name) in classes.iter().enumerate() {
        let problem = match name.chars().count() {
            0 => "is empty: write the name of the class".to_owned(),
            chars if chars > CLASS_CHARS_MAX => {
                format!(
                    "{} has more than {CLASS_CHARS_MAX} characters",
                    quoted(name)
                )
            }
            _ if name.contains(char::is_control) => {
                format!("{} has characters that are not allowed here", quoted(name))
            }
            _ if !names.insert(name) => {
                format!("{} is used twice: names must differ", quoted(name))
            }
            _ => continue,
        };
        return Err(ValidationError::field(format!("{path}[{index}]"), problem));
    }
    Ok(())
}

/// Checks categories of columns. The column names are compared with the model when it is loaded.
fn check_categories(
    path: &str,
    categories: &BTreeMap<String, Vec<String>>,
) -> Result<(), ValidationError> {
    if categories.len() > CATEGORY_COLUMNS_MAX {
        let problem = format!(
            "has {} columns, at most {CATEGORY_COLUMNS_MAX}",
            categories.len()
        );
        return Err(ValidationError::field(path, problem));
    }
    for (column, texts) in categories {
        let path = format!("{path}.{}", quoted(column));
        if column.is_empty() || column.chars().count() > CATEGORY_CHARS_MAX {
            let problem = format!("is not a valid name: use 1 to {CATEGORY_CHARS_MAX} characters");
            return Err(ValidationError::field(path, problem));
        }
        if texts.is_empty() || texts.len() > CATEGORIES_MAX {
            let problem = format!(
                "has {} categories, not from 1 to {CATEGORIES_MAX}: list them by the numbers that \
                 the model was trained with, from 0",
                texts.len()
            );
            return Err(ValidationError::field(path, problem));
        }
        let mut known = BTreeSet::new();
        for (index, text) in texts.iter().enumerate() {
            let problem = match text.chars().count() {
                chars if chars > CATEGORY_CHARS_MAX => {
                    format!(
                        "{} has more than {CATEGORY_CHARS_MAX} characters",
                        quoted(text)
                    )
                }
                _ if !known.insert(text) => {
                    format!("{} is used twice: categories must differ", quoted(text))
                }
                _ => continue,
            };
            return Err(ValidationError::field(format!("{path}[{index}]"), problem));
        }
    }
    Ok(())
}

pub(crate) fn check_threads_nonzero(
    path: &str,
    threads: Option<u16>,
) -> Result<(), ValidationError> {
    if threads == Some(0) {
        let problem = format!("0 is not a valid number of threads: {THREADS_REMEDY}");
        return Err(ValidationError::field(path, problem));
    }
    Ok(())
}

pub(crate) fn check_model_name(path: &str, name: &str) -> Result<(), ValidationError> {
    if is_name(name) {
        return Ok(());
    }
    let problem = format!(
        "{} is not a valid name: use up to {MODEL_NAME_CHARS_MAX} letters, digits, '-', '_' and \
         '.', with a letter or digit at both ends",
        quoted(name)
    );
    Err(ValidationError::field(path, problem))
}

fn is_name(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.len() <= MODEL_NAME_CHARS_MAX
        && text.starts_with(is_end)
        && text.ends_with(is_end)
        && text.chars().all(is_inner)
}

fn check_source(path: &str, source: &Source) -> Result<(), ValidationError> {
    let field = match source {
        Source::Path(_) => "path",
        Source::Url(_) => "url",
    };
    let absolute = match source {
        Source::Path(text) if !text.starts_with('/') || text.ends_with('/') => Err(format!(
            "{} is not an absolute path, as in \"/models/fraud.ubj\"",
            quoted(text)
        )),
        _ => Ok(()),
    };
    absolute
        .and_then(|()| source.check())
        .map_err(|problem| ValidationError::field(format!("{path}.{field}"), problem))
}

/// Schemes of object stores, whose URLs have a bucket and a key.
const OBJECT_SCHEMES: [&str; 3] = ["s3", "gs", "az"];

impl Source {
    /// Checks a path, absolute or not, or a URL.
    ///
    /// # Errors
    /// The problem and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        let (Self::Path(text) | Self::Url(text)) = self;
        let (is_valid, is_web) = match self {
            Self::Path(_) => (true, false),
            Self::Url(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or_default();
                let is_web = ["http", "https"].contains(&scheme);
                let is_object = || OBJECT_SCHEMES.contains(&scheme) && is_bucket_and_key(rest);
                let is_host = !rest.starts_with(['/', '?', '#']) && !rest.is_empty();
                let is_artifact = || OciReference::parse(url).is_some();
                (is_web && is_host || is_object() || is_artifact(), is_web)
            }
        };
        if text.chars().count() > SOURCE_CHARS_MAX {
            Err(format!("is longer than {SOURCE_CHARS_MAX} characters"))
        } else if text.contains(|c: char| c.is_control() || c == ' ' && is_web) {
            let shown = quoted(text);
            Err(format!("{shown} has characters that are not allowed here"))
        } else if !is_valid {
            Err(format!(
                "{} is not an http:// or https:// URL, nor an object, s3://bucket/key, \
                 gs://bucket/key or az://container/key, nor an artifact, {}",
                quoted(text),
                OciReference::FORM
            ))
        } else if matches!(self, Self::Url(_)) && text.contains('#') {
            let shown = quoted(text);
            Err(format!(
                "{shown} has a fragment: write the checksum as sha256"
            ))
        } else {
            Ok(())
        }
    }
}

/// Returns whether `text`, the part of an object URL after the scheme, is a bucket and a key. A key
/// that ends with a slash is the key prefix of a folder.
#[must_use]
pub fn is_bucket_and_key(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    // Stores accept other path segments, but clients rewrite them.
    let is_part = |part: &str| !["", ".", ".."].contains(&part) && !part.contains(char::is_control);
    text.split_once('/').is_some_and(|(bucket, key)| {
        let key = key.strip_suffix('/').unwrap_or(key);
        !bucket.is_empty() && bucket.chars().all(is_name) && key.split('/').all(is_part)
    })
}

pub(crate) fn check_slo(path: &str, slo: &Slo) -> Result<(), ValidationError> {
    check_timespan(&format!("{path}.latency"), slo.latency)?;
    for (name, span) in output_latencies(slo) {
        check_timespan(&format!("{path}.{name}"), span)?;
    }
    if (PERCENTILE_MIN..=PERCENTILE_MAX).contains(&slo.percentile) {
        return Ok(());
    }
    let problem = format!(
        "{} is not from {PERCENTILE_MIN} to {PERCENTILE_MAX}",
        slo.percentile
    );
    Err(ValidationError::field(
        format!("{path}.percentile"),
        problem,
    ))
}

pub(crate) fn check_timespan(path: &str, span: Duration) -> Result<(), ValidationError> {
    if is_in_bounds(span) {
        return Ok(());
    }
    let problem = format!("{span:?} is not a whole number of microseconds from 1us to 600s");
    Err(ValidationError::field(path, problem))
}

fn check_rows(path: &str, rows: usize, most: u32) -> Result<(), ValidationError> {
    if (1..=most as usize).contains(&rows) {
        return Ok(());
    }
    Err(ValidationError::field(
        path,
        format!("{rows} is not from 1 to {most}"),
    ))
}

fn check_delay<'a>(
    path: &str,
    delay: Duration,
    mut objectives: impl Iterator<Item = (&'a str, Slo)>,
) -> Result<(), ValidationError> {
    check_timespan(path, delay)?;
    let Some((name, _)) = objectives.find(|(_, slo)| slo.latency <= delay) else {
        return Ok(());
    };
    let problem = format!(
        "\"{}\" is not shorter than the latency objective of model {name}: every reply that waited \
         would be late",
        print_timespan(delay),
    );
    Err(ValidationError::field(path, problem))
}
