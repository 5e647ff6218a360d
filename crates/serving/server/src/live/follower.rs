//! The thread that follows the settings file.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Instant;

use albacore_settings as settings;
use albacore_settings::Digest;

use super::board::{Board, Notice, Progress};
use super::load::{self, Attempt, Loading, Order};
use super::model::Followed;
use super::read::{self, InForce};
use super::stamp::{Stamp, stamp};
use crate::events::{Line, say};
use crate::limits::{ATTEMPTS_MAX, POLL_PERIOD};
use crate::told::Desk;
use albacore_engine::NoSlot;

/// All that the thread knows.
pub(super) struct Follower {
    file: PathBuf,
    /// The file when it was read last.
    seen: Option<Stamp>,
    /// What was read last, taken or refused.
    read: Option<Digest>,
    loading: Arc<Loading>,
    desk: Arc<Desk>,
    board: Arc<Board>,
    models: Vec<Followed>,
    /// Attempts started so far.
    attempts: u64,
    done: SyncSender<Attempt>,
    heard: Receiver<Attempt>,
}

impl Follower {
    pub(super) fn new(
        file: PathBuf,
        loading: Arc<Loading>,
        desk: Arc<Desk>,
        board: Arc<Board>,
    ) -> Self {
        let (done, heard) = sync_channel(ATTEMPTS_MAX);
        Self {
            file,
            seen: None,
            read: None,
            loading,
            desk,
            board,
            models: Vec::new(),
            attempts: 0,
            done,
            heard,
        }
    }

