//! The batching and objectives in force: those of the settings, or those of the params stream,
//! which override them (see [`crate::params_client`] for when).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use albacore_engine::{BatchingParams, Engine, NoSlot, Slo};
use albacore_proto::params::LatencyReport;
use albacore_settings::agent_stream::Parameters;
use tokio::sync::Notify;

/// Models with their objectives and the most threads of one of their batches.
pub(crate) type ModelParams = Vec<(String, Option<Slo>, Option<usize>)>;

/// The only owner of the engine's batching and objectives: nothing else sets them.
#[derive(Debug)]
pub(crate) struct EffectiveConfig {
    engine: Arc<Engine>,
    sources: Mutex<Sources>,
    /// Wakes [`EffectiveConfig::report_period`].
    changed: Notify,
}

/// What the settings and the stream say.
#[derive(Debug)]
struct Sources {
    settings_batching: BatchingParams,
    settings_models: ModelParams,
    /// Override the settings; kept for a while after the stream is lost.
    stream: Option<Parameters>,
    /// `None` without `--params`.
    status: Option<StreamStatus>,
    /// When the stream was lost that `stream` came from.
    lost_at: Option<Instant>,
}

/// State of the params stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamStatus {
    /// Whether it is open and a message was received.
    pub(crate) is_connected: bool,
    /// The stream's parameters in force; `None` while the settings are in force.
    pub(crate) parameters: Option<Parameters>,
    /// Why the last message was refused.
    pub(crate) refused: Option<String>,
    /// Messages applied.
    pub(crate) applied_total: u64,
    /// Messages refused.
    pub(crate) refused_total: u64,
    /// Streams that ended and failed attempts to connect.
    pub(crate) lost_total: u64,
}

impl EffectiveConfig {
    /// `has_stream`: whether there is a params stream (`--params`). The engine is configured by
    /// [`EffectiveConfig::set_settings`].
    pub(crate) fn new(engine: Arc<Engine>, batching: BatchingParams, has_stream: bool) -> Self {
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

    /// Replaces the settings. While the stream is lost, newer settings override it.
    ///
    /// # Errors
    /// More models than slots.
    pub(crate) fn set_settings(
        &self,
        batching: BatchingParams,
        models: ModelParams,
    ) -> Result<(), NoSlot> {
        let mut sources = self.lock();
        sources.settings_batching = batching;
        sources.settings_models = models;
        if sources.lost_at.is_some() {
            sources.discard_stream();
        }
        self.apply(&sources)
    }

    /// Replaces the parameters of the stream. Returns whether they differ from the previous ones.
    pub(crate) fn set_stream(&self, parameters: Parameters) -> bool {
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

    /// Records that a message of the stream is invalid. Returns whether the error is a new one.
    pub(crate) fn refuse_stream(&self, error: &str) -> bool {
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

    /// Records that the stream ended, or could not be opened.
    pub(crate) fn stream_lost(&self) {
        let mut sources = self.lock();
        if sources.stream.is_some() {
            sources.lost_at.get_or_insert_with(Instant::now);
        }
        sources.update_status(|status| {
            status.is_connected = false;
            status.lost_total += 1;
        });
    }

    /// Returns to the settings if the stream was lost `retention` ago. Returns whether it did.
    pub(crate) fn expire_stream(&self, retention: Duration) -> bool {
        let mut sources = self.lock();
        let is_expired = sources.lost_at.is_some_and(|at| at.elapsed() >= retention);
        if is_expired {
            sources.discard_stream();
            self.apply_or_log(&sources);
        }
        is_expired
    }

    /// The batching in force, and the state of the stream if there is to be one.
    pub(crate) fn current(&self) -> (BatchingParams, Option<StreamStatus>) {
        let sources = self.lock();
        let status = sources.status.clone().map(|status| StreamStatus {
            parameters: sources.stream.clone(),
            ..status
        });
        (sources.batching(), status)
    }

    /// Waits until the stream asks for latency reports; returns their period.
    pub(crate) async fn report_period(&self) -> Duration {
        // bound: one pass for each change of the stream's parameters.
        loop {
            let changed = self.changed.notified();
            let stream = self.lock().stream.as_ref().map(|stream| stream.report);
            if let Some(period) = stream.flatten() {
                return period;
            }
            changed.await;
        }
    }

    /// Latency from arrival to reply since the start, over all models and kinds of output.
    pub(crate) fn latency_report(&self) -> LatencyReport {
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

    /// Passes the batching and objectives in force to the engine.
    fn apply(&self, sources: &Sources) -> Result<(), NoSlot> {
        let objectives = sources.settings_models.iter();
        let objectives: Vec<(&str, Option<Slo>)> = objectives
            .map(|(model, own, _)| (model.as_str(), sources.objective(model, *own)))
            .collect();
        self.engine.declare(&objectives)?;
        let threads = sources.settings_models.iter();
        let threads: Vec<_> = threads
            .map(|(model, _, threads)| (model.as_str(), *threads))
            .collect();
        self.engine.set_batch_threads(&threads);
        self.engine.set_batching(&sources.batching(), &[]);
        Ok(())
    }

    /// [`EffectiveConfig::apply`] without a change of the models, each of which has its slot.
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

    /// The objective in force of `model`, whose objective by the settings is `own`.
    fn objective(&self, model: &str, own: Option<Slo>) -> Option<Slo> {
        let Some(stream) = &self.stream else {
            return own;
        };
        let mut objectives = stream.slo.iter();
        let found = objectives.find(|entry| entry.model == model);
        found.map(|entry| entry.slo)
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
