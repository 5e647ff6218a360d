//! Parses the text of a settings file.

use std::time::Duration;

use albacore_batching::{BatchingParams, ModelBatching, Policy, Prefer, Slo};
use serde_json::Value;

use crate::limits::{DEPTH_MAX, FILE_BYTES_MAX, PERCENTILE_DEFAULT, WEIGHT_DEFAULT};
use crate::object_reader::{ObjectReader, StringOrNumber, StringOrObject, UnknownFields};
use crate::settings::{
    IterationsSetting, MissingColumnPolicy, ModelSettings, Output, SchemaNames, Settings, Source,
};
use crate::timespan::parse_timespan;
use crate::validate::THREADS_REMEDY;
use crate::validation_error::{ValidationError, quoted};

impl Settings {
    /// Parses and checks the text of a settings file. Fields with a default may be omitted; unknown
    /// fields are rejected.
    ///
    /// # Errors
    /// The first error.
    pub fn read(text: &str) -> Result<Self, ValidationError> {
        let yaml = parse(text)?;
        let mut file = ObjectReader::root("the file", yaml, UnknownFields::Reject)?;
        let models = file.objects("models")?;
        let settings = Self {
            models: models.into_iter().map(model).collect::<Result<_, _>>()?,
            batching: batching(file.object("batching")?, file.object("queue")?)?,
        };
        file.finish()?;
        settings.check()?;
        Ok(settings)
    }
}

fn parse(text: &str) -> Result<Value, ValidationError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(ValidationError::FileTooLarge { bytes: text.len() });
    }
    let budget = serde_saphyr::budget! { max_depth: DEPTH_MAX };
    let options = serde_saphyr::options! { budget: budget, with_snippet: false };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map_or(0, |location| location.line());
        let problem = error.to_string();
        let problem = problem.lines().next().unwrap_or_default().to_owned();
        ValidationError::NotYaml { line, problem }
    })
}

fn model(mut object: ObjectReader) -> Result<ModelSettings, ValidationError> {
    let name = object.string("name")?;
    let (path, url) = (object.string("path")?, object.string("url")?);
    let source = match (path, url) {
        (Some(path), None) => Source::Path(path),
        (None, Some(url)) => Source::Url(url),
        (None, None) => return Err(object.missing("path", "write path or url")),
        (Some(_), Some(_)) => {
            let problem = "cannot be combined with path: write one of them";
            return Err(ValidationError::field(object.path_of("url"), problem));
        }
    };
    let model = ModelSettings {
        name: name.ok_or_else(|| object.missing("name", "write the name to serve it under"))?,
        source,
        sha256: object.parsed("sha256", str::parse)?,
        iterations: iterations(&mut object)?,
        slo: object.object("slo")?.map(slo).transpose()?,
        outputs: outputs(&mut object)?,
        threads: threads(&mut object)?,
        weight: weight(&mut object)?,
        batching: object.object("batching")?.map(model_batching).transpose()?,
        schema_names: schema_names(&mut object)?,
    };
    object.finish()?;
    Ok(model)
}

fn iterations(model: &mut ObjectReader) -> Result<Option<IterationsSetting>, ValidationError> {
    const REMEDY: &str = "write all, best or {begin: 0, end: 100}";
    let mut range = match model.string_or_object("iterations", REMEDY)? {
        None => return Ok(None),
        Some(StringOrObject::String(text)) => {
            return match text.as_str() {
                "all" => Ok(Some(IterationsSetting::All)),
                "best" => Ok(Some(IterationsSetting::Best)),
                other => {
                    let problem =
                        format!("{} is not a range of iterations: {REMEDY}", quoted(other));
                    Err(ValidationError::field(model.path_of("iterations"), problem))
                }
            };
        }
        Some(StringOrObject::Object(range)) => range,
    };
    let (begin, end) = (range.u32("begin")?, range.u32("end")?);
    let begin = begin.ok_or_else(|| range.missing("begin", "write the first iteration, as 0"))?;
    let end = end.ok_or_else(|| range.missing("end", "write the number after the last one"))?;
    range.finish()?;
    Ok(Some(IterationsSetting::Range { begin, end }))
}

fn schema_names(model: &mut ObjectReader) -> Result<SchemaNames, ValidationError> {
    let missing = model.parsed("missing", |name| {
        let found = MissingColumnPolicy::from_name(name);
        found.ok_or_else(|| "is neither refuse nor nan: write one of them".to_owned())
    })?;
    Ok(SchemaNames {
        missing: missing.unwrap_or_default(),
        classes: model.strings("classes")?,
        categories: model.lists_of_strings("categories")?,
    })
}

