//! Status of the settings and of the models: reported by `GET /albacore/v1/state`, and used for
//! readiness.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use albacore_engine::{Kind, KindSet};
use albacore_settings::{Digest, Settings};
use albacore_supervision::Status;
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadState {
    /// The model is being fetched, compiled or installed in the workers.
    Loading,
    /// The version requested by the settings is served.
    Loaded,
    /// The version requested by the settings could not be loaded; loading is retried.
    Failed,
    /// An API call unloaded it; only another call loads it again.
    Unloaded,
}

#[derive(Clone, Debug)]
pub struct ModelLoadStatus {
    pub name: String,
    /// Path or URL in the settings, with secrets redacted.
    pub source: String,
    pub load_state: LoadState,
    /// Outputs advertised in the metadata.
    pub outputs: KindSet,
    /// The last error; cleared by the next success.
    pub error: Option<String>,
    /// The served version: SHA-256 of the model file, and installation time in milliseconds since
    /// 1970.
    pub serving: Option<(Digest, u64)>,
}

impl ModelLoadStatus {
    /// Creates the status of a model that is not loaded yet.
    pub fn new(name: &str, source: String) -> Self {
        Self {
            name: name.to_owned(),
            source,
            load_state: LoadState::Loading,
            outputs: KindSet::only(Kind::Value),
            error: None,
            serving: None,
        }
    }

    /// Records that the previous front served this version.
    pub fn restore(&mut self, serving: Option<(Digest, u64)>) {
        if serving.is_some() {
            self.load_state = LoadState::Loaded;
        }
        self.serving = serving;
    }

    /// Records that an API call unloaded the model.
    pub fn set_unloaded(&mut self) {
        self.load_state = LoadState::Unloaded;
        self.error = None;
        self.serving = None;
    }

    /// Records that this version is now served.
    pub fn set_loaded(&mut self, digest: Digest) {
        self.load_state = LoadState::Loaded;
        self.error = None;
        self.serving = Some((digest, unix_millis()));
    }
}

/// Status of the settings file and of all models.
#[derive(Clone, Debug, Default)]
pub struct ConfigStatus {
    /// Digest of the effective settings file; `None` without a settings file.
    pub settings_sha256: Option<Digest>,
    /// Content of the effective settings file.
    pub settings: Option<Arc<Settings>>,
    /// Why the current file is not effective.
    pub settings_error: Option<String>,
    pub models: Vec<ModelLoadStatus>,
    /// Counters of the supervisor.
    pub supervision: Status,
}

/// A [`ConfigStatus`] that is shared between threads.
#[derive(Debug)]
pub struct StatusStore {
    status: Mutex<ConfigStatus>,
    all_loaded: watch::Sender<bool>,
}

impl StatusStore {
    pub fn new(status: ConfigStatus) -> Self {
        let (all_loaded, _) = watch::channel(are_all_loaded(&status));
        Self {
            status: Mutex::new(status),
            all_loaded,
        }
    }

    pub fn snapshot(&self) -> ConfigStatus {
        self.lock().clone()
    }

    /// Returns the outputs that the metadata of this model advertises.
    pub fn outputs(&self, model: &str) -> KindSet {
        let status = self.lock();
        let model = status.models.iter().find(|status| status.name == model);
        model.map_or(KindSet::only(Kind::Value), |model| model.outputs)
    }

    /// Changes the status. After all models were loaded once, a model added later does not make the
    /// server unready while it is loading.
    pub fn update(&self, update: impl FnOnce(&mut ConfigStatus)) {
        let mut status = self.lock();
        update(&mut status);
        if are_all_loaded(&status) {
            self.all_loaded.send_replace(true);
        }
    }

    /// Waits until each model was loaded once or was unloaded by an API call.
    pub async fn wait_until_loaded(&self) {
        // The sender lives as long as the store.
        let _ = self.all_loaded.subscribe().wait_for(|&loaded| loaded).await;
    }

    fn lock(&self) -> MutexGuard<'_, ConfigStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns false without models: settings name at least one, so they have not been read yet.
fn are_all_loaded(status: &ConfigStatus) -> bool {
    let is_settled = |model: &ModelLoadStatus| {
        model.serving.is_some() || model.load_state == LoadState::Unloaded
    };
    !status.models.is_empty() && status.models.iter().all(is_settled)
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
