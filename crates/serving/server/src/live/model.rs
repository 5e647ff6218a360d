//! One model of the settings: what is wanted, what is served, and when to try again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use albacore_settings as settings;

use super::load::{Attempt, Order, Served, stamp_of};
use super::stamp::Stamp;
use crate::limits::{LOAD_PAUSE_MAX, LOAD_PAUSE_MIN, STEADY_LOOKS};

/// A model that is to be served.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) settings: settings::Model,
    /// The attempt that runs: its number, and whether it is still wanted.
    running: Option<(u64, Arc<AtomicBool>)>,
    /// What the last attempt was for, and the file that it saw.
    tried: Option<(Order, Option<Stamp>)>,
    pub(super) served: Option<Served>,
    /// Failures in a row, and when to try again; 0 and `None` after a success.
    failures: u32,
    retry_at: Option<Instant>,
    /// A file other than the tried one, and how often it was seen so.
    changed: Option<(Option<Stamp>, u32)>,
}

impl Followed {
    pub(super) fn new(settings: settings::Model) -> Self {
        Self {
            settings,
            running: None,
            tried: None,
            served: None,
            failures: 0,
            retry_at: None,
            changed: None,
        }
    }

    fn order(&self) -> Order {
        Order {
            name: self.settings.name.clone(),
            source: self.settings.source.clone(),
            sha256: self.settings.sha256,
            iterations: self.settings.iterations,
        }
    }

    /// Whether what is wanted was tried already.
    fn is_tried(&self) -> bool {
        let tried = self.tried.as_ref();
        tried.is_some_and(|(order, _)| *order == self.order())
    }

    /// Other settings. Whether a file has to be loaded for them.
    pub(super) fn change(&mut self, settings: settings::Model) -> bool {
        self.settings = settings;
        if self.is_tried() {
            return false;
        }
        self.give_up();
        self.failures = 0;
        self.retry_at = None;
        self.changed = None;
        true
    }

    /// The running attempt is not wanted any more.
    pub(super) fn give_up(&mut self) {
        if let Some((_, is_wanted)) = &self.running {
            is_wanted.store(false, Ordering::Relaxed);
        }
    }

    /// What is to be loaded now, if anything is. Called once each look.
    pub(super) fn due(&mut self, now: Instant) -> Option<Order> {
        if self.running.is_some() {
            return None;
        }
        let is_due =
            !self.is_tried() || self.retry_at.is_some_and(|at| at <= now) || self.is_file_changed();
        is_due.then(|| self.order())
    }

    /// Whether the file is another than the tried one, and was so for some looks.
    fn is_file_changed(&mut self) -> bool {
        let Some((order, tried)) = &self.tried else {
            return false;
        };
        let now = stamp_of(&order.source);
        // A file that is away is being replaced, or gone; what is served stays.
        if now == *tried || now.is_none() {
            self.changed = None;
            return false;
        }
        let looks = match self.changed {
            Some((seen, looks)) if seen == now => looks + 1,
            _ => 1,
        };
        self.changed = Some((now, looks));
        looks >= STEADY_LOOKS
    }

    /// An attempt was started.
    pub(super) fn start(&mut self, number: u64, is_wanted: Arc<AtomicBool>) {
        self.running = Some((number, is_wanted));
    }

    /// Whether this attempt is waited for; it is over then.
    pub(super) fn is_over(&mut self, attempt: &Attempt) -> bool {
        let number = attempt.number;
        self.running.take_if(|(own, _)| *own == number).is_some()
    }

    /// Takes an attempt in that is over. Whether it was for what is wanted now.
    pub(super) fn take(&mut self, attempt: &Attempt, now: Instant) -> bool {
        if let Ok(digest) = attempt.outcome {
            self.served = Some((digest, attempt.order.iterations));
        }
        self.tried = Some((attempt.order.clone(), attempt.stamp));
        self.changed = None;
        if !self.is_tried() {
            return false;
        }
        (self.failures, self.retry_at) = match attempt.outcome {
            Ok(_) => (0, None),
            Err(_) => (self.failures + 1, Some(now + pause(self.failures))),
        };
        true
    }
}

/// How long to wait after `failures` failures and one more.
fn pause(failures: u32) -> Duration {
    let factor = 2_u32.saturating_pow(failures);
    LOAD_PAUSE_MIN.saturating_mul(factor).min(LOAD_PAUSE_MAX)
}

#[cfg(test)]
mod tests;
