//! What requests, the completion task and the supervisor share: the state and the memory, each
//! behind its mutex, and the descriptors that wake them.
//!
//! Lock order: state, then memory; neither is held while answers are sent.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use albacore_batching::Nanos;
use albacore_os::{Alarm, Clock, Extent, OsError, Wake};
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::event::Observer;
use super::memory::{ArenaFiles, Memory};
use super::reply_latency::ReplyLatency;
use super::state::{Outbox, State};

/// Sizes that do not change while the engine lives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parallelism {
    pub(super) workers: usize,
    pub(super) threads: usize,
}

/// The engine without the thread that supervises the workers.
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
    /// The bound of rows reserved or waiting, readable without the lock.
    queue_rows_max: AtomicUsize,
    /// Requests wait for a flush; written under the lock of the state.
    has_coalesced: AtomicBool,
    alarm: Alarm,
    clock: Clock,
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
            clock: Clock::new()?,
            state: Mutex::new(state),
            memory: Mutex::new(memory),
            epoch: Instant::now(),
        })
    }

    fn process_cpu(&self) -> Option<Nanos> {
        let cpu = self.clock.process_cpu().ok()?;
        Some(Nanos(cpu.0.saturating_mul(1000)))
    }

    pub(super) fn queue_rows_max(&self) -> usize {
        self.queue_rows_max.load(Ordering::Relaxed)
    }

    pub(super) fn set_queue_rows_max(&self, rows: usize) {
        self.queue_rows_max.store(rows, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> Nanos {
        self.epoch.elapsed().into()
    }

    /// The state, to read or for changes without consequences. A panic of another holder does not
    /// poison it: every method leaves the state consistent.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then carries out the consequences outside of the lock. Finished batches
    /// and expired timers are collected first: while requests keep the front's threads busy, the
    /// completion task has to wait behind them, and a worker would be idle for that time.
    pub(super) fn update<T>(&self, update: impl FnOnce(&mut State, Nanos, &mut Outbox) -> T) -> T {
        let mut out = Outbox::default();
        let result = {
            let mut state = self.state();
            let now = self.now();
            state.measure_front(now, || self.process_cpu());
            state.poll_completions(now, &mut out);
            let result = update(&mut state, now, &mut out);
            state.advance_rollout(now, &mut out);
            state.flush_stale(now, &mut out);
            self.publish(&state, now, &out);
            result
        };
        self.carry_out(out);
        result
    }

    /// Publishes what must be visible before the lock is released.
    fn publish(&self, state: &State, now: Nanos, out: &Outbox) {
        self.has_coalesced
            .store(state.has_coalesced(), Ordering::Release);
        if let Some(at) = out.alarm {
            let delay = Duration::from_nanos(at.saturating_sub(now).0);
            if let Err(error) = self.alarm.set(delay) {
                tracing::error!(%error, "the batch timer cannot be set");
            }
        }
    }

    /// Schedules the coalesced requests. Wakes no task, so that a thread of the runtime may call it
    /// before it sleeps.
    pub(super) fn flush(&self) {
        if !self.has_coalesced.load(Ordering::Acquire) {
            return;
        }
        let mut out = Outbox::default();
        {
            let mut state = self.state();
            let now = self.now();
            state.flush(now, &mut out);
            self.publish(&state, now, &out);
        }
        self.carry_out(out);
    }

    fn carry_out(&self, out: Outbox) {
        let Outbox {
            wakes,
            answers,
            free_rows,
            free_results,
            installed,
            chosen,
            alarm: _,
            is_changed,
        } = out;
        wakes.iter().for_each(|sleeping| sleeping.ring.wake());
        chosen.into_iter().for_each(&self.observer.0);
        // Memory first: a client that has its answer finds the memory of its rows free.
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
                // The client went away meanwhile.
                self.free_results(results);
            }
        }
        for (reply, installed) in installed {
            // The caller may have given up.
            let _ = reply.send(installed);
        }
        if is_changed {
            self.changed.notify_waiters();
        }
    }

    /// Waits until `wanted` gives a value.
    pub(super) async fn wait_until<T>(&self, wanted: impl Fn(&State) -> Option<T>) -> T {
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

/// Collects finished batches and handles the timer, until the engine is dropped.
pub(super) async fn run_completions(shared: Arc<SharedState>) -> std::io::Result<()> {
    let done = readable(shared.done.as_fd().try_clone_to_owned()?)?;
    let alarm = readable(shared.alarm.as_fd().try_clone_to_owned()?)?;
    // bound: one pass for each wake; the task ends with the engine.
    loop {
        tokio::select! {
            ready = done.readable() => {
                // Cleared before the state is read: what comes later wakes again.
                ready?.clear_ready();
                shared.done.clear();
                shared.update(|state, now, out| state.collect_all(now, out));
            }
            ready = alarm.readable() => {
                ready?.clear_ready();
                shared.update(|state, now, out| state.timer(now, out));
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
