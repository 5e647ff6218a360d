//! Follows the settings file: rules and objectives change at once, models are loaded beside those
//! that serve and then take their place. What is wrong changes nothing, is reported, and is tried
//! again: a file when it changes, a model also after a pause.
//!
//! One thread owns all of this (`Follower`); each model is loaded on a thread of its own (`load`),
//! so that a slow server delays nobody else. `board` is what others may know.

mod board;
mod follower;
mod load;
mod model;
mod read;
mod stamp;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use albacore_storage::Storage;

pub(crate) use board::{Board, Notice, Posted, Progress};
pub(crate) use read::{InForce, objective_of, read};

use crate::told::Desk;
use albacore_engine::{Engine, NoSlot};
use follower::Follower;
use load::Loading;

/// The settings file is followed while this lives.
#[derive(Debug)]
pub(crate) struct Live {
    is_followed: Arc<AtomicBool>,
}

/// The settings file cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LiveError {
    /// More models than slots.
    #[error("the models of the settings cannot be served")]
    Models(#[from] NoSlot),
    /// The thread cannot be started.
    #[error("the settings cannot be followed")]
    Thread(#[from] std::io::Error),
}

impl Live {
    /// Declares the models of `settings`, which were read from `file`, and follows the file from
    /// then on. Call it inside of the engine's runtime.
    ///
    /// # Errors
    /// [`LiveError`].
    pub(crate) fn start(
        file: PathBuf,
        settings: InForce,
        (engine, desk): (Arc<Engine>, Arc<Desk>),
        storage: Storage,
    ) -> Result<(Self, Arc<Board>), LiveError> {
        let board = Arc::new(Board::new(Posted {
            settings_sha256: Some(settings.sha256),
            ..Posted::default()
        }));
        let loading = Arc::new(Loading {
            engine,
            storage,
            runtime: tokio::runtime::Handle::current(),
            turn: Mutex::new(()),
        });
        let is_followed = Arc::new(AtomicBool::new(true));
        let mut follower = Follower::new(file, loading, desk, Arc::clone(&board));
        follower.apply(settings)?;
        let thread = std::thread::Builder::new().name("albf.settings".to_owned());
        let is_so = Arc::clone(&is_followed);
        thread.spawn(move || follower.run(&is_so))?;
        Ok((Self { is_followed }, board))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.is_followed.store(false, Ordering::Relaxed);
    }
}
