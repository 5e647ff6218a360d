//! What fields must hold, alone and together.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::invalid::{Invalid, quoted};
use crate::limits::{
    BATCH_ROWS_MAX, MODEL_NAME_CHARS_MAX, MODELS_MAX, PERCENTILE_MAX, PERCENTILE_MIN,
    QUEUE_ROWS_MAX, SOURCE_CHARS_MAX,
};
use crate::settings::{Batching, Iterations, Model, Policy, Queue, Settings, Slo, Source};
use crate::timespan::{is_in_bounds, print_timespan};

impl Settings {
    /// Checks values that were not read: [`Settings::read`] has checked what it returns.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Invalid> {
        let Self {
            models,
            batching,
            queue,
        } = self;
        if models.is_empty() {
            return Err(Invalid::of("models", "is empty: name at least one model"));
        }
        if models.len() > MODELS_MAX {
            let problem = format!("has {} entries, at most {MODELS_MAX}", models.len());
            return Err(Invalid::of("models", problem));
        }
        let mut names = BTreeSet::new();
        for (index, model) in models.iter().enumerate() {
            check_model(&format!("models[{index}]"), model)?;
            if !names.insert(&model.name) {
                let problem = format!("{} is used twice: names must differ", quoted(&model.name));
                return Err(Invalid::of(format!("models[{index}].name"), problem));
            }
        }
        let objectives = models.iter().filter_map(|m| Some((&*m.name, m.slo?)));
        check_rules("", batching, queue, objectives)
    }
}

/// What batching, queue and objectives must hold, alone and together. `at` stands before the names
/// of their fields.
pub(crate) fn check_rules<'a>(
    at: &str,
    batching: &Batching,
    queue: &Queue,
    objectives: impl Iterator<Item = (&'a str, Slo)>,
) -> Result<(), Invalid> {
    let rows_at = format!("{at}queue.max_rows");
    check_rows(
        &format!("{at}batching.max_rows"),
        batching.max_rows,
        BATCH_ROWS_MAX,
    )?;
    check_rows(&rows_at, queue.max_rows, QUEUE_ROWS_MAX)?;
    if queue.max_rows < batching.max_rows {
        let problem = format!(
            "{} is below batching.max_rows, {}: a full batch could never wait; raise it or lower \
             batching.max_rows",
            queue.max_rows, batching.max_rows
        );
        return Err(Invalid::of(rows_at, problem));
    }
    match batching.policy {
        Policy::Timeout { delay } => {
            check_delay(&format!("{at}batching.max_delay"), delay, objectives)
        }
        Policy::Auto | Policy::Deferred | Policy::Eager => Ok(()),
    }
}

fn check_model(at: &str, model: &Model) -> Result<(), Invalid> {
    let Model {
        name,
        source,
        sha256: _,
        iterations,
        slo,
        outputs,
    } = model;
    check_name(&format!("{at}.name"), name)?;
    check_source(at, source)?;
    if let Some(Iterations::Range { begin, end }) = *iterations
        && begin >= end
    {
        let problem = format!("{end} is not above begin, {begin}: no iteration is left");
        return Err(Invalid::of(format!("{at}.iterations.end"), problem));
    }
    for (index, output) in outputs.iter().enumerate() {
        if outputs.iter().take(index).any(|other| other == output) {
            let problem = format!("{} is listed twice: list it once", quoted(output.name()));
            return Err(Invalid::of(format!("{at}.outputs[{index}]"), problem));
        }
    }
    slo.as_ref()
        .map_or(Ok(()), |slo| check_slo(&format!("{at}.slo"), slo))
}

pub(crate) fn check_name(at: &str, name: &str) -> Result<(), Invalid> {
    if is_name(name) {
        return Ok(());
    }
    let problem = format!(
        "{} is no name: up to {MODEL_NAME_CHARS_MAX} letters, digits, '-', '_' and '.', with a \
         letter or digit at both ends",
        quoted(name)
    );
    Err(Invalid::of(at, problem))
}

fn is_name(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    let is_inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.len() <= MODEL_NAME_CHARS_MAX
        && text.starts_with(is_end)
        && text.ends_with(is_end)
        && text.chars().all(is_inner)
}

fn check_source(at: &str, source: &Source) -> Result<(), Invalid> {
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
        format!("{} has characters that no {field} has", quoted(text))
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
    Err(Invalid::of(format!("{at}.{field}"), problem))
}

pub(crate) fn check_slo(at: &str, slo: &Slo) -> Result<(), Invalid> {
    check_timespan(&format!("{at}.latency"), slo.latency)?;
    for (name, span) in slo.costlier() {
        check_timespan(&format!("{at}.{name}"), span)?;
    }
    if (PERCENTILE_MIN..=PERCENTILE_MAX).contains(&slo.percentile) {
        return Ok(());
    }
    let problem = format!(
        "{} is not from {PERCENTILE_MIN} to {PERCENTILE_MAX}",
        slo.percentile
    );
    Err(Invalid::of(format!("{at}.percentile"), problem))
}

pub(crate) fn check_timespan(at: &str, span: Duration) -> Result<(), Invalid> {
    if is_in_bounds(span) {
        return Ok(());
    }
    let problem = format!("{span:?} is not a whole number of microseconds from 1us to 600s");
    Err(Invalid::of(at, problem))
}

fn check_rows(at: &str, rows: u32, most: u32) -> Result<(), Invalid> {
    if (1..=most).contains(&rows) {
        return Ok(());
    }
    Err(Invalid::of(at, format!("{rows} is not from 1 to {most}")))
}

fn check_delay<'a>(
    at: &str,
    delay: Duration,
    mut objectives: impl Iterator<Item = (&'a str, Slo)>,
) -> Result<(), Invalid> {
    check_timespan(at, delay)?;
    let Some((name, _)) = objectives.find(|(_, slo)| slo.latency <= delay) else {
        return Ok(());
    };
    let problem = format!(
        "\"{}\" is not shorter than the latency objective of model {name}: every reply that waited \
         would be late",
        print_timespan(delay),
    );
    Err(Invalid::of(at, problem))
}
