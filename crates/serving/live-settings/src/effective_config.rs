//! Effective batching and objectives: those of the settings, or those of the params stream, which
//! override them (crate `params-client` defines when).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use albacore_engine::{BatchingParams, Engine, ModelSlotsExhausted, Slo};
use albacore_proto::params::LatencyReport;
use albacore_settings::agent_stream::{ModelParameters, Parameters};
use albacore_settings::{ModelBatching, ModelSettings};
use tokio::sync::Notify;

/// Parameters of a served model that can change.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    pub slo: Option<Slo>,
    pub parameters: ModelParameters,
}

impl From<&ModelSettings> for ModelConfig {
    fn from(model: &ModelSettings) -> Self {
        Self {
            slo: model.slo,
            parameters: model.parameters(),
        }
    }
}

/// The only owner of the engine's batching and objectives: no other code sets them.
#[derive(Debug)]
pub struct EffectiveConfig {
    engine: Arc<Engine>,
    sources: Mutex<Sources>,
    /// Wakes [`EffectiveConfig::report_period`].
    changed: Notify,
}

/// Configuration from the settings and from the stream.
#[derive(Debug)]
struct Sources {
    settings_batching: BatchingParams,
    settings_models: Vec<ModelConfig>,
    /// Overrides the settings; retained for a while after the stream is lost.
    stream: Option<Parameters>,
    /// `None` without `--params`.
    status: Option<StreamStatus>,
    /// When the stream that sent `stream` was lost.
    lost_at: Option<Instant>,
}

/// State of the params stream.
#[derive(Clone, Debug, Default)]
pub struct StreamStatus {
    /// Whether the stream is open and a message was received.
    pub is_connected: bool,
    /// Effective parameters of the stream; `None` while the settings are effective.
    pub parameters: Option<Parameters>,
    /// Why the last message was rejected.
    pub refused: Option<String>,
    /// Number of applied messages.
    pub applied_total: u64,
    /// Number of rejected messages.
    pub refused_total: u64,
    /// Number of ended streams and failed connection attempts.
    pub lost_total: u64,
}

impl EffectiveConfig {
    /// `has_stream`: whether a params stream is configured (`--params`). The engine is configured
    /// only by [`EffectiveConfig::set_settings`].
    pub fn new(engine: Arc<Engine>, batching: BatchingParams, has_stream: bool) -> Self {
        let sources = Sources {
            settings_batching: batching,
            settings_models: Vec::new(),
            stream: None,
            status: has_stream.then(StreamStatus::default),
            lost_at: None,
        };
        Self {
            engine,
            sources: Mutex::new(sources),
            changed: Notify::new(),
        }
    }

    /// Replaces the settings. While the stream is lost, new settings take precedence over its
    /// parameters.
    ///
    /// # Errors
    /// There are more models than slots.
    pub fn set_settings(
        &self,
        batching: BatchingParams,
        models: Vec<ModelConfig>,
    ) -> Result<(), ModelSlotsExhausted> {
        let mut sources = self.lock();
        sources.settings_batching = batching;
        sources.settings_models = models;
        if sources.lost_at.is_some() {
            sources.discard_stream();
        }
        self.apply(&sources)
    }

    /// Replaces the parameters of the stream; returns whether they differ from the previous ones.
    pub fn set_stream(&self, parameters: Parameters) -> bool {
        let mut sources = self.lock();
        sources.lost_at = None;
        let is_changed = sources.stream.as_ref() != Some(&parameters);
        sources.stream = Some(parameters);
        sources.update_status(|status| {
            status.is_connected = true;
            status.refused = None;
            status.applied_total += 1;
        });
        if is_changed {
            self.apply_or_log(&sources);
            self.changed.notify_waiters();
        }
        is_changed
    }

    /// Applies the stream parameters of the previous front, if any.
    pub fn inherit_stream(&self, parameters: Option<Parameters>) {
        let mut sources = self.lock();
        sources.stream = parameters;
        self.apply_or_log(&sources);
        self.changed.notify_waiters();
    }

    /// Returns whether parameters of the stream are effective.
    pub fn has_parameters(&self) -> bool {
        self.lock().stream.is_some()
    }

    /// Records that a message of the stream is invalid; returns whether the error is new.
    pub fn reject_message(&self, error: &str) -> bool {
        let mut sources = self.lock();
        sources.lost_at = None;
        let mut is_new = false;
        sources.update_status(|status| {
            status.is_connected = true;
            status.refused_total += 1;
            is_new = status.refused.as_deref() != Some(error);
            status.refused = Some(error.to_owned());
        });
        is_new
    }

    /// Records that the stream ended or could not be opened.
    pub fn set_stream_disconnected(&self) {
        let mut sources = self.lock();
        if sources.stream.is_some() {
            sources.lost_at.get_or_insert_with(Instant::now);
        }
        sources.update_status(|status| {
            status.is_connected = false;
            status.lost_total += 1;
        });
    }

