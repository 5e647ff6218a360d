//! Text to [`Settings`].

use std::time::Duration;

use serde_json::Value;

use crate::fields::{Fields, TextOrFields, Unknown};
use crate::invalid::{Invalid, quoted};
use crate::limits::{
    BATCH_ROWS_DEFAULT, DEPTH_MAX, FILE_BYTES_MAX, PERCENTILE_DEFAULT, QUEUE_ROWS_DEFAULT,
};
use crate::settings::{Batching, Iterations, Model, Output, Policy, Queue, Settings, Slo, Source};
use crate::timespan::parse_timespan;

impl Settings {
    /// Reads the text of a file. Fields that have a default may be left out; unknown ones are
    /// refused.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn read(text: &str) -> Result<Self, Invalid> {
        let mut file = Fields::of_whole("the file", tree(text)?, Unknown::Refused)?;
        let models = file.list("models")?;
        let settings = Self {
            models: models.into_iter().map(model).collect::<Result<_, _>>()?,
            batching: batching(file.object("batching")?)?,
            queue: queue(file.object("queue")?)?,
        };
        file.end()?;
        settings.check()?;
        Ok(settings)
    }
}

fn tree(text: &str) -> Result<Value, Invalid> {
    if text.len() > FILE_BYTES_MAX {
        return Err(Invalid::TooLarge { bytes: text.len() });
    }
    let budget = serde_saphyr::budget! { max_depth: DEPTH_MAX };
    let options = serde_saphyr::options! { budget: budget, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map_or(0, |location| location.line());
        let problem = error.to_string();
        let problem = problem.lines().next().unwrap_or_default().to_owned();
        Invalid::NotYaml { line, problem }
    })
}

fn model(mut fields: Fields) -> Result<Model, Invalid> {
    let name = fields.text("name")?;
    let (path, url) = (fields.text("path")?, fields.text("url")?);
    let source = match (path, url) {
        (Some(path), None) => Source::Path(path),
        (None, Some(url)) => Source::Url(url),
        (None, None) => return Err(fields.missing("path", "write path or url")),
        (Some(_), Some(_)) => {
            let problem = "stands beside path: write one of them";
            return Err(Invalid::of(fields.place("url"), problem));
        }
    };
    let model = Model {
        name: name.ok_or_else(|| fields.missing("name", "write the name to serve it under"))?,
        source,
        sha256: fields.parsed("sha256", str::parse)?,
        iterations: iterations(&mut fields)?,
        slo: fields.object("slo")?.map(slo).transpose()?,
        outputs: outputs(&mut fields)?,
    };
    fields.end()?;
    Ok(model)
}

fn iterations(model: &mut Fields) -> Result<Option<Iterations>, Invalid> {
    const FORMS: &str = "write all, best or {begin: 0, end: 100}";
    let mut range = match model.text_or_object("iterations", FORMS)? {
        None => return Ok(None),
        Some(TextOrFields::Text(text)) => {
            return match text.as_str() {
                "all" => Ok(Some(Iterations::All)),
                "best" => Ok(Some(Iterations::Best)),
                other => {
                    let problem = format!("{} are no iterations: {FORMS}", quoted(other));
                    Err(Invalid::of(model.place("iterations"), problem))
                }
            };
        }
        Some(TextOrFields::Fields(fields)) => fields,
    };
    let (begin, end) = (range.whole("begin")?, range.whole("end")?);
    let begin = begin.ok_or_else(|| range.missing("begin", "write the first iteration, as 0"))?;
    let end = end.ok_or_else(|| range.missing("end", "write the number after the last one"))?;
    range.end()?;
    Ok(Some(Iterations::Range { begin, end }))
}

fn outputs(fields: &mut Fields) -> Result<Vec<Output>, Invalid> {
    let names = fields.texts("outputs")?;
    let named = |(index, name): (usize, &String)| {
        Output::named(name).ok_or_else(|| {
            let problem = format!(
                "{} is no output: write output, margin, contribs, interactions or leaf",
                crate::invalid::quoted(name)
            );
            Invalid::of(format!("{}[{index}]", fields.place("outputs")), problem)
        })
    };
    names.iter().enumerate().map(named).collect()
}

pub(crate) fn slo(mut fields: Fields) -> Result<Slo, Invalid> {
    let latency = fields.parsed("latency", parse_timespan)?;
    let slo = Slo {
        latency: latency.ok_or_else(|| fields.missing("latency", "write a time as \"25ms\""))?,
        percentile: fields.number("percentile")?.unwrap_or(PERCENTILE_DEFAULT),
        contribs: fields.parsed("contribs", parse_timespan)?,
        interactions: fields.parsed("interactions", parse_timespan)?,
    };
    fields.end()?;
    Ok(slo)
}

pub(crate) fn batching(fields: Option<Fields>) -> Result<Batching, Invalid> {
    let Some(mut fields) = fields else {
        return Ok(Batching::default());
    };
    let name = fields.text("policy")?;
    let max_rows = fields.whole("max_rows")?.unwrap_or(BATCH_ROWS_DEFAULT);
    let delay: Option<Duration> = fields.parsed("max_delay", parse_timespan)?;
    let policy = match (name.as_deref().unwrap_or("auto"), delay) {
        ("timeout", Some(delay)) => Policy::Timeout { delay },
        ("timeout", None) => {
            return Err(fields.missing("max_delay", "policy timeout needs it, as in \"2ms\""));
        }
        ("auto", None) => Policy::Auto,
        ("deferred", None) => Policy::Deferred,
        ("eager", None) => Policy::Eager,
        ("auto" | "deferred" | "eager", Some(_)) => {
            let problem = "stands beside another policy than timeout: leave it out";
            return Err(Invalid::of(fields.place("max_delay"), problem));
        }
        (other, _) => {
            let other = quoted(other);
            let problem = format!("{other} is no policy: write auto, deferred, timeout or eager");
            return Err(Invalid::of(fields.place("policy"), problem));
        }
    };
    fields.end()?;
    Ok(Batching { policy, max_rows })
}

pub(crate) fn queue(fields: Option<Fields>) -> Result<Queue, Invalid> {
    let Some(mut fields) = fields else {
        return Ok(Queue::default());
    };
    let max_rows = fields.whole("max_rows")?.unwrap_or(QUEUE_ROWS_DEFAULT);
    fields.end()?;
    Ok(Queue { max_rows })
}
