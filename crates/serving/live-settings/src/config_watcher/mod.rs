//! Watches the settings file: rules and objectives change at once; models are loaded next to the
//! served ones and then replace them. An error changes nothing, is reported, and is retried: a
//! settings file when it changes, a model also after a pause.
//!
//! Calls load and unload models in between (`orders`). One thread (`WatchLoop`) owns all of this;
//! each model is loaded on a thread of its own (`load`), so that a slow server does not delay the
//! others. The results are published in [`crate::model_status`].

mod file_stamp;
mod load;
mod orders;
mod settings_file;
mod watch_loop;
mod watched_model;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use albacore_engine::{Engine, NoSlot};
use albacore_settings::ValidationError;
use albacore_storage::Storage;

use crate::cli_models::CliModel;
use crate::effective_config::EffectiveConfig;
use crate::handover::{Handover, Restored};
use crate::model_control::Orders;
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

/// What the settings are applied to.
pub struct Served {
    pub engine: Arc<Engine>,
    pub config: Arc<EffectiveConfig>,
    pub status: Arc<StatusStore>,
    pub storage: Arc<Storage>,
    pub handover: Handover,
    /// Calls that load and unload models.
    pub orders: Orders,
    /// How often object stores are asked for new versions of models.
    pub poll_period: Duration,
}

/// The settings file cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("the models of the settings cannot be served")]
    Models(#[from] ApplyError),
    #[error("the thread that watches the settings cannot be started")]
    Thread(#[from] std::io::Error),
}

/// Valid settings that this server cannot apply.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Models(#[from] NoSlot),
    /// More threads for a model than a worker has.
    #[error(transparent)]
    Threads(#[from] ValidationError),
}

impl ConfigWatcher {
    /// Applies `settings`, which were read from `file`, and watches the file from then on. The
    /// models of `restored` are served already. To be called inside the engine's runtime.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn start(
        file: PathBuf,
        settings: LoadedSettings,
        served: Served,
        restored: &Restored,
    ) -> Result<Self, WatchError> {
        let mut watch_loop = WatchLoop::new(Some(file), served);
        watch_loop.apply(settings)?;
        watch_loop.restore(restored);
        Self::spawn(watch_loop)
    }

    /// Loads and unloads models of the command line by calls alone; those of `restored` are served
    /// already. To be called inside the engine's runtime.
    ///
    /// # Errors
    /// [`WatchError::Thread`].
    pub fn start_without_file(
        models: &[CliModel],
        served: Served,
        restored: &Restored,
    ) -> Result<Self, WatchError> {
        let mut watch_loop = WatchLoop::new(None, served);
        watch_loop.add(models);
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
