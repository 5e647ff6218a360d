//! The placer on a thread of its own. What it tells goes into the journal; what it is to do comes
//! through its handle.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use albacore_placer::{
    Config, Handle, Placer, PlacerError, Progress, Report, Restored, favor_this_thread,
};
use k8s_openapi::jiff::Timestamp;

use crate::journal::Journal;
use crate::limits::{PLACER_PAUSE_MAX, PLACER_PAUSE_MIN, TURN_PERIOD};

/// A journal that the placer writes and the loop reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedJournal(Arc<Mutex<Journal>>);

impl SharedJournal {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Journal> {
        // Every count is whole by itself, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Called after the placer told something.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

pub(crate) struct Placing {
    pub(crate) handle: Handle,
    pub(crate) topology: u64,
    thread: JoinHandle<Restored>,
}

impl Placing {
    /// Starts a placer without subjects.
    ///
    /// # Errors
    /// The machine cannot be read, or file descriptors or threads run out.
    pub(crate) fn start(
        config: Config,
        hears_births: bool,
        journal: SharedJournal,
        wake: Wake,
    ) -> Result<Self, PlacerError> {
        let (ready, started) = sync_channel(1);
        let thread = std::thread::Builder::new().name("placer".to_owned());
        let body = move || {
            let mut placer = match Placer::new(config) {
                Ok(placer) => placer,
                Err(error) => {
                    drop(ready.send(Err(error)));
                    return Restored::default();
                }
            };
            drop(ready.send(Ok((placer.handle(), placer.machine().hash64()))));
            let heard = hears_births.then(|| placer.hear_births());
            if let Some(Err(error)) = heard {
                tracing::warn!(%error, "births are polled");
                journal.lock().deaf = Some(error.to_string());
            }
            follow(&mut placer, &journal, &wake)
        };
        let thread = thread
            .spawn(body)
            .map_err(|source| albacore_os::OsError::Call {
                call: "clone",
                source,
            })?;
        match started.recv() {
            Ok(Ok((handle, topology))) => Ok(Self {
                handle,
                topology,
                thread,
            }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(PlacerError::Os(albacore_os::OsError::Call {
                call: "clone",
                source: std::io::Error::other("the placer's thread ended at once"),
            })),
        }
    }

    /// Whether its thread has ended without being asked.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Ends it; what it gave back.
    pub(crate) fn stop(self) -> Restored {
        // It has ended, or it takes the order: a full queue is emptied at each of its turns.
        for _ in 0..100 {
            if self.handle.stop() != Err(albacore_placer::ControlError::Full) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.thread.join().unwrap_or_default()
    }
}

/// Drives the placer until it is told to stop, then gives every mask back. Failures of a turn pass
/// or last; either way the next turn tries again, later each time.
fn follow(placer: &mut Placer, journal: &SharedJournal, wake: &Wake) -> Restored {
    let mut take = |report: &Report| {
        journal.lock().take(report, Timestamp::now());
        wake();
    };
    favor_this_thread(&mut take);
    let mut failures = 0;
    // bound: one wait per turn; ends with an order to stop
    loop {
        match placer.step(TURN_PERIOD, &mut take) {
            Ok(Progress::Running) => {
                failures = 0;
                if journal.lock().trouble.take().is_some() {
                    wake();
                }
            }
            Ok(Progress::Stopped) => return placer.restore(&mut take),
            Err(error) => {
                let told = Some((category(&error), error.to_string()));
                if let PlacerError::NotPermitted(_) = &error {
                    journal.lock().refused = Some(error.to_string());
                }
                if std::mem::replace(&mut journal.lock().trouble, told.clone()) != told {
                    tracing::warn!(category = category(&error), %error, "placing failed; it is tried again");
                    wake();
                }
                let pause = PLACER_PAUSE_MIN.saturating_mul(1 << failures.min(8));
                failures += 1;
                std::thread::sleep(pause.min(PLACER_PAUSE_MAX));
            }
        }
    }
}

/// A stable word for an error: what every part of the program runs out of at once has its own.
pub(crate) fn category(error: &PlacerError) -> &'static str {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    // bound: errors hold their causes, so there is no circle.
    while let Some(error) = cause {
        let code = error.downcast_ref().and_then(std::io::Error::raw_os_error);
        if code.is_some_and(|code| TOO_MANY_FILES.contains(&code)) {
            return "files_exhausted";
        }
        cause = error.source();
    }
    error.category()
}

const TOO_MANY_FILES: [i32; 2] = [23, 24];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_files_has_a_word_of_its_own() {
        let error = |code| {
            PlacerError::Os(albacore_os::OsError::Call {
                call: "pidfd_open",
                source: std::io::Error::from_raw_os_error(code),
            })
        };
        assert_eq!(category(&error(24)), "files_exhausted");
        assert_eq!(category(&error(5)), "os");
    }
}
