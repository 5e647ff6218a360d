//! Watches the settings file. Batching and objectives change immediately; a model is loaded while
//! its previous version is served and then replaces it. On an error nothing changes; the error is
//! reported and the operation retried: a settings file when it changes, a model also after a
//! backoff.
//!
//! API calls also load and unload models (`model_calls`). One thread (`WatchLoop`) owns all of
//! this state; each model is loaded on a separate thread (`load`), so that a slow store does not
//! delay other models. Results are published in [`crate::model_status`].

mod file_stamp;
mod load;
mod model_calls;
mod settings_file;
mod watch_loop;
mod watched_model;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use albacore_engine::{Engine, ModelSlotsExhausted};
use albacore_settings::ValidationError;
use albacore_storage::Storage;

use crate::cli_models::CliModel;
use crate::effective_config::EffectiveConfig;
use crate::handover::{Handover, RestoredModels};
use crate::model_control::ModelControlReceiver;
use crate::model_status::StatusStore;
pub use file_stamp::FileStamp;
pub use load::log_iterations_notice;
pub(crate) use load::{LoadAttempt, log_fetched};
pub use settings_file::{LoadedSettings, parse as parse_settings, read};
use watch_loop::WatchLoop;

/// Stops watching the settings file when it is dropped.
#[derive(Debug)]
pub struct ConfigWatcher {
    is_running: Arc<AtomicBool>,
}

/// The components that settings are applied to.
pub struct ConfigTargets {
    pub engine: Arc<Engine>,
    pub config: Arc<EffectiveConfig>,
    pub status: Arc<StatusStore>,
    pub storage: Arc<Storage>,
    pub handover: Handover,
    /// Receives API calls that load and unload models.
    pub model_calls: ModelControlReceiver,
    /// Interval at which object stores are polled for new versions of models.
    pub poll_period: Duration,
}

/// Why watching the settings file could not be started.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("the models of the settings cannot be served")]
    Models(#[from] ApplyError),
    #[error("the thread that watches the settings cannot be started")]
    Thread(#[from] std::io::Error),
}

/// Why this server cannot apply valid settings.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Models(#[from] ModelSlotsExhausted),
    /// A model uses more threads than a worker has.
    #[error(transparent)]
    Threads(#[from] ValidationError),
}

impl ConfigWatcher {
    /// Applies `settings`, which were read from `file`, and starts to watch the file. The models in
    /// `restored` are already served. Must be called inside the engine's runtime.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn start(
        file: PathBuf,
        settings: LoadedSettings,
        targets: ConfigTargets,
        restored: &RestoredModels,
    ) -> Result<Self, WatchError> {
        let mut watch_loop = WatchLoop::new(Some(file), targets);
        watch_loop.apply(settings)?;
        watch_loop.restore(restored);
        Self::spawn(watch_loop)
    }

    /// Starts without a settings file: models of the command line are loaded and unloaded only by
    /// API calls. The models in `restored` are already served. Must be called inside the engine's
    /// runtime.
    ///
    /// # Errors
    /// [`WatchError::Thread`].
    pub fn start_without_file(
        models: &[CliModel],
        targets: ConfigTargets,
        restored: &RestoredModels,
    ) -> Result<Self, WatchError> {
        let mut watch_loop = WatchLoop::new(None, targets);
        watch_loop.add_cli_models(models);
        watch_loop.restore(restored);
        Self::spawn(watch_loop)
    }

    fn spawn(watch_loop: WatchLoop) -> Result<Self, WatchError> {
        let is_running = Arc::new(AtomicBool::new(true));
        let keep_running = Arc::clone(&is_running);
        let thread = std::thread::Builder::new().name("albf.settings".to_owned());
        thread.spawn(move || watch_loop.run(&keep_running))?;
        Ok(Self { is_running })
    }
}

impl Drop for ConfigWatcher {
    fn drop(&mut self) {
        self.is_running.store(false, Ordering::Relaxed);
    }
}
