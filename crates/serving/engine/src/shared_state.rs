//! State shared by the event loops and the supervisor: the scheduler's state behind its mutex, the
//! inboxes and the memory, which are divided by loop, and the descriptors that wake them.
//!
//! Lock order: state, then an inbox or a tally. No lock is held while memory is freed or replies
//! are sent.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use albacore_batching::Nanos;
use albacore_os::{Channel, Clock, OsError, Tid, Timer, Waker};
use albacore_values::Micros;
use albacore_worker::WorkerCommand;
use arc_swap::ArcSwap;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;

use super::admission::Admission;
use super::catalog::CatalogView;
use super::event::Observer;
use super::event_loop::EventLoop;
use super::front_cost::FrontCpu;
use super::front_permits::FrontPermits;
use super::inbox::Inboxes;
use super::memory::{ArenaFiles, Memory};
use super::reply_latency::ReplyLatency;
use super::state::{EnginePhase, Outbox, Pending, PendingBox, State};
use super::tallies::Tallies;
use crate::LoopIndex;
use crate::{FrontPermit, KindSet, LockTimes};

/// Sizes that are constant for the lifetime of the engine.
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
    /// Wakes the completion task of an event loop; every worker of this front has all of them.
    pub(super) done: Box<[Waker]>,
    pub(super) supervise: Waker,
    pub(super) observer: Observer,
    pub(super) changed: Notify,
    pub(super) reply_latency: Arc<ReplyLatency>,
    /// The bound of rows reserved or waiting, readable without the lock.
    queue_rows_max: AtomicUsize,
    pub(super) inboxes: Arc<Inboxes>,
    pub(super) admission: Arc<Admission>,
    tallies: Arc<Tallies>,
    pub(super) memory: Memory,
    pub(super) front_permits: FrontPermits,
    /// The models, for lookups; written while the state is locked.
    pub(super) catalog: ArcSwap<CatalogView>,
    alarm: Timer,
    clock: Clock,
    loop_threads: Box<[Tid]>,
    state: Mutex<State>,
    /// Total time for which the state was locked, in nanoseconds.
    locked_nanos: AtomicU64,
    epoch: Instant,
}

/// The locked state; measures how long it is locked.
pub(super) struct StateGuard<'a> {
    since: Instant,
    locked_nanos: &'a AtomicU64,
    state: MutexGuard<'a, State>,
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        let locked = Nanos::from(self.since.elapsed());
        self.locked_nanos.fetch_add(locked.0, Ordering::Relaxed);
    }
}

impl SharedState {
    pub(super) fn new(
        parallelism: Parallelism,
        event_loops: &[EventLoop],
        state: State,
        observer: Observer,
    ) -> Result<Self, OsError> {
        let loops = event_loops.len();
        let (memory, files) = Memory::create(loops)?;
        Ok(Self {
            files,
            parallelism,
            done: (0..loops).map(|_| Waker::new()).collect::<Result<_, _>>()?,
            supervise: Waker::new()?,
            observer,
            changed: Notify::new(),
            reply_latency: Arc::default(),
            queue_rows_max: AtomicUsize::new(usize::MAX),
            inboxes: state.inboxes(),
            admission: state.admission(),
            tallies: state.tallies(),
            memory,
            front_permits: FrontPermits::new(loops),
            catalog: ArcSwap::default(),
            alarm: Timer::new()?,
            clock: Clock::new()?,
            loop_threads: event_loops.iter().filter_map(|it| it.thread).collect(),
            state: Mutex::new(state),
            locked_nanos: AtomicU64::new(0),
            epoch: Instant::now(),
        })
    }

    /// Cpu times of the front end; `None` if the kernel does not report them.
    fn front_cpu(&self) -> Option<FrontCpu> {
        let nanos = |cpu: Micros| Nanos(cpu.0.saturating_mul(1000));
        let loops = self.loop_threads.iter();
        let loops = loops.map(|&thread| self.clock.cpu_of_thread(thread).map(nanos));
        Some(FrontCpu {
            process: nanos(self.clock.process_cpu().ok()?),
            loops: loops.collect::<Result<_, _>>().ok()?,
        })
    }

    pub(super) fn queue_rows_max(&self) -> usize {
        self.queue_rows_max.load(Ordering::Relaxed)
    }