    /// Follows until told not to.
    pub(super) fn run(mut self, is_followed: &AtomicBool) {
        // bound: one pass each POLL_PERIOD and each outcome; ends with the server.
        while is_followed.load(Ordering::Relaxed) {
            self.look();
            self.load_what_is_due();
            match self.heard.recv_timeout(POLL_PERIOD) {
                Ok(attempt) => self.take(attempt),
                // This thread holds a sender itself: nobody is ever disconnected.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        self.models.iter_mut().for_each(Followed::give_up);
    }

    /// Reads the file if it is another than before.
    fn look(&mut self) {
        // Before reading: a change while it is read is seen as one afterwards.
        let now = stamp(&self.file);
        // A file that is away for a moment is being replaced; it is read when it is back.
        if now.is_none() || now == self.seen {
            return;
        }
        self.seen = now;
        let read = read::bytes(&self.file);
        let outcome = match read {
            Ok((_, sha256)) if self.read == Some(sha256) => return,
            Ok((bytes, sha256)) => {
                self.read = Some(sha256);
                read::parse(&bytes, sha256)
            }
            Err(error) => {
                self.read = None;
                Err(error)
            }
        };
        let applied = outcome.and_then(|settings| {
            let sha256 = settings.sha256;
            self.apply(settings).map_err(|error| error.to_string())?;
            Ok(sha256)
        });
        match applied {
            Ok(sha256) => say(&Line::SettingsApplied {
                sha256: sha256.to_string(),
            }),
            Err(error) => {
                let error = format!("{}: {error}", self.file.display());
                self.board
                    .change(|posted| posted.settings_error = Some(error.clone()));
                say(&Line::SettingsRefused { error });
            }
        }
    }

    /// Puts settings in force: rules and objectives now, models as soon as they are loaded.
    pub(super) fn apply(&mut self, settings: InForce) -> Result<(), NoSlot> {
        let models = settings.settings.models.iter();
        let declared = models.map(|model| (model.name.clone(), read::objective(model)));
        self.desk.settle(settings.rules, declared.collect())?;
        let models = settings.settings.models.iter();
        let names: Vec<&str> = models.map(|m| m.name.as_str()).collect();
        let is_gone = |model: &Followed| !names.contains(&model.settings.name.as_str());
        for gone in self.models.iter_mut().filter(|model| is_gone(model)) {
            gone.give_up();
        }
        self.models.retain(|model| !is_gone(model));
        self.read = Some(settings.sha256);
        let InForce {
            sha256, settings, ..
        } = settings;
        let models = settings.models.iter().cloned();
        let notices = models.map(|model| self.follow(model)).collect();
        self.board.change(|posted| {
            posted.settings_sha256 = Some(sha256);
            posted.settings = Some(Arc::new(settings));
            posted.settings_error = None;
            posted.models = notices;
        });
        Ok(())
    }

    /// What is posted of a model with these settings from now on.
    fn follow(&mut self, model: settings::Model) -> Notice {
        let name = model.name.clone();
        let source = albacore_storage::shown(&model.source);
        let outputs = read::outputs(&model);
        let mut posted = self.board.read().models.into_iter();
        let known = self.models.iter_mut().find(|m| m.settings.name == name);
        let Some(known) = known else {
            self.models.push(Followed::new(model));
            let mut notice = Notice::new(&name, source);
            notice.outputs = outputs;
            return notice;
        };
        let is_to_be_loaded = known.change(model);
        let old = posted.find(|notice| notice.name == name);
        let mut notice = old.unwrap_or_else(|| Notice::new(&name, source.clone()));
        notice.source = source;
        notice.outputs = outputs;
        if is_to_be_loaded {
            notice.progress = Progress::Loading;
        }
        notice
    }

    fn load_what_is_due(&mut self) {
        let now = Instant::now();
        for model in &mut self.models {
            let Some(order) = model.due(now) else {
                continue;
            };
            self.attempts += 1;
            let is_wanted = Arc::new(AtomicBool::new(true));
            let (number, done) = (self.attempts, self.done.clone());
            let attempt = (number, order.clone());
            let (served, wanted) = (model.served, Arc::clone(&is_wanted));
            model.start(number, is_wanted);
            let started = load::start(&self.loading, attempt, served, wanted, done.clone());
            if let Err(error) = started {
                // The queue has room: nobody else puts this model's outcome into it.
                let _ = done.try_send(no_thread(number, order, &error));
            }
        }
    }

    /// Takes the outcome of an attempt in, and reports it.
    fn take(&mut self, attempt: Attempt) {
        let mut own = None;
        for model in &mut self.models {
            if model.is_over(&attempt) {
                own = Some(model);
            }
        }
        let Some(model) = own else { return };
        let before = model.served;
        let is_wanted = model.take(&attempt, Instant::now());
        let is_same = model.served == before;
        let Attempt { order, outcome, .. } = attempt;
        let (name, source) = (order.name, albacore_storage::shown(&order.source));
        let mut is_news = false;
        self.board.change(|posted| {
            let mut notices = posted.models.iter_mut();
            let Some(notice) = notices.find(|notice| notice.name == name) else {
                return;
            };
            match &outcome {
                Ok(digest) => {
                    is_news = !is_same || notice.error.is_some();
                    let since = notice.serving.filter(|_| is_same);
                    notice.set_loaded(*digest);
                    notice.serving = since.or(notice.serving);
                }
                Err(error) if is_wanted => {
                    is_news = notice.error.as_ref() != Some(error);
                    notice.error = Some(error.clone());
                    notice.progress = Progress::Failed;
                }
                Err(_) => {}
            }
            if !is_wanted {
                notice.progress = Progress::Loading;
            }
        });
        match outcome {
            _ if !is_news => {}
            Ok(digest) => say(&Line::ModelLoaded {
                model: name,
                source,
                sha256: digest.to_string(),
            }),
            Err(error) => say(&Line::ModelFailed {
                model: name,
                source,
                error,
            }),
        }
    }
}

fn no_thread(number: u64, order: Order, error: &std::io::Error) -> Attempt {
    Attempt {
        number,
        order,
        stamp: None,
        outcome: Err(format!("no thread can be started to load it: {error}")),
    }
}
