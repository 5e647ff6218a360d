//! What every request, the completion task and the supervisor hold: the state and the memory, each
//! behind its mutex, and the descriptors that wake.
//!
//! Lock order: state, then memory; neither is held while answers are sent.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use albacore_batching::Nanos;
use albacore_os::{Alarm, Extent, OsError, Wake};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::Observer;
use super::memory::{ArenaFiles, Memory};
use super::reply_latency::ReplyLatency;
use super::state::{Outbox, State};

/// Parallelism that do not change while the engine lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parallelism {
    pub(super) workers: usize,
    pub(super) threads: usize,
}

/// The engine but for the thread that supervises the workers.
#[derive(Debug)]
pub(super) struct SharedState {
    pub(super) files: ArenaFiles,
    pub(super) parallelism: Parallelism,
    /// Wakes the completion task; every worker holds it.
    pub(super) done: Wake,
    pub(super) supervise: Wake,
    pub(super) observer: Observer,
    pub(super) changed: Notify,
    pub(super) reply_latency: Arc<ReplyLatency>,
    /// The bound of rows reserved or waiting, to be read without the lock.
    queue_rows_max: AtomicUsize,
    /// Requests wait for the front to read what else is there; written under the lock of the state.
    has_coalesced: AtomicBool,
    alarm: Alarm,
    state: Mutex<State>,
    memory: Mutex<Memory>,
    epoch: Instant,
}

impl SharedState {
    pub(super) fn new(
        parallelism: Parallelism,
        state: State,
        observer: Observer,
    ) -> Result<Self, OsError> {
        let (memory, files) = Memory::create()?;
        Ok(Self {
            files,
            parallelism,
            done: Wake::new()?,
            supervise: Wake::new()?,
            observer,
            changed: Notify::new(),
            reply_latency: Arc::default(),
            queue_rows_max: AtomicUsize::new(usize::MAX),
            has_coalesced: AtomicBool::new(false),
            alarm: Alarm::new()?,
            state: Mutex::new(state),
            memory: Mutex::new(memory),
            epoch: Instant::now(),
        })
    }

    pub(super) fn queue_rows_max(&self) -> usize {
        self.queue_rows_max.load(Ordering::Relaxed)
    }

    pub(super) fn set_queue_rows_max(&self, rows: usize) {
        self.queue_rows_max.store(rows, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// The state, to look at. A panic of another holder is no reason to fail this one: every method
    /// of the state leaves it whole.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then does what follows from it outside of the lock. What workers are done
    /// with and what is due is taken in before: while requests crowd the front's threads, the task
    /// that waits for it has to wait behind them, and a worker would be idle for so long.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State, Nanos, &mut Outbox) -> T) -> T {
        let mut out = Outbox::default();
        let result = {
            let mut state = self.state();
            let now = self.now();
            state.poll_completions(now, &mut out);
            let result = change(&mut state, now, &mut out);
            state.advance_rollout(now, &mut out);
            state.flush_stale(now, &mut out);
            self.leave(&state, now, &out);
            result
        };
        self.send(out);
        result
    }

    /// What has to be known before the lock is given back.
    fn leave(&self, state: &State, now: Nanos, out: &Outbox) {
        self.has_coalesced
            .store(state.has_coalesced(), Ordering::Release);
        if let Some(at) = out.alarm {
            let delay = Duration::from_nanos(at.saturating_sub(now).0);
            if let Err(error) = self.alarm.set(delay) {
                tracing::error!(%error, "the batch timer cannot be set");
            }
        }
    }

    /// The front has read what is there for now: what was gathered goes to workers. Answers nobody,
    /// so that a thread of the runtime may do it on its way to sleep.
    pub(super) fn flush(&self) {
        if !self.has_coalesced.load(Ordering::Acquire) {
            return;
        }
        let mut out = Outbox::default();
        {
            let mut state = self.state();
            let now = self.now();
            state.flush(now, &mut out);
            self.leave(&state, now, &out);
        }
        self.send(out);
    }

    fn send(&self, out: Outbox) {
        let Outbox {
            wakes,
            answers,
            free_rows,
            free_results,
            installed,
            alarm: _,
            is_changed,
        } = out;
        wakes.iter().for_each(|incarnation| incarnation.ring.wake());
        // Memory first: who has an answer finds the memory of its rows free.
        if !free_rows.is_empty() || !free_results.is_empty() {
            let mut memory = self.memory();
            free_rows
                .into_iter()
                .for_each(|extent| memory.free_rows(extent));
            free_results
                .into_iter()
                .for_each(|extent| memory.free_results(extent));
        }
        for (reply, answer) in answers {
            if let Err(Ok((results, ..))) = reply.send(answer) {
                // The client went away in this very moment.
                self.free_results(results);
            }
        }
        for (reply, installed) in installed {
            // Nobody may wait for it any more.
            let _ = reply.send(installed);
        }
        if is_changed {
            self.changed.notify_waiters();
        }
    }

    /// Waits until the state is as wanted.
    pub(super) async fn until<T>(&self, wanted: impl Fn(&State) -> Option<T>) -> T {
        // bound: one pass for each change; the caller bounds the time.
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(result) = wanted(&self.state()) {
                return result;
            }
            changed.await;
        }
    }

    pub(super) fn free_results(&self, extent: Extent) {
        self.memory().free_results(extent);
    }
}

/// Takes in what workers say and the timer, until the engine is dropped.
pub(super) async fn complete(shared: Arc<SharedState>) -> std::io::Result<()> {
    let done = readable(shared.done.as_fd().try_clone_to_owned()?)?;
    let alarm = readable(shared.alarm.as_fd().try_clone_to_owned()?)?;
    // bound: one pass for each wake; the task ends with the engine.
    loop {
        tokio::select! {
            ready = done.readable() => {
                // Cleared before the state is looked at: what comes later wakes again.
                ready?.clear_ready();
                shared.done.clear();
                shared.change(|state, now, out| state.collect_all(now, out));
            }
            ready = alarm.readable() => {
                ready?.clear_ready();
                shared.change(|state, now, out| state.timer(now, out));
            }
        }
    }
}

#[allow(
    deprecated,
    reason = "unsound only for descriptors that are closed while registered, which an OwnedFd is not; \
              its successor is an unsafe function"
)]
fn readable(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, tokio::io::Interest::READABLE)
}
