//! The thread that watches the settings file and starts loads.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use albacore_engine::{Kind, KindSet};
use albacore_settings as settings;
use albacore_settings::Digest;

use super::ApplyError;
use super::file_stamp::{FileStamp, stamp};
use super::load::{self, LoadAttempt, LoadContext, LoadRequest};
use super::settings_file::{self, LoadedSettings};
use super::watched_model::WatchedModel;
use crate::effective_config::{EffectiveConfig, ModelConfig};
use crate::events::{ServerEvent, emit};
use crate::handover::{Handover, ModelRecord, Records};
use crate::limits::{ATTEMPTS_MAX, POLL_PERIOD};
use crate::model_status::{LoadState, ModelStatus, StatusStore};

/// State of the thread.
pub(super) struct WatchLoop {
    file: PathBuf,
    /// Stamp of the file when it was read last.
    stamp: Option<FileStamp>,
    /// Digest of the file that was read last, whether it was applied or refused.
    sha256: Option<Digest>,
    context: Arc<LoadContext>,
    config: Arc<EffectiveConfig>,
    status: Arc<StatusStore>,
    handover: Handover,
    models: Vec<WatchedModel>,
    /// How often object stores are asked for new versions.
    poll_period: Duration,
    /// Number of attempts started so far.
    attempts: u64,
    finished_sender: SyncSender<LoadAttempt>,
    finished: Receiver<LoadAttempt>,
}

