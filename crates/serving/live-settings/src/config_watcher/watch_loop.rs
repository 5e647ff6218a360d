//! The thread that watches the settings file and starts loads.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use albacore_engine::{Kind, KindSet};
use albacore_settings as settings;
use albacore_settings::Digest;

use super::file_stamp::{FileStamp, stamp};
use super::load::{self, LoadAttempt, LoadContext, LoadRequest};
use super::settings_file::{self, LoadedSettings};
use super::watched_model::WatchedModel;
use super::{ApplyError, ConfigTargets};
use crate::cli_models::CliModel;
use crate::effective_config::{EffectiveConfig, ModelConfig};
use crate::events::{ServerEvent, emit};
use crate::handover::{Handover, ModelRecord, RestoredModels};
use crate::limits::POLL_PERIOD;
use crate::model_control::{LoopMessage, ModelControlReceiver};
use crate::model_status::{LoadState, ModelLoadStatus, StatusStore};

/// State of the thread.
pub(super) struct WatchLoop {
    /// `None` if the models are those of the command line.
    file: Option<PathBuf>,
    /// Stamp of the file at the last read.
    stamp: Option<FileStamp>,
    /// Digest of the file at the last read, whether it was applied or rejected.
    sha256: Option<Digest>,
    pub(super) context: Arc<LoadContext>,
    config: Arc<EffectiveConfig>,
    pub(super) status: Arc<StatusStore>,
    pub(super) handover: Handover,
    pub(super) models: Vec<WatchedModel>,
    /// Interval at which object stores are polled for new versions.
    poll_period: Duration,
    /// Number of load attempts started so far.
    attempts: u64,
    calls: ModelControlReceiver,
}

impl WatchLoop {
    /// Must be called inside the engine's runtime.
    pub(super) fn new(file: Option<PathBuf>, targets: ConfigTargets) -> Self {
        let ConfigTargets {
            engine,
            config,
            status,
            storage,
            handover,
            model_calls,
            poll_period,
        } = targets;
        let context = Arc::new(LoadContext {
            engine,
            storage,
            runtime: tokio::runtime::Handle::current(),
            install_lock: Mutex::new(()),
        });
        Self {
            file,
            stamp: None,
            sha256: None,
            context,
            config,
            status,
            handover,
            models: Vec::new(),
            poll_period,
            attempts: 0,
            calls: model_calls,
        }
    }

