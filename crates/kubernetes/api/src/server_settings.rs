//! Converts a spec to the settings of the built-in server.

use std::time::Duration;

use albacore_settings::agent_stream::ModelParameters;
use albacore_settings::{BatchingParams, Policy, Prefer, SchemaNames, Settings, Source};

use crate::deployment::{
    Batching, BatchingPolicy, BatchingPreference, InferenceDeploymentSpec, ModelSpec, SloSpec,
};
use crate::iterations::{IterationRangeSpec, IterationsSpec, NamedIterations};
use crate::missing_columns::MissingColumns;
use crate::model_threads::ModelThreads;
use crate::output::OutputSpec;
use crate::uri::ModelPlace;
use crate::violation::Violation;

/// The settings of a valid spec; `source_of` maps a model's place to the source for the server.
///
/// # Errors
/// Every model without a source, or settings that the server's own validation would reject.
pub fn settings_of(
    spec: &InferenceDeploymentSpec,
    source_of: impl Fn(&ModelPlace) -> Result<Source, String>,
) -> Result<Settings, Vec<Violation>> {
    let (mut models, mut refused) = (Vec::new(), Vec::new());
    for (index, model) in spec.models.iter().enumerate() {
        match model_of(spec, model, &source_of) {
            Ok(model) => models.push(model),
            Err(problem) => {
                refused.push(Violation::new(format!("spec.models[{index}].uri"), problem));
            }
        }
    }
    if !refused.is_empty() {
        return Err(refused);
    }
    let settings = Settings {
        models,
        batching: spec.batching_params(),
    };
    settings.check().map_err(|invalid| {
        let problem = format!("gives invalid settings of the server: {invalid}");
        vec![Violation::new("spec", problem)]
    })?;
    Ok(settings)
}

/// A model of the settings, or the error of its URI.
fn model_of(
    spec: &InferenceDeploymentSpec,
    model: &ModelSpec,
    source_of: impl Fn(&ModelPlace) -> Result<Source, String>,
) -> Result<albacore_settings::ModelSettings, String> {
    let ModelParameters {
        model: name,
        threads,
        weight,
        batching,
    } = spec.parameters_of(model);
    Ok(albacore_settings::ModelSettings {
        name,
        source: source_of(&model.uri.place)?,
        sha256: model.uri.sha256.as_deref().map(str::parse).transpose()?,
        iterations: model.iterations.map(Into::into),
        slo: model.slo.map(Into::into),
        outputs: model.outputs.iter().copied().map(Into::into).collect(),
        threads,
        weight,
        batching,
        schema_names: SchemaNames {
            missing: model.missing.into(),
            classes: model.classes.clone(),
            categories: model.categories.clone(),
        },
    })
}

impl InferenceDeploymentSpec {
    /// The release rule of batches, and the bound on queued rows.
    pub fn batching_params(&self) -> BatchingParams {
        let albacore_settings::ModelBatching {
            policy,
            batch_rows_max,
            window,
        } = self.batching.into();
        BatchingParams {
            policy,
            batch_rows_max,
            window,
            queue_rows_max: self.queue.max_rows as usize,
        }
    }

    /// The parameters of each model that can change while it is served, without its objective.
    pub fn model_parameters(&self) -> Vec<ModelParameters> {
        let models = self.models.iter();
        models.map(|model| self.parameters_of(model)).collect()
    }

    fn parameters_of(&self, model: &ModelSpec) -> ModelParameters {
        ModelParameters {
            model: model.name.clone(),
            threads: model.threads.and_then(ModelThreads::most),
            weight: model.weight.into(),
            batching: model.batching.map(|_| self.batching_of(model).into()),
        }
    }
}

impl From<Batching> for albacore_settings::ModelBatching {
    fn from(batching: Batching) -> Self {
        let policy = match batching.policy {
            BatchingPolicy::Auto => {
                Policy::Auto(batching.prefer.map(Into::into).unwrap_or_default())
            }
            BatchingPolicy::Deferred => Policy::Deferred,
            BatchingPolicy::Eager => Policy::Eager,
            BatchingPolicy::Timeout => Policy::Timeout {
                // A valid spec has a delay; zero is rejected by the validation of the settings.
                delay: batching
                    .max_delay
                    .map_or(Duration::ZERO, |delay| delay.duration()),
            },
        };
        Self {
            policy,
            batch_rows_max: batching.max_rows as usize,
            window: batching.window.map(|window| window.duration()),
        }
    }
}

impl From<BatchingPreference> for Prefer {
    fn from(preference: BatchingPreference) -> Self {
        match preference {
            BatchingPreference::ShortWaits => Self::ShortWaits,
            BatchingPreference::IdleWorkers => Self::IdleWorkers,
        }
    }
}

impl From<SloSpec> for albacore_settings::Slo {
    fn from(slo: SloSpec) -> Self {
        Self {
            latency: slo.latency.duration(),
            percentile: slo.percentile,
            contribs: slo.contribs.map(|span| span.duration()),
            interactions: slo.interactions.map(|span| span.duration()),
        }
    }
}

impl From<IterationsSpec> for albacore_settings::IterationsSetting {
    fn from(iterations: IterationsSpec) -> Self {
        match iterations {
            IterationsSpec::Named(NamedIterations::All) => Self::All,
            IterationsSpec::Named(NamedIterations::Best) => Self::Best,
            IterationsSpec::Range(IterationRangeSpec { begin, end }) => Self::Range { begin, end },
        }
    }
}

impl From<MissingColumns> for albacore_settings::MissingColumnPolicy {
    fn from(missing: MissingColumns) -> Self {
        match missing {
            MissingColumns::Refuse => Self::Refuse,
            MissingColumns::Nan => Self::Nan,
        }
    }
}

impl From<OutputSpec> for albacore_settings::Output {
    fn from(output: OutputSpec) -> Self {
        match output {
            OutputSpec::Output => Self::Output,
            OutputSpec::Margin => Self::Margin,
            OutputSpec::Contribs => Self::Contribs,
            OutputSpec::Interactions => Self::Interactions,
            OutputSpec::Leaf => Self::Leaf,
        }
    }
}