    /// Reverts to the settings if the stream was lost at least `retention` ago; returns whether it
    /// did.
    pub fn expire_stream(&self, retention: Duration) -> bool {
        let mut sources = self.lock();
        let is_expired = sources.lost_at.is_some_and(|at| at.elapsed() >= retention);
        if is_expired {
            sources.discard_stream();
            self.apply_or_log(&sources);
        }
        is_expired
    }

    /// Returns the effective batching, and the state of the stream if one is configured.
    pub fn current(&self) -> (BatchingParams, Option<StreamStatus>) {
        let sources = self.lock();
        let status = sources.status.clone().map(|status| StreamStatus {
            parameters: sources.stream.clone(),
            ..status
        });
        (sources.batching(), status)
    }

    /// Returns the number of compute threads of a worker.
    pub fn threads(&self) -> usize {
        self.engine.threads()
    }

    /// Returns the effective batching of a model.
    pub fn batching_of(&self, model: &str) -> ModelBatching {
        let sources = self.lock();
        let mut models = sources.models();
        let found = models.find(|config| config.parameters.model == model);
        let own = found.and_then(|config| config.parameters.batching);
        own.unwrap_or_else(|| sources.batching().of_models())
    }

    /// Returns the effective weight of a model.
    pub fn weight(&self, model: &str) -> Option<u32> {
        let sources = self.lock();
        let mut models = sources.models();
        let found = models.find(|config| config.parameters.model == model);
        found.map(|config| config.parameters.weight)
    }

    /// Waits until the stream requests latency reports; returns their interval.
    pub async fn report_period(&self) -> Duration {
        // bound: one iteration per change of the stream's parameters.
        loop {
            let changed = self.changed.notified();
            let stream = self.lock().stream.as_ref().map(|stream| stream.report);
            if let Some(period) = stream.flatten() {
                return period;
            }
            changed.await;
        }
    }

    /// Returns the histogram of latency from arrival to reply since startup, over all models and
    /// kinds of output.
    pub fn latency_report(&self) -> LatencyReport {
        let stats = self.engine.stats();
        let kinds = stats.models.iter().flat_map(|model| &model.kinds);
        let mut report = LatencyReport::default();
        for histogram in kinds.map(|kind| &kind.total_nanos) {
            let bounds = histogram.bounds.iter().map(|nanos| nanos / 1000);
            report.bounds_us = bounds.collect();
            report.counts.resize(histogram.buckets.len(), 0);
            let counts = report.counts.iter_mut().zip(histogram.buckets);
            counts.for_each(|(sum, count)| *sum += count);
        }
        report
    }

    /// Applies the effective configuration to the engine.
    fn apply(&self, sources: &Sources) -> Result<(), ModelSlotsExhausted> {
        let models: Vec<ModelConfig> = sources.models().collect();
        let names = models.iter().map(|config| &*config.parameters.model);
        let objectives: Vec<_> = names
            .clone()
            .zip(models.iter().map(|config| config.slo))
            .collect();
        self.engine.declare(&objectives)?;
        let parameters = models.iter().map(|config| &config.parameters);
        let threads = parameters.clone().map(|own| own.threads.map(usize::from));
        let threads: Vec<_> = names.clone().zip(threads).collect();
        self.engine.set_batch_threads(&threads);
        for own in parameters.clone() {
            self.engine.set_weight(&own.model, own.weight);
        }
        let batching: Vec<(&str, Option<ModelBatching>)> =
            names.zip(parameters.map(|own| own.batching)).collect();
        self.engine.set_batching(&sources.batching(), &batching);
        Ok(())
    }

    /// Calls [`EffectiveConfig::apply`] with unchanged models, each of which already has its slot.
    fn apply_or_log(&self, sources: &Sources) {
        if let Err(error) = self.apply(sources) {
            tracing::error!(%error, "parameters cannot be applied");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sources {
    fn batching(&self) -> BatchingParams {
        let stream = self.stream.as_ref();
        stream.map_or(self.settings_batching, |stream| stream.batching)
    }

    /// Returns the models with their effective configuration: objectives and listed parameters from
    /// the stream, everything else from the settings.
    fn models(&self) -> impl Iterator<Item = ModelConfig> {
        self.settings_models.iter().map(|own| {
            let Some(stream) = &self.stream else {
                return own.clone();
            };
            let name = &own.parameters.model;
            let mut objectives = stream.slo.iter();
            let slo = objectives.find(|entry| entry.model == *name);
            let parameters = stream.of_model(name).unwrap_or(&own.parameters);
            ModelConfig {
                slo: slo.map(|entry| entry.slo),
                parameters: parameters.clone(),
            }
        })
    }

    fn discard_stream(&mut self) {
        self.stream = None;
        self.lost_at = None;
    }

    fn update_status(&mut self, update: impl FnOnce(&mut StreamStatus)) {
        if let Some(status) = &mut self.status {
            update(status);
        }
    }
}
