//! Status of the settings and of the models: reported by `GET /albacore/v1/state`, and the
//! condition for readiness.

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
    /// The version that the settings name is served.
    Loaded,
    /// The version that the settings name could not be loaded; loading is retried.
    Failed,
    /// A call unloaded it; it is loaded by another call alone.
    Unloaded,
}

#[derive(Clone, Debug)]
pub struct ModelStatus {
    pub name: String,
    /// Path or URL in the settings, without secrets.
    pub source: String,
    pub load_state: LoadState,
    /// The outputs that its metadata advertises.
    pub outputs: KindSet,
    /// The last error; kept until the next success.
    pub error: Option<String>,
    /// The served version: digest of its file, and when it was installed in milliseconds since
    /// 1970.
    pub serving: Option<(Digest, u64)>,
}

impl ModelStatus {
    /// A model that is not loaded yet.
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

    /// Records that another front served this version.
    pub fn restore(&mut self, serving: Option<(Digest, u64)>) {
        if serving.is_some() {
            self.load_state = LoadState::Loaded;
        }
        self.serving = serving;
    }

    /// Records that a call unloaded it.
    pub fn set_unloaded(&mut self) {
        self.load_state = LoadState::Unloaded;
        self.error = None;
        self.serving = None;
    }

    /// Records that this version is served from now on.
    pub fn set_loaded(&mut self, digest: Digest) {
        self.load_state = LoadState::Loaded;
        self.error = None;
        self.serving = Some((digest, unix_millis()));
    }
}

/// Status of the settings file and of all models.
#[derive(Clone, Debug, Default)]
pub struct ConfigStatus {
    /// Digest of the settings file in force; `None` without a settings file.
    pub settings_sha256: Option<Digest>,
    /// Content of that file.
    pub settings: Option<Arc<Settings>>,
    /// Why the current file is not in force.
    pub settings_error: Option<String>,
    pub models: Vec<ModelStatus>,
    /// What the supervisor counts.
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

    /// The outputs that the metadata of this model advertises.
    pub fn outputs(&self, model: &str) -> KindSet {
        let status = self.lock();
        let model = status.models.iter().find(|status| status.name == model);
        model.map_or(KindSet::only(Kind::Value), |model| model.outputs)
    }

    /// Changes the status. Once all models were loaded, a model that is added later and is not
    /// loaded yet does not make the server unready.
    pub fn update(&self, update: impl FnOnce(&mut ConfigStatus)) {
        let mut status = self.lock();
        update(&mut status);
        if are_all_loaded(&status) {
            self.all_loaded.send_replace(true);
        }
    }

    /// Waits until all models were loaded once, or unloaded by a call.
    pub async fn all_loaded(&self) {
        // The sender lives as long as the store.
        let _ = self.all_loaded.subscribe().wait_for(|&is_so| is_so).await;
    }

    fn lock(&self) -> MutexGuard<'_, ConfigStatus> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settings name at least one model: without any, they are not read yet.
fn are_all_loaded(status: &ConfigStatus) -> bool {
    let is_settled =
        |model: &ModelStatus| model.serving.is_some() || model.load_state == LoadState::Unloaded;
    !status.models.is_empty() && status.models.iter().all(is_settled)
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
