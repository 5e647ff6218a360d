//! One model of the settings: the requested version, the served version, and when to load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use albacore_settings as settings;

use super::file_stamp::FileStamp;
use super::load::{
    CurrentVersion, LoadAttempt, LoadRequest, LoadedFile, ServedVersion, is_polled, stamp_of,
};
use crate::handover::ModelRecord;
use crate::limits::{LOAD_BACKOFF_MAX, LOAD_BACKOFF_MIN, STABLE_POLLS};
use crate::model_control::{ModelAction, ModelCall};

#[derive(Debug)]
pub(super) struct WatchedModel {
    pub(super) settings: settings::ModelSettings,
    /// The running attempt: its number, and the flag whose clearing cancels it.
    running: Option<(u64, Arc<AtomicBool>)>,
    /// Request of the last finished attempt, and the stamp of the file that it read.
    last_attempt: Option<(LoadRequest, Option<FileStamp>)>,
    pub(super) served: Option<ServedVersion>,
    /// Version that the object store reported for the last file fetched with the current settings.
    store_version: Option<String>,
    /// Consecutive failures.
    failures: u32,
    /// Time of the next attempt: retry after a failure, or poll of an object store.
    retry_at: Option<Instant>,
    /// Stamp of a file that differs from the tried one, and the number of polls with this stamp.
    changed_file: Option<(Option<FileStamp>, u32)>,
    /// Whether the model is loaded without an API call; false for models of the command line.
    is_watched: bool,
    /// Whether an API call unloaded the model; then only another call loads it.
    pub(super) is_unloaded: bool,
    /// The pending API call to load or unload it.
    pending_call: Option<ModelCall>,
}

impl WatchedModel {
    pub(super) fn new(settings: settings::ModelSettings) -> Self {
        Self {
            settings,
            running: None,
            last_attempt: None,
            served: None,
            store_version: None,
            failures: 0,
            retry_at: None,
            changed_file: None,
            is_watched: true,
            is_unloaded: false,
            pending_call: None,
        }
    }

    /// Creates a model of the command line.
    pub(super) fn from_cli(settings: settings::ModelSettings) -> Self {
        Self {
            is_watched: false,
            ..Self::new(settings)
        }
    }

    /// Takes over a model served by the previous front; returns whether it matches the settings.
    pub(super) fn restore(&mut self, record: &ModelRecord, next_poll: Instant) -> bool {
        let request = self.request();
        let Some((digest, _)) = record.serving() else {
            return false;
        };
        if self.is_watched && request.fingerprint() != record.request {
            return false;
        }
        let file = LoadedFile {
            digest,
            python: None,
        };
        self.served = Some(ServedVersion::new(file, &request));
        self.retry_at = is_polled(&request).then_some(next_poll);
        self.last_attempt = Some((request, record.stamp));
        true
    }

    fn request(&self) -> LoadRequest {
        LoadRequest {
            name: self.settings.name.clone(),
            source: self.settings.source.clone(),
            sha256: self.settings.sha256,
            iterations: self.settings.iterations,
            schema_names: self.settings.schema_names.clone(),
        }
    }

    /// Returns whether the version requested by the settings has been tried.
    fn was_attempted(&self) -> bool {
        let last_attempt = self.last_attempt.as_ref();
        last_attempt.is_some_and(|(request, _)| *request == self.request())
    }

    /// Replaces the settings; returns whether the model must be loaded again.
    pub(super) fn set_settings(&mut self, settings: settings::ModelSettings) -> bool {
        self.settings = settings;
        if self.was_attempted() || self.is_unloaded {
            return false;
        }
        self.cancel();
        self.failures = 0;
        self.store_version = None;
        self.retry_at = None;
        self.changed_file = None;
        true
    }

    /// Cancels the running attempt.
    pub(super) fn cancel(&mut self) {
        if let Some((_, is_wanted)) = &self.running {
            is_wanted.store(false, Ordering::Relaxed);
        }
    }

    /// Returns the served version, which need not be fetched or installed again.
    pub(super) fn current_version(&self) -> CurrentVersion {
        CurrentVersion {
            version: self.served.clone(),
            store_version: self.store_version.clone(),
        }
    }