    /// Runs until `keep_running` is false.
    pub(super) fn run(mut self, keep_running: &AtomicBool) {
        let mut next_poll = Instant::now();
        // bound: one iteration per POLL_PERIOD, result and call; ends with the server.
        while keep_running.load(Ordering::Relaxed) {
            let now = Instant::now();
            if next_poll <= now {
                // Polls on time even under a continuous stream of calls, and not more often.
                next_poll = now + POLL_PERIOD;
                self.poll_file();
                self.start_loads(|model| model.due(now));
            }
            let pause = next_poll.saturating_duration_since(now);
            match self.calls.receiver.recv_timeout(pause) {
                Ok(LoopMessage::Finished(attempt)) => self.finish(*attempt),
                Ok(LoopMessage::Call(call)) => self.accept_call(call),
                // `self` owns a sender, so the channel is never disconnected.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            self.process_unload_calls();
            self.start_loads(|model| model.requested_load());
        }
        self.models.iter_mut().for_each(WatchedModel::cancel);
    }

    /// Reads and applies the file if it has changed.
    fn poll_file(&mut self) {
        let Some(file) = self.file.clone() else {
            return;
        };
        // Taken before the file is read, so that a change during the read is detected later.
        let stamp = stamp(&file);
        // A missing file is being replaced; it is read when it exists again.
        if stamp.is_none() || stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        let parsed = match settings_file::read_bytes(&file) {
            Ok((_, sha256)) if self.sha256 == Some(sha256) => return,
            Ok((bytes, sha256)) => {
                self.sha256 = Some(sha256);
                settings_file::parse(&bytes, sha256)
            }
            Err(error) => {
                self.sha256 = None;
                Err(error)
            }
        };
        let applied = parsed.and_then(|settings| {
            let sha256 = settings.sha256;
            self.apply(settings).map_err(|error| error.to_string())?;
            Ok(sha256)
        });
        match applied {
            Ok(sha256) => emit(&ServerEvent::SettingsApplied {
                sha256: sha256.to_string(),
            }),
            Err(error) => {
                let error = format!("{}: {error}", file.display());
                self.status
                    .update(|status| status.settings_error = Some(error.clone()));
                emit(&ServerEvent::SettingsRefused { error });
            }
        }
    }

    /// Applies settings: batching and objectives immediately, models when they are loaded.
    pub(super) fn apply(&mut self, loaded: LoadedSettings) -> Result<(), ApplyError> {
        let LoadedSettings {
            sha256,
            settings,
            text,
        } = loaded;
        settings.check_threads(self.context.engine.threads())?;
        let models = settings.models.iter().map(ModelConfig::from).collect();
        self.config.set_settings(settings.batching, models)?;
        self.handover.store_settings(&text);
        if !self.config.has_parameters() {
            self.handover.remove_parameters();
        }
        self.sha256 = Some(sha256);
        self.remove_models_except(&settings.models);
        let models = settings.models.iter().cloned();
        let models = models.map(|model| self.watch(model)).collect();
        self.status.update(|status| {
            status.settings_sha256 = Some(sha256);
            status.settings = Some(Arc::new(settings));
            status.settings_error = None;
            status.models = models;
        });
        Ok(())
    }

    /// Adds the models of the command line.
    pub(super) fn add_cli_models(&mut self, models: &[CliModel]) {
        let models = models.iter().map(CliModel::settings);
        self.models.extend(models.map(WatchedModel::from_cli));
    }

    /// Takes over the models that the previous front installed. Models whose settings are unchanged
    /// are not loaded again, and models unloaded by API calls stay unloaded.
    pub(super) fn restore(&mut self, restored: &RestoredModels) {
        for name in &restored.unloaded {
            self.unload(name);
        }
        for model in &mut self.models {
            let record = restored.records.get(&model.settings.name);
            let Some(record) = record.filter(|_| !model.is_unloaded) else {
                continue;
            };
            let is_loaded = model.restore(record, Instant::now() + self.poll_period);
            self.status.update(|status| {
                let mut models = status.models.iter_mut();
                let name = &model.settings.name;
                if let Some(status) = models.find(|status| status.name == *name) {
                    status.serving = record.serving();
                    if is_loaded {
                        status.load_state = LoadState::Loaded;
                    }
                }
            });
        }
    }

    /// Hands a model over to the next front after it was installed or found unchanged.
    fn hand_over(&self, attempt: &LoadAttempt) {
        let name = &attempt.request.name;
        let status = self.status.snapshot();
        let mut models = status.models.iter();
        let model = models.find(|status| status.name == *name);
        let revisions = self.context.engine.models();
        let mut revisions = revisions.iter();
        let revision = revisions.find(|revision| revision.info().name == *name);
        if let Some((revision, model)) = revision.zip(model) {
            let request = attempt.request.fingerprint();
            let record = ModelRecord::new(revision, model, request, attempt.stamp);
            self.handover.store_model(revision, record.as_ref());
        }
    }

    fn remove_models_except(&mut self, retained: &[settings::ModelSettings]) {
        let unloaded = self.unloaded();
        let is_retained = |name: &str| retained.iter().any(|model| model.name == name);
        self.models.retain_mut(|model| {
            let is_retained = is_retained(&model.settings.name);
            if !is_retained {
                model.cancel();
                self.handover.remove_model(&model.settings.name);
            }
            is_retained
        });
        if self.unloaded() != unloaded {
            self.handover.store_unloaded(&self.unloaded());
        }
    }

    /// Adds or updates a watched model and returns its new status.
    fn watch(&mut self, model: settings::ModelSettings) -> ModelLoadStatus {
        let name = model.name.clone();
        let source = albacore_storage::redacted(&model.source);
        let outputs = advertised_outputs(&model);
        let mut models = self.models.iter_mut();
        let Some(watched) = models.find(|watched| watched.settings.name == name) else {
            self.models.push(WatchedModel::new(model));
            let mut status = ModelLoadStatus::new(&name, source);
            status.outputs = outputs;
            return status;
        };
        let needs_load = watched.set_settings(model);
        let mut previous = self.status.snapshot().models.into_iter();
        let previous = previous.find(|status| status.name == name);
        let mut status = previous.unwrap_or_else(|| ModelLoadStatus::new(&name, source.clone()));
        status.source = source;
        status.outputs = outputs;
        if needs_load {
            status.load_state = LoadState::Loading;
        }
        status
    }

    /// Starts the loads that are due.
    fn start_loads(&mut self, due: impl Fn(&mut WatchedModel) -> Option<LoadRequest>) {
        let mut failed = Vec::new();
        for model in &mut self.models {
            let Some(request) = due(model) else {
                continue;
            };
            self.attempts += 1;
            let is_wanted = Arc::new(AtomicBool::new(true));
            let (number, sender) = (self.attempts, self.calls.sender.clone());
            model.record_start(number, Arc::clone(&is_wanted));
            let started = load::start(
                &self.context,
                number,
                request.clone(),
                model.current_version(),
                is_wanted,
                sender,
            );
            if let Err(error) = started {
                failed.push(thread_failed(number, request, &error));
            }
        }
        failed.into_iter().for_each(|attempt| self.finish(attempt));
    }

    /// Records the result of an attempt in the model and in the status, and reports changes.
    fn finish(&mut self, attempt: LoadAttempt) {
        let mut models = self.models.iter_mut();
        let Some(model) = models.find_map(|model| model.take_running(&attempt).then_some(model))
        else {
            return;
        };
        let (previous, was_unloaded) = (model.served.clone(), model.is_unloaded);
        let is_current = model.record_result(&attempt, Instant::now(), self.poll_period);
        let is_same_version = model.served == previous;
        // A result for outdated settings is followed by another load, which answers the call.
        let call = is_current.then(|| model.take_load_call(&attempt)).flatten();
        // A load that was canceled by an unload call has not failed.
        let is_current = is_current && !model.has_unload_call();
        let is_unloaded = model.is_unloaded;
        let result = attempt.result.clone().map(|file| file.digest);
        let request = attempt.request.clone();
        let mut is_changed = false;
        self.status.update(|status| {
            let mut models = status.models.iter_mut();
            if let Some(status) = models.find(|status| status.name == request.name) {
                is_changed = update_status(status, &result, is_current, is_same_version);
                if is_unloaded {
                    status.load_state = LoadState::Unloaded;
                }
            }
        });
        if result.is_ok() {
            self.hand_over(&attempt);
        }
        if is_unloaded != was_unloaded {
            self.handover.store_unloaded(&self.unloaded());
        }
        if is_changed {
            report(request, result, attempt.version);
        }
        if let Some(call) = call {
            call.reply(attempt.result.map(drop));
        }
    }
}

/// Returns the outputs that a model advertises: the value, unless the settings list others.
fn advertised_outputs(model: &settings::ModelSettings) -> KindSet {
    if model.outputs.is_empty() {
        return KindSet::only(Kind::Value);
    }
    let kinds = model.outputs.iter().map(|output| match output {
        settings::Output::Output => Kind::Value,
        settings::Output::Margin => Kind::Margin,
        settings::Output::Contribs => Kind::Contribs,
        settings::Output::Interactions => Kind::Interactions,
        settings::Output::Leaf => Kind::Leaf,
    });
    kinds.collect()
}

/// Updates the status of a model after an attempt; returns whether to report the change.
fn update_status(
    status: &mut ModelLoadStatus,
    result: &Result<Digest, String>,
    is_current: bool,
    is_same_version: bool,
) -> bool {
    let mut is_changed = false;
    match result {
        Ok(digest) => {
            is_changed = !is_same_version || status.error.is_some();
            let since = status.serving.filter(|_| is_same_version);
            status.set_loaded(*digest);
            status.serving = since.or(status.serving);
        }
        Err(error) if is_current => {
            is_changed = status.error.as_ref() != Some(error);
            status.error = Some(error.clone());
            status.load_state = LoadState::Failed;
        }
        Err(_) => {}
    }
    if !is_current {
        status.load_state = LoadState::Loading;
    }
    is_changed
}

fn report(request: LoadRequest, result: Result<Digest, String>, version: Option<String>) {
    let (model, source) = (request.name, albacore_storage::redacted(&request.source));
    match result {
        Ok(digest) => emit(&ServerEvent::ModelLoaded {
            model,
            source,
            sha256: digest.to_string(),
            version,
        }),
        Err(error) => emit(&ServerEvent::ModelFailed {
            model,
            source,
            error,
        }),
    }
}

fn thread_failed(number: u64, request: LoadRequest, error: &std::io::Error) -> LoadAttempt {
    LoadAttempt {
        number,
        request,
        stamp: None,
        version: None,
        result: Err(format!("no thread can be started to load it: {error}")),
    }
}
