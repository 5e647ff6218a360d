//! Converts a spec to the text of `settings.yaml`, with the paths where the files of its models are
//! mounted.

use std::collections::BTreeMap;
use std::time::Duration;

use albacore_api::{
    BatchingPolicy, InferenceDeploymentSpec, IterationRange, Iterations, Model, ModelPlace,
    NamedIterations, Output, Violation,
};
use albacore_settings::{Batching, Policy, Queue, Settings, Slo, Source};

use crate::names::MODELS_FOLDER;

/// A volume that holds models.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ModelVolume {
    /// A PersistentVolumeClaim, by name.
    Claim(String),
    /// A ConfigMap, by name.
    ConfigMap(String),
}

impl ModelVolume {
    /// Where it is mounted.
    pub(crate) fn folder(&self) -> String {
        match self {
            Self::Claim(name) => format!("{MODELS_FOLDER}/pvc/{name}"),
            Self::ConfigMap(name) => format!("{MODELS_FOLDER}/configmap/{name}"),
        }
    }
}

/// The volumes of the models, each once, with their mount paths.
pub(crate) fn model_volumes(models: &[Model]) -> BTreeMap<ModelVolume, String> {
    let volumes = models.iter().filter_map(|model| match &model.uri.place {
        ModelPlace::Pvc { claim, .. } => Some(ModelVolume::Claim(claim.clone())),
        ModelPlace::ConfigMap { name, .. } => Some(ModelVolume::ConfigMap(name.clone())),
        ModelPlace::File { .. } | ModelPlace::Http { .. } => None,
    });
    volumes
        .map(|volume| (volume.clone(), volume.folder()))
        .collect()
}

/// The text of `settings.yaml` for a valid spec.
///
/// # Errors
/// The settings would be refused by the server's own check.
pub(crate) fn settings_of(spec: &InferenceDeploymentSpec) -> Result<String, Violation> {
    let models = spec.models.iter().enumerate();
    let models = models.map(|(index, model)| settings_of_model(index, model));
    let policy = match spec.batching.policy {
        BatchingPolicy::Auto => Policy::Auto,
        BatchingPolicy::Deferred => Policy::Deferred,
        BatchingPolicy::Eager => Policy::Eager,
        BatchingPolicy::Timeout => Policy::Timeout {
            // The rules require a delay here; a zero is refused by the check below.
            delay: spec
                .batching
                .max_delay
                .map_or(Duration::ZERO, |d| d.duration()),
        },
    };
    let settings = Settings {
        models: models.collect::<Result<_, _>>()?,
        batching: Batching {
            policy,
            max_rows: spec.batching.max_rows,
        },
        queue: Queue {
            max_rows: spec.queue.max_rows,
        },
    };
    settings.check().map_err(|invalid| Violation {
        field: "spec".to_owned(),
        problem: format!("makes settings that the server would refuse: {invalid}"),
        line: None,
    })?;
    Ok(settings.to_yaml())
}

fn settings_of_model(index: usize, model: &Model) -> Result<albacore_settings::Model, Violation> {
    let digest = model.uri.sha256.as_deref().map(str::parse).transpose();
    let sha256 = digest.map_err(|problem: String| Violation {
        field: format!("spec.models[{index}].uri"),
        problem,
        line: None,
    })?;
    Ok(albacore_settings::Model {
        name: model.name.clone(),
        source: source_of(&model.uri.place),
        sha256,
        iterations: model.iterations.map(iterations_of),
        slo: model.slo.map(|slo| Slo {
            latency: slo.latency.duration(),
            percentile: slo.percentile,
            contribs: slo.contribs.map(|span| span.duration()),
            interactions: slo.interactions.map(|span| span.duration()),
        }),
        outputs: model.outputs.iter().map(output).collect(),
    })
}

fn iterations_of(iterations: Iterations) -> albacore_settings::Iterations {
    match iterations {
        Iterations::Named(NamedIterations::All) => albacore_settings::Iterations::All,
        Iterations::Named(NamedIterations::Best) => albacore_settings::Iterations::Best,
        Iterations::Range(IterationRange { begin, end }) => {
            albacore_settings::Iterations::Range { begin, end }
        }
    }
}

fn output(output: &Output) -> albacore_settings::Output {
    match output {
        Output::Output => albacore_settings::Output::Output,
        Output::Margin => albacore_settings::Output::Margin,
        Output::Contribs => albacore_settings::Output::Contribs,
        Output::Interactions => albacore_settings::Output::Interactions,
        Output::Leaf => albacore_settings::Output::Leaf,
    }
}

/// Where the server finds a model's file.
pub(crate) fn source_of(place: &ModelPlace) -> Source {
    match place {
        ModelPlace::File { path } => Source::Path(path.clone()),
        ModelPlace::Pvc { claim, path } => {
            let folder = ModelVolume::Claim(claim.clone()).folder();
            Source::Path(format!("{folder}/{path}"))
        }
        ModelPlace::ConfigMap { name, key } => {
            let folder = ModelVolume::ConfigMap(name.clone()).folder();
            Source::Path(format!("{folder}/{key}"))
        }
        ModelPlace::Http { url } => Source::Url(url.clone()),
    }
}