    /// Returns the request to start now, if one is due. Must be called once per poll.
    pub(super) fn due(&mut self, now: Instant) -> Option<LoadRequest> {
        if self.running.is_some() || self.pending_call.is_some() {
            return self.requested_load();
        }
        if self.is_unloaded || !self.is_watched {
            return None;
        }
        let is_due = !self.was_attempted()
            || self.retry_at.is_some_and(|at| at <= now)
            || self.is_file_changed();
        is_due.then(|| self.request())
    }

    /// Returns the request to start now for an API call.
    pub(super) fn requested_load(&self) -> Option<LoadRequest> {
        let is_load = |call: &ModelCall| call.action == ModelAction::Load;
        let is_due = self.running.is_none() && self.pending_call.as_ref().is_some_and(is_load);
        is_due.then(|| self.request())
    }

    /// Accepts an API call; there is at most one per model.
    pub(super) fn accept_call(&mut self, call: ModelCall) {
        if call.action == ModelAction::Unload {
            self.cancel();
        }
        self.pending_call = Some(call);
    }

    /// Returns whether an unload call is pending.
    pub(super) fn has_unload_call(&self) -> bool {
        let call = self.pending_call.as_ref();
        call.is_some_and(|call| call.action == ModelAction::Unload)
    }

    /// Takes the pending unload call if no load is running.
    pub(super) fn take_unload_call(&mut self) -> Option<ModelCall> {
        let is_due = self.running.is_none() && self.has_unload_call();
        self.pending_call.take_if(|_| is_due)
    }

    /// Takes the load call that this attempt executes.
    pub(super) fn take_load_call(&mut self, attempt: &LoadAttempt) -> Option<ModelCall> {
        let number = attempt.number;
        self.pending_call
            .take_if(|call| call.attempt == Some(number))
    }

    /// Forgets the served version; only an API call loads the model again.
    pub(super) fn unload(&mut self) {
        self.last_attempt = None;
        self.served = None;
        self.store_version = None;
        self.failures = 0;
        self.retry_at = None;
        self.changed_file = None;
        self.is_unloaded = true;
    }

    /// Returns whether the file differs from the tried one and was stable for [`STABLE_POLLS`]
    /// polls.
    fn is_file_changed(&mut self) -> bool {
        let Some((request, last_attempt)) = &self.last_attempt else {
            return false;
        };
        let now = stamp_of(&request.source);
        // A missing file is being replaced or was deleted; the served version is kept.
        if now == *last_attempt || now.is_none() {
            self.changed_file = None;
            return false;
        }
        let polls = match self.changed_file {
            Some((seen, polls)) if seen == now => polls + 1,
            _ => 1,
        };
        self.changed_file = Some((now, polls));
        polls >= STABLE_POLLS
    }

    /// Records the start of an attempt; clearing `is_wanted` cancels it.
    pub(super) fn record_start(&mut self, number: u64, is_wanted: Arc<AtomicBool>) {
        self.running = Some((number, is_wanted));
        if let Some(call) = &mut self.pending_call {
            call.attempt = Some(number);
        }
    }

    /// Returns whether `attempt` is the running one, and marks it as finished.
    pub(super) fn take_running(&mut self, attempt: &LoadAttempt) -> bool {
        let number = attempt.number;
        self.running.take_if(|(own, _)| *own == number).is_some()
    }

    /// Records the result of an attempt; object stores are polled again after `poll_period`.
    /// Returns whether the attempt was for the current settings.
    pub(super) fn record_result(
        &mut self,
        attempt: &LoadAttempt,
        now: Instant,
        poll_period: Duration,
    ) -> bool {
        if let Ok(file) = attempt.result {
            self.served = Some(ServedVersion::new(file, &attempt.request));
            self.is_unloaded = false;
        }
        self.last_attempt = Some((attempt.request.clone(), attempt.stamp));
        self.changed_file = None;
        if !self.was_attempted() {
            return false;
        }
        if attempt.result.is_ok() {
            self.store_version.clone_from(&attempt.version);
        }
        let next_poll = is_polled(&attempt.request).then(|| now + poll_period);
        (self.failures, self.retry_at) = match attempt.result {
            Ok(_) => (0, next_poll),
            Err(_) => (self.failures + 1, Some(now + backoff(self.failures))),
        };
        true
    }
}

/// Returns the pause after a failure that followed `failures` others.
fn backoff(failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures);
    LOAD_BACKOFF_MIN
        .saturating_mul(factor)
        .min(LOAD_BACKOFF_MAX)
}

#[cfg(test)]
mod tests;
