//! Validates settings: each field alone, then fields that depend on each other.

use std::collections::BTreeSet;
use std::time::Duration;

use albacore_batching::{BatchingParams, Slo};

use crate::limits::{
    BATCH_ROWS_MAX, MODEL_NAME_CHARS_MAX, MODELS_MAX, PERCENTILE_MAX, PERCENTILE_MIN,
    QUEUE_ROWS_MAX, SOURCE_CHARS_MAX,
};
use crate::settings::{Iterations, Model, Settings, Source, output_latencies};
use crate::timespan::{is_in_bounds, print_timespan};
use crate::validation_error::{ValidationError, quoted};

/// What to write as `threads` of a model.
pub(crate) const THREADS_REMEDY: &str = "write auto, or from 1 to the threads of a worker";

impl Settings {
    /// Checks the settings against the `threads` that a worker of this server has.
    ///
    /// # Errors
    /// The first model that asks for more.
    pub fn check_threads(&self, threads: usize) -> Result<(), ValidationError> {
        let mut models = self.models.iter().enumerate();
        let is_above = |model: &Model| model.threads.filter(|&own| usize::from(own) > threads);
        let found = models.find_map(|(index, model)| Some((index, is_above(model)?)));
        found.map_or(Ok(()), |(index, own)| {
            let problem = format!(
                "{own} is above the {threads} of a worker of this server: write auto or at most \
                 {threads}, or start it with more --threads"
            );
            Err(ValidationError::field(
                format!("models[{index}].threads"),
                problem,
            ))
        })
    }

    /// Checks settings that were built in memory; [`Settings::read`] returns checked ones.
    ///
    /// # Errors
    /// The first error that is found.
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
        let objectives = models.iter().filter_map(|m| Some((&*m.name, m.slo?)));
        check_batching("", batching, objectives)
    }
}

/// Checks batching and objectives. `path` is the prefix of their fields in errors.
pub(crate) fn check_batching<'a>(
    path: &str,
    params: &BatchingParams,
    objectives: impl Iterator<Item = (&'a str, Slo)>,
) -> Result<(), ValidationError> {
    let queue_path = format!("{path}queue.max_rows");
    let batch_path = format!("{path}batching.max_rows");
    check_rows(&batch_path, params.batch_rows_max, BATCH_ROWS_MAX)?;
    check_rows(&queue_path, params.queue_rows_max, QUEUE_ROWS_MAX)?;
    if params.queue_rows_max < params.batch_rows_max {
        let problem = format!(
            "{} is below batching.max_rows, {}: a full batch could never wait; raise it or lower \
             batching.max_rows",
            params.queue_rows_max, params.batch_rows_max
        );
        return Err(ValidationError::field(queue_path, problem));
    }
    match params.policy.delay() {
        Some(delay) => check_delay(&format!("{path}batching.max_delay"), delay, objectives),
        None => Ok(()),
    }
}

fn check_model(path: &str, model: &Model) -> Result<(), ValidationError> {
    let Model {
        name,
        source,
        sha256: _,
        iterations,
        slo,
        outputs,
        threads,
    } = model;
    check_model_name(&format!("{path}.name"), name)?;
    check_source(path, source)?;
    if let Some(Iterations::Range { begin, end }) = *iterations
        && begin >= end
    {
        let problem = format!("{end} is not above begin, {begin}: no iteration is left");
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
    if *threads == Some(0) {
        let problem = format!("0 is not a number of threads: {THREADS_REMEDY}");
        return Err(ValidationError::field(format!("{path}.threads"), problem));
    }
    slo.as_ref()
        .map_or(Ok(()), |slo| check_slo(&format!("{path}.slo"), slo))
}

pub(crate) fn check_model_name(path: &str, name: &str) -> Result<(), ValidationError> {
    if is_name(name) {
        return Ok(());
    }
    let problem = format!(
        "{} is not a name: use up to {MODEL_NAME_CHARS_MAX} letters, digits, '-', '_' and '.', with a \
         letter or digit at both ends",
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
    let (field, text, form) = match source {
        Source::Path(text) => (
            "path",
            text,
            "an absolute path, as in \"/models/fraud.ubj\"",
        ),
        Source::Url(text) => ("url", text, "an http:// or https:// URL"),
    };
    let is_right = match source {
        Source::Path(text) => text.starts_with('/') && !text.ends_with('/'),
        Source::Url(text) => ["http://", "https://"].iter().any(|scheme| {
            let rest = text.strip_prefix(scheme);
            rest.is_some_and(|rest| !rest.starts_with(['/', '?', '#']) && !rest.is_empty())
        }),
    };
    let is_blank = |c: char| c == ' ' && matches!(source, Source::Url(_));
    let problem = if text.chars().count() > SOURCE_CHARS_MAX {
        format!("is longer than {SOURCE_CHARS_MAX} characters")
    } else if text.contains(|c: char| c.is_control() || is_blank(c)) {
        format!(
            "{} has characters that are not allowed in a {field}",
            quoted(text)
        )
    } else if !is_right {
        format!("{} is not {form}", quoted(text))
    } else if matches!(source, Source::Url(_)) && text.contains('#') {
        format!(
            "{} has a fragment: write the checksum as sha256",
            quoted(text)
        )
    } else {
        return Ok(());
    };
    Err(ValidationError::field(format!("{path}.{field}"), problem))
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
