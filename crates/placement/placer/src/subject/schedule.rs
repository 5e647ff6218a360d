//! Schedules the passes of a subject, and tracks whether new processes are expected.

use std::time::Duration;

use albacore_os::Micros;

/// The longest pause after an unfinished pass is 20 ms times 2 to this power.
const BACK_OFFS_MAX: u32 = 6;

#[derive(Debug)]
pub(crate) struct PassSchedule {
    /// Something changed since the last pass.
    is_requested: bool,
    /// A pass is due at this time even without a change.
    retry_at: Option<Micros>,
    /// Number of consecutive unfinished passes.
    back_offs: u32,
    /// After a worker exited, its replacement is expected until then.
    fast_until: Micros,
    /// A process was spawned on the machine since the children were last listed.
    has_unlisted_children: bool,
}

impl PassSchedule {
    /// A new subject: everything must be read.
    pub(crate) fn new() -> Self {
        Self {
            is_requested: true,
            retry_at: None,
            back_offs: 0,
            fast_until: Micros(0),
            has_unlisted_children: true,
        }
    }

    pub(crate) fn request(&mut self) {
        self.is_requested = true;
    }

    pub(crate) fn request_if(&mut self, changed: bool) {
        self.is_requested |= changed;
    }

    pub(crate) fn is_requested(&self) -> bool {
        self.is_requested
    }

    /// Starts a pass.
    pub(crate) fn begin(&mut self) {
        self.is_requested = false;
        self.retry_at = None;
    }

    pub(crate) fn retry_at(&self) -> Option<Micros> {
        self.retry_at
    }

    pub(crate) fn retry_after(&mut self, now: Micros, pause: Duration) {
        self.retry_at = Some(Micros(now.0 + pause.as_micros() as u64));
    }

    /// Retries at this time, if any, unless an earlier retry is scheduled.
    pub(crate) fn retry_by(&mut self, at: Option<Micros>) {
        self.retry_at = [self.retry_at, at].into_iter().flatten().min();
    }

    /// Requests a pass if its retry is due.
    pub(crate) fn check_retry(&mut self, now: Micros) {
        self.request_if(self.retry_at.is_some_and(|at| now >= at));
    }

    /// Retries with exponential backoff: another program changes masks faster than this one, or a
    /// step fails.
    pub(crate) fn back_off(&mut self, now: Micros) {
        self.back_offs = (self.back_offs + 1).min(BACK_OFFS_MAX);
        self.retry_after(now, Duration::from_millis(20 << self.back_offs));
    }

    pub(crate) fn reset_back_off(&mut self) {
        self.back_offs = 0;
    }

    /// Expects the replacement of a worker that exited, for this time.
    pub(crate) fn expect_spawn(&mut self, now: Micros, time: Duration) {
        self.fast_until = Micros(now.0 + time.as_micros() as u64);
        self.request();
    }

    pub(crate) fn expects_spawn(&self, now: Micros) -> bool {
        now < self.fast_until
    }

    pub(crate) fn has_unlisted_children(&self) -> bool {
        self.has_unlisted_children
    }

    pub(crate) fn set_unlisted_children(&mut self, value: bool) {
        self.has_unlisted_children = value;
    }
}
