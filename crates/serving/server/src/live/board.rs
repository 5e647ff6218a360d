//! What is known of the settings and the models, for whoever asks: the state of the server, and
//! whether everything was loaded once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use albacore_engine::{Kind, KindSet};
use albacore_settings::{Digest, Settings};
use tokio::sync::watch;

/// How far a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is being fetched, compiled or brought to the workers.
    Loading,
    /// What the settings name is served.
    Loaded,
    /// What the settings name could not be loaded, and is tried again.
    Failed,
}

#[derive(Clone, Debug)]
pub(crate) struct Notice {
    pub(crate) name: String,
    /// What the settings name, without secrets.
    pub(crate) source: String,
    pub(crate) progress: Progress,
    /// The outputs that its metadata advertises.
    pub(crate) outputs: KindSet,
    /// Why it failed last; stays until the next success.
    pub(crate) error: Option<String>,
    /// What is served, if anything is: its digest, and when it was installed.
    pub(crate) serving: Option<(Digest, u64)>,
}

impl Notice {
    /// A model that nothing is known of yet.
    pub(crate) fn new(name: &str, source: String) -> Self {
        Self {
            name: name.to_owned(),
            source,
            progress: Progress::Loading,
            outputs: KindSet::only(Kind::Value),
            error: None,
            serving: None,
        }
    }

    /// It is served from now on.
    pub(crate) fn set_loaded(&mut self, digest: Digest) {
        self.progress = Progress::Loaded;
        self.error = None;
        self.serving = Some((digest, unix_millis()));
    }
}

/// What hangs on the board.
#[derive(Clone, Debug, Default)]
pub(crate) struct Posted {
    /// Of the settings in force; `None` without a settings file.
    pub(crate) settings_sha256: Option<Digest>,
    /// What that file says.
    pub(crate) settings: Option<Arc<Settings>>,
    /// Why the file that is there now is not in force.
    pub(crate) settings_error: Option<String>,
    pub(crate) models: Vec<Notice>,
}

#[derive(Debug)]
pub(crate) struct Board {
    posted: Mutex<Posted>,
    complete: watch::Sender<bool>,
}

impl Board {
    pub(crate) fn new(posted: Posted) -> Self {
        let (complete, _) = watch::channel(is_complete(&posted));
        Self {
            posted: Mutex::new(posted),
            complete,
        }
    }

    pub(crate) fn read(&self) -> Posted {
        self.posted().clone()
    }

    /// The outputs that the metadata of this model advertises.
    pub(crate) fn outputs(&self, model: &str) -> KindSet {
        let posted = self.posted();
        let notice = posted.models.iter().find(|notice| notice.name == model);
        notice.map_or(KindSet::only(Kind::Value), |notice| notice.outputs)
    }

    /// Changes what is posted. A model's absence is no reason to be not ready once all were there.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Posted)) {
        let mut posted = self.posted();
        change(&mut posted);
        if is_complete(&posted) {
            self.complete.send_replace(true);
        }
    }

    /// Waits until every model that is to be served is.
    pub(crate) async fn complete(&self) {
        // The sender lives as long as the board.
        let _ = self.complete.subscribe().wait_for(|&is_so| is_so).await;
    }

    fn posted(&self) -> MutexGuard<'_, Posted> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Settings name one model at least: of none, nothing is known yet.
fn is_complete(posted: &Posted) -> bool {
    !posted.models.is_empty() && posted.models.iter().all(|model| model.serving.is_some())
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}