impl WatchLoop {
    pub(super) fn new(
        file: PathBuf,
        context: Arc<LoadContext>,
        config: Arc<EffectiveConfig>,
        status: Arc<StatusStore>,
        handover: Handover,
        poll_period: Duration,
    ) -> Self {
        let (finished_sender, finished) = sync_channel(ATTEMPTS_MAX);
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
            finished_sender,
            finished,
        }
    }

    /// Runs until `keep_running` is cleared.
    pub(super) fn run(mut self, keep_running: &AtomicBool) {
        // bound: one pass each POLL_PERIOD and each result; ends with the server.
        while keep_running.load(Ordering::Relaxed) {
            self.poll_file();
            self.start_due_loads();
            match self.finished.recv_timeout(POLL_PERIOD) {
                Ok(attempt) => self.finish(attempt),
                // `self` holds a sender, so the channel is never disconnected.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        self.models.iter_mut().for_each(WatchedModel::cancel);
    }

    /// Reads and applies the file if it changed.
    fn poll_file(&mut self) {
        // Taken before the file is read, so that a change during the read is noticed later.
        let stamp = stamp(&self.file);
        // A missing file is being replaced; it is read when it exists again.
        if stamp.is_none() || stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        let parsed = match settings_file::read_bytes(&self.file) {
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
                let error = format!("{}: {error}", self.file.display());
                self.status
                    .update(|status| status.settings_error = Some(error.clone()));
                emit(&ServerEvent::SettingsRefused { error });
            }
        }
    }

    /// Applies settings: batching and objectives now, models as soon as they are loaded.
    pub(super) fn apply(&mut self, loaded: LoadedSettings) -> Result<(), ApplyError> {
        let LoadedSettings {
            sha256,
            settings,
            text,
        } = loaded;
        settings.check_threads(self.context.engine.threads())?;
        let models = settings.models.iter().map(ModelConfig::from).collect();
        self.config.set_settings(settings.batching, models)?;
        self.handover.keep_settings(&text);
        if !self.config.has_parameters() {
            self.handover.forget_parameters();
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

    /// Takes over the models that another front installed: those that the settings still ask for
    /// are not loaded again.
    pub(super) fn restore(&mut self, records: &Records) {
        for model in &mut self.models {
            let Some(record) = records.get(&model.settings.name) else {
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

    /// Leaves a model that was just installed, or found unchanged, to the next front.
    fn keep(&self, attempt: &LoadAttempt) {
        let name = &attempt.request.name;
        let status = self.status.snapshot();
        let mut models = status.models.iter();
        let model = models.find(|status| status.name == *name);
        let editions = self.context.engine.models();
        let mut editions = editions.iter();
        let edition = editions.find(|edition| edition.info().name == *name);
        if let Some((edition, model)) = edition.zip(model) {
            let request = attempt.request.fingerprint();
            let record = ModelRecord::new(edition, model, request, attempt.stamp);
            self.handover.keep_model(edition, record.as_ref());
        }
    }

    fn remove_models_except(&mut self, kept: &[settings::Model]) {
        let is_kept = |name: &str| kept.iter().any(|model| model.name == name);
        self.models.retain_mut(|model| {
            let is_kept = is_kept(&model.settings.name);
            if !is_kept {
                model.cancel();
                self.handover.forget_model(&model.settings.name);
            }
            is_kept
        });
    }

    /// Adds or updates a watched model; returns its new status.
    fn watch(&mut self, model: settings::Model) -> ModelStatus {
        let name = model.name.clone();
        let source = albacore_storage::redacted(&model.source);
        let outputs = advertised_outputs(&model);
        let mut models = self.models.iter_mut();
        let Some(watched) = models.find(|watched| watched.settings.name == name) else {
            self.models.push(WatchedModel::new(model));
            let mut status = ModelStatus::new(&name, source);
            status.outputs = outputs;
            return status;
        };
        let needs_load = watched.set_settings(model);
        let mut previous = self.status.snapshot().models.into_iter();
        let previous = previous.find(|status| status.name == name);
        let mut status = previous.unwrap_or_else(|| ModelStatus::new(&name, source.clone()));
        status.source = source;
        status.outputs = outputs;
        if needs_load {
            status.load_state = LoadState::Loading;
        }
        status
    }

    fn start_due_loads(&mut self) {
        let now = Instant::now();
        for model in &mut self.models {
            let Some(request) = model.due(now) else {
                continue;
            };
            self.attempts += 1;
            let is_wanted = Arc::new(AtomicBool::new(true));
            let (number, sender) = (self.attempts, self.finished_sender.clone());
            model.started(number, Arc::clone(&is_wanted));
            let started = load::start(
                &self.context,
                number,
                request.clone(),
                model.served(),
                is_wanted,
                sender.clone(),
            );
            if let Err(error) = started {
                // The channel has room: this model has no other attempt.
                let _ = sender.try_send(thread_failed(number, request, &error));
            }
        }
    }

    /// Records the result of an attempt in its model and in the status, and reports changes.
    fn finish(&mut self, attempt: LoadAttempt) {
        let mut models = self.models.iter_mut();
        let Some(model) = models.find_map(|model| model.take_running(&attempt).then_some(model))
        else {
            return;
        };
        let previous = model.served.clone();
        let is_current = model.finished(&attempt, Instant::now(), self.poll_period);
        let is_same_version = model.served == previous;
        let (request, result) = (attempt.request.clone(), attempt.result.clone());
        let mut is_news = false;
        self.status.update(|status| {
            let mut models = status.models.iter_mut();
            if let Some(status) = models.find(|status| status.name == request.name) {
                is_news = update_status(status, &result, is_current, is_same_version);
            }
        });
        if result.is_ok() {
            self.keep(&attempt);
        }
        if is_news {
            report(request, result, attempt.version);
        }
    }
}

/// The outputs that a model advertises: the value, unless the settings list others.
fn advertised_outputs(model: &settings::Model) -> KindSet {
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

/// Updates the status of a model after an attempt. Returns whether the change is to be reported.
fn update_status(
    status: &mut ModelStatus,
    result: &Result<Digest, String>,
    is_current: bool,
    is_same_version: bool,
) -> bool {
    let mut is_news = false;
    match result {
        Ok(digest) => {
            is_news = !is_same_version || status.error.is_some();
            let since = status.serving.filter(|_| is_same_version);
            status.set_loaded(*digest);
            status.serving = since.or(status.serving);
        }
        Err(error) if is_current => {
            is_news = status.error.as_ref() != Some(error);
            status.error = Some(error.clone());
            status.load_state = LoadState::Failed;
        }
        Err(_) => {}
    }
    if !is_current {
        status.load_state = LoadState::Loading;
    }
    is_news
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