fn outputs(model: &mut ObjectReader) -> Result<Vec<Output>, ValidationError> {
    let names = model.strings("outputs")?;
    let output = |(index, name): (usize, &String)| {
        Output::from_name(name).ok_or_else(|| {
            let problem = format!(
                "{} is not an output: write output, margin, contribs, interactions or leaf",
                quoted(name)
            );
            ValidationError::field(format!("{}[{index}]", model.path_of("outputs")), problem)
        })
    };
    names.iter().enumerate().map(output).collect()
}

pub(crate) fn threads(model: &mut ObjectReader) -> Result<Option<u16>, ValidationError> {
    let path = model.path_of("threads");
    let problem = |shown: String| {
        let problem = format!("{shown} is not a valid number of threads: {THREADS_REMEDY}");
        ValidationError::field(path.as_str(), problem)
    };
    match model.string_or_number("threads")? {
        None => Ok(None),
        Some(StringOrNumber::String(text)) if text == "auto" => Ok(None),
        Some(StringOrNumber::String(text)) => Err(problem(quoted(&text))),
        Some(StringOrNumber::Number(number)) => u16::try_from(number)
            .map(Some)
            .map_err(|_| problem(number.to_string())),
    }
}

pub(crate) fn weight(model: &mut ObjectReader) -> Result<u32, ValidationError> {
    Ok(model.u32("weight")?.unwrap_or(WEIGHT_DEFAULT))
}

pub(crate) fn slo(mut object: ObjectReader) -> Result<Slo, ValidationError> {
    let latency = object.parsed("latency", parse_timespan)?;
    let slo = Slo {
        latency: latency.ok_or_else(|| object.missing("latency", "write a time as \"25ms\""))?,
        percentile: object.f64("percentile")?.unwrap_or(PERCENTILE_DEFAULT),
        contribs: object.parsed("contribs", parse_timespan)?,
        interactions: object.parsed("interactions", parse_timespan)?,
    };
    object.finish()?;
    Ok(slo)
}

/// Parses the batching policy and the queue bound; an absent object has the defaults.
pub(crate) fn batching(
    batching: Option<ObjectReader>,
    queue: Option<ObjectReader>,
) -> Result<BatchingParams, ValidationError> {
    let models = batching
        .map(model_batching)
        .transpose()?
        .unwrap_or_default();
    let mut params = BatchingParams {
        policy: models.policy,
        batch_rows_max: models.batch_rows_max,
        window: models.window,
        ..BatchingParams::default()
    };
    if let Some(mut object) = queue {
        if let Some(rows) = object.u32("max_rows")? {
            params.queue_rows_max = rows as usize;
        }
        object.finish()?;
    }
    Ok(params)
}

/// Parses the batching policy and its bounds; omitted fields have their defaults.
pub(crate) fn model_batching(mut object: ObjectReader) -> Result<ModelBatching, ValidationError> {
    let mut batching = ModelBatching {
        policy: policy(&mut object)?,
        ..ModelBatching::default()
    };
    if let Some(rows) = object.u32("max_rows")? {
        batching.batch_rows_max = rows as usize;
    }
    batching.window = object.parsed("window", parse_timespan)?;
    object.finish()?;
    Ok(batching)
}

fn policy(batching: &mut ObjectReader) -> Result<Policy, ValidationError> {
    let name = batching.string("policy")?;
    let delay: Option<Duration> = batching.parsed("max_delay", parse_timespan)?;
    let prefer = batching.parsed("prefer", parse_prefer)?;
    let policy = match (name.as_deref().unwrap_or("auto"), delay) {
        ("timeout", Some(delay)) => Policy::Timeout { delay },
        ("timeout", None) => {
            return Err(batching.missing("max_delay", "policy timeout needs it, as in \"2ms\""));
        }
        ("auto", None) => Policy::Auto(prefer.unwrap_or_default()),
        ("deferred", None) => Policy::Deferred,
        ("eager", None) => Policy::Eager,
        ("auto" | "deferred" | "eager", Some(_)) => {
            return Err(only_with(batching, "max_delay", "timeout"));
        }
        (other, _) => {
            let other = quoted(other);
            let problem =
                format!("{other} is not a policy: write auto, deferred, timeout or eager");
            return Err(ValidationError::field(batching.path_of("policy"), problem));
        }
    };
    match (policy, prefer) {
        (Policy::Auto(_), _) | (_, None) => Ok(policy),
        (_, Some(_)) => Err(only_with(batching, "prefer", "auto")),
    }
}

fn only_with(batching: &ObjectReader, field: &str, policy: &str) -> ValidationError {
    let problem = format!("is allowed with policy {policy} only: leave it out");
    ValidationError::field(batching.path_of(field), problem)
}

fn parse_prefer(name: &str) -> Result<Prefer, String> {
    Prefer::from_name(name).ok_or_else(|| {
        let [first, second] = Prefer::ALL.map(Prefer::name);
        format!("is not a preference: write {first} or {second}")
    })
}