    pub(super) fn set_queue_rows_max(&self, rows: usize) {
        self.queue_rows_max.store(rows, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> Nanos {
        self.time_of(Instant::now())
    }

    fn time_of(&self, instant: Instant) -> Nanos {
        instant.saturating_duration_since(self.epoch).into()
    }

    /// Locks the state, to read it or for changes without side effects. A panic of another holder
    /// does not poison it: every method leaves the state consistent.
    pub(super) fn state(&self) -> StateGuard<'_> {
        self.guard(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn guard<'a>(&'a self, state: MutexGuard<'a, State>) -> StateGuard<'a> {
        StateGuard {
            since: Instant::now(),
            locked_nanos: &self.locked_nanos,
            state,
        }
    }

    /// Refreshes the values that admission reads if they are old, unless another thread holds the
    /// lock.
    pub(super) fn refresh_admission(&self, now: Nanos) {
        if self.admission.is_due(now)
            && let Ok(state) = self.state.try_lock()
        {
            self.guard(state).refresh_admission(now);
        }
    }

    /// Waits until a request may use the time of its event loop.
    pub(super) async fn front_permit(
        &self,
        event_loop: LoopIndex,
        slot: usize,
        kinds: KindSet,
    ) -> FrontPermit {
        match self.admission.is_within_front_share(slot, kinds) {
            true => FrontPermit::NOT_NEEDED,
            false => self.front_permits.acquire(event_loop).await,
        }
    }

    /// Total times for which locks were held since the start.
    pub(super) fn lock_times(&self) -> LockTimes {
        LockTimes {
            state: Duration::from_nanos(self.locked_nanos.load(Ordering::Relaxed)),
            inboxes: self.inboxes.held().into(),
            memory: self.memory.held().into(),
            tallies: self.tallies.held().into(),
        }
    }

    /// Changes the state, then carries out the side effects without the lock. Submitted requests,
    /// finished batches and expired timers are collected first: while requests keep the event loops
    /// busy, the completion task is queued behind them, and a worker would be idle for that time.
    pub(super) fn update<T>(&self, update: impl FnOnce(&mut State, Nanos, &mut Outbox) -> T) -> T {
        self.update_on(LoopIndex::default(), update)
    }

    /// Like [`SharedState::update`], on a thread of this event loop.
    pub(super) fn update_on<T>(
        &self,
        event_loop: LoopIndex,
        update: impl FnOnce(&mut State, Nanos, &mut Outbox) -> T,
    ) -> T {
        let mut out = Outbox::default();
        let (result, now) = {
            let mut state = self.state();
            let now = self.time_of(state.since);
            state.measure_front(now, || self.front_cpu());
            self.collect_submitted(&mut state, now, &mut out);
            state.poll_completions(now, &mut out);
            let result = update(&mut state, now, &mut out);
            state.advance_rollout(now, &mut out);
            self.publish(&mut state, now, &mut out);
            (result, now)
        };
        self.carry_out(event_loop, out, now);
        result
    }

    fn collect_submitted(&self, state: &mut State, now: Nanos, out: &mut Outbox) {
        let mut requests = state.take_submitted_buffer();
        self.inboxes.drain_into(&mut requests);
        state.submit_all(requests, now, out);
        if state.phase == EnginePhase::Stopped {
            // No worker is left: they are answered with a failure.
            state.fail_all(out);
        }
    }

    /// Publishes what must be visible before the lock is released.
    fn publish(&self, state: &mut State, now: Nanos, out: &mut Outbox) {
        state.refresh_admission(now);
        for (incarnation, sequence) in out.attaches.drain(..) {
            // The exit of a worker is reported soon.
            if let Err(error) = self.send_memory(&incarnation.channel) {
                tracing::debug!(%error, "a worker cannot be attached");
            }
            incarnation.ring.submit_command(sequence);
        }
        if let Some(view) = state.catalog.changed_view() {
            self.catalog.store(Arc::new(view));
        }
        if let Some(at) = out.alarm {
            let delay = Duration::from_nanos(at.saturating_sub(now).0);
            if let Err(error) = self.alarm.set(delay) {
                tracing::error!(%error, "the batch timer cannot be set");
            }
        }
    }

    /// Schedules the requests in the inbox of an event loop, together with those of the other
    /// loops. Wakes no task of this loop, so that its thread may call it before it sleeps.
    pub(super) fn flush(&self, event_loop: LoopIndex) {
        if !self.inboxes.has_requests(event_loop) {
            return;
        }
        let mut out = Outbox::default();
        let now = {
            let mut state = self.state();
            let now = self.time_of(state.since);
            self.collect_submitted(&mut state, now, &mut out);
            self.publish(&mut state, now, &mut out);
            now
        };
        self.carry_out(event_loop, out, now);
    }

    fn carry_out(&self, event_loop: LoopIndex, out: Outbox, now: Nanos) {
        let Outbox {
            wakes,
            ended,
            installed,
            chosen,
            attaches: _,
            alarm: _,
            is_changed,
        } = out;
        wakes.iter().for_each(|sleeping| sleeping.ring.wake());
        chosen.into_iter().for_each(&self.observer.0);
        if !ended.is_empty() {
            self.answer(event_loop, ended, now);
        }
        for (reply, installed) in installed {
            // The caller may have given up.
            let _ = reply.send(installed);
        }
        if is_changed {
            self.changed.notify_waiters();
        }
    }

    /// Answers requests that were completed at `now`. Before a client receives its reply, the
    /// request is counted, its revision is unpinned, and the memory of its rows is freed.
    fn answer(&self, event_loop: LoopIndex, ended: Vec<PendingBox>, now: Nanos) {
        let drain = || self.state().take_tallies();
        self.tallies.count(event_loop, &ended, now, drain);
        let (mut rows, mut results) = (Vec::with_capacity(ended.len()), Vec::new());
        let mut answers = Vec::with_capacity(ended.len());
        let mut is_unneeded = false;
        for pending in ended {
            let timing = pending.timing(now);
            let Pending {
                request,
                failure,
                has_client,
                ..
            } = *pending;
            is_unneeded |= request.revision.usage.unpin();
            rows.push(request.input);
            match failure {
                None if has_client => {
                    let answer = (request.results, timing, now);
                    answers.push((request.reply, Ok(answer)));
                }
                failure => {
                    results.push(request.results);
                    let failure = failure.filter(|_| has_client);
                    answers.extend(failure.map(|failure| (request.reply, Err(failure))));
                }
            }
        }
        self.memory.free(event_loop, rows, results);
        if is_unneeded {
            self.update_on(event_loop, |state, _, _| state.drop_unneeded_revisions());
        }
        for (reply, answer) in answers {
            if let Err(Ok((results, ..))) = reply.send(answer) {
                // The client has disconnected.
                self.memory.free(event_loop, None, [results]);
            }
        }
    }

    /// Sends the memory of this front, and the wakeups of its event loops, to a worker.
    pub(super) fn send_memory(&self, worker: &Channel) -> Result<(), OsError> {
        let memory = [self.files.rows.as_fd(), self.files.results.as_fd()];
        let wakes = self.done.iter().map(|wake| wake.as_fd());
        let fds: Vec<BorrowedFd<'_>> = memory.into_iter().chain(wakes).collect();
        worker.send(&WorkerCommand::attach().encode(), &fds)
    }

    /// Waits until `condition` returns a value.
    pub(super) async fn wait_until<T>(&self, condition: impl Fn(&State) -> Option<T>) -> T {
        // bound: one pass for each change; the caller bounds the time.
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(result) = condition(&self.state()) {
                return result;
            }
            changed.await;
        }
    }
}

/// Collects the batches whose first request belongs to this event loop, until the engine is
/// dropped. The first loop handles the timer.
pub(super) async fn run_completions(
    shared: Arc<SharedState>,
    event_loop: LoopIndex,
) -> std::io::Result<()> {
    let wake = &shared.done[event_loop.0];
    let done = readable(wake.as_fd().try_clone_to_owned()?)?;
    let alarm = match event_loop.0 {
        0 => Some(readable(shared.alarm.as_fd().try_clone_to_owned()?)?),
        _ => None,
    };
    let alarmed = async || match &alarm {
        Some(alarm) => alarm.readable().await,
        None => std::future::pending().await,
    };
    // bound: one pass for each wakeup; the task ends with the engine.
    loop {
        tokio::select! {
            ready = done.readable() => {
                // Cleared before the state is read: later completions wake the task again.
                ready?.clear_ready();
                wake.clear();
                shared.update_on(event_loop, |state, now, out| state.collect_all(now, out));
            }
            ready = alarmed() => {
                ready?.clear_ready();
                shared.update_on(event_loop, |state, now, out| state.timer(now, out));
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
