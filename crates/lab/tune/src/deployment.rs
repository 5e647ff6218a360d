//! The user's file, from which candidates are derived.

use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_api::{
    InferenceDeployment, ModelPlace, ModelUri, SloSpec, Timespan, read_deployment,
    read_for_one_machine,
};

use crate::configuration::Configuration;
use crate::error::TuneError;
use crate::pod_files;
use crate::request::{Place, TuneRequest};

/// Maximum size of a file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A valid deployment of the built-in server with a latency objective.
#[derive(Debug)]
pub(crate) struct Deployment {
    /// Paths of model files are absolute; each model has the objective.
    object: InferenceDeployment,
    pub(crate) name: String,
    /// Original text.
    pub(crate) text: String,
    pub(crate) models: Vec<String>,
    pub(crate) objective: Duration,
    pub(crate) percentile: f64,
    /// Values in the file.
    pub(crate) current: Configuration,
    /// `None`: not set in the file, for example because an autoscaler sets them.
    pub(crate) replicas: Option<i32>,
}

impl Deployment {
    pub(crate) fn read(request: &TuneRequest) -> Result<Self, TuneError> {
        let file = &request.file;
        let named = file.display().to_string();
        let length = std::fs::metadata(file)
            .map_err(TuneError::file(file))?
            .len();
        if length > FILE_BYTES_MAX {
            let what = format!("{named}: it has {length} bytes, more than {FILE_BYTES_MAX}");
            return Err(TuneError::Usage(what));
        }
        let text = std::fs::read_to_string(file).map_err(TuneError::file(file))?;
        let whole = std::path::absolute(file).map_err(TuneError::file(file))?;
        let folder = whole.parent().unwrap_or(Path::new("/"));
        Self::of_text(text, &named, folder, request)
    }

    /// Parses the text of a file in `folder`.
    pub(crate) fn of_text(
        text: String,
        named: &str,
        folder: &Path,
        request: &TuneRequest,
    ) -> Result<Self, TuneError> {
        let mut object = read_deployment(&text, named)?;
        if !object.spec.is_built_in() {
            let what = "spec.template: a server of your own has neither batching nor learned costs: compare \
                        placements of it with `albacore experiment`";
            return Err(TuneError::Usage(format!("{named}: {what}")));
        }
        match request.place {
            Place::Machine => drop(read_for_one_machine(&text, named, folder)?),
            Place::Pod => pod_files::convert(&mut object, named)?,
        }
        refuse_own_settings(request, &object, named)?;
        let (objective, percentile) = objective(request, &object, named)?;
        for model in &mut object.spec.models {
            model.uri = absolute(&model.uri, folder, named)?;
            model.slo = Some(slo(objective, percentile, named)?);
        }
        Ok(Self {
            name: object.metadata.name.clone().unwrap_or_default(),
            models: object.spec.models.iter().map(|m| m.name.clone()).collect(),
            current: Configuration::of(&object.spec),
            replicas: written_replicas(&text, named)?.filter(|_| object.spec.autoscaling.is_none()),
            object,
            text,
            objective,
            percentile,
        })
    }

    /// The deployment with these values.
    pub(crate) fn with(&self, configuration: &Configuration) -> InferenceDeployment {
        let mut object = self.object.clone();
        configuration.apply(&mut object.spec);
        object
    }

    pub(crate) fn prefer(&self) -> Option<albacore_api::BatchingPreference> {
        self.object.spec.batching.prefer
    }

    /// Maximum share of requests that may be refused or late.
    pub(crate) fn bad_max(&self) -> f64 {
        1.0 - self.percentile / 100.0
    }
}

/// Replicas in the text: a parsed deployment has the default if the text has none.
fn written_replicas(text: &str, named: &str) -> Result<Option<i32>, TuneError> {
    let file: yaml_serde::Value = yaml_serde::from_str(text)
        .map_err(|error| TuneError::Usage(format!("{named}: {error}")))?;
    let replicas = file["spec"]["replicas"].as_i64();
    Ok(replicas.and_then(|number| i32::try_from(number).ok()))
}

/// Rejects settings of a single model that candidates would not change, or not measure.
fn refuse_own_settings(
    request: &TuneRequest,
    object: &InferenceDeployment,
    named: &str,
) -> Result<(), TuneError> {
    for (index, model) in object.spec.models.iter().enumerate() {
        let refused = |field: &str, what: &str| {
            let what = format!("{named}: spec.models[{index}].{field}: {what}");
            Err(TuneError::Usage(what))
        };
        if model.batching.is_some() {
            let what =
                "spec.batching is tuned, which this overrides: remove it from a copy of the file";
            return refused("batching", what);
        }
        let has_others = |slo: SloSpec| slo.contribs.is_some() || slo.interactions.is_some();
        if request.options.latency.is_none() && model.slo.is_some_and(has_others) {
            let what = "one objective is tuned for, but this has several: give one with --latency";
            return refused("slo", what);
        }
    }
    Ok(())
}

/// Latency and percentile, from the options or from the models.
fn objective(
    request: &TuneRequest,
    object: &InferenceDeployment,
    named: &str,
) -> Result<(Duration, f64), TuneError> {
    let slos: Vec<SloSpec> = object.spec.models.iter().filter_map(|m| m.slo).collect();
    let latencies = slos.iter().map(|slo| slo.latency.duration());
    let latency = request.options.latency.or(latencies.clone().min());
    let latency = latency.ok_or_else(|| {
        let what = "no model has an slo: add spec.models[0].slo.latency, or give --latency";
        TuneError::Usage(format!("{named}: {what}"))
    })?;
    let strictest = slos.iter().map(|slo| slo.percentile).reduce(f64::max);
    let percentile = request.options.percentile.or(strictest).unwrap_or(99.0);
    Ok((latency, percentile))
}

fn slo(objective: Duration, percentile: f64, named: &str) -> Result<SloSpec, TuneError> {
    let micros = u64::try_from(objective.as_micros()).unwrap_or(u64::MAX);
    let latency = Timespan::from_micros(micros).ok_or_else(|| {
        let what = "is not between 1us and 10 minutes: give --latency";
        TuneError::Usage(format!("{named}: an objective of {objective:?} {what}"))
    })?;
    // for outputs with their own objective the common one is used, as on the client side
    Ok(SloSpec {
        latency,
        percentile,
        contribs: None,
        interactions: None,
    })
}

/// The URI with a path that does not depend on the folder of the file.
fn absolute(uri: &ModelUri, folder: &Path, named: &str) -> Result<ModelUri, TuneError> {
    let ModelPlace::File { path } = &uri.place else {
        return Ok(uri.clone());
    };
    let path: PathBuf = folder.join(path.strip_prefix("./").unwrap_or(path));
    let path = path
        .to_str()
        .ok_or_else(|| TuneError::Usage(format!("{named}: {} is not UTF-8", path.display())))?;
    Ok(ModelUri {
        place: ModelPlace::File {
            path: path.to_owned(),
        },
        sha256: uri.sha256.clone(),
    })
}
