//! Slots for concurrent roll-outs: decides which deployments may restart their pods now. Pure: time
//! is an argument.
//!
//! A roll-out waits while `max` others are in progress. A roll-out is in progress from its start
//! until all pods of the new template are available, or until it has made no progress for
//! [`ROLLOUT_STUCK_AFTER`](crate::limits::ROLLOUT_STUCK_AFTER). An edit of a deployment's own spec
//! takes a slot unconditionally, so edits alone can exceed `max`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use albacore_cluster::ObjectKey;
use k8s_openapi::jiff::Timestamp;

/// The roll-outs in progress, and the deployments that wait for a slot.
#[derive(Debug)]
pub(crate) struct RolloutSlots {
    max: usize,
    rolling: BTreeMap<ObjectKey, RolloutInProgress>,
    /// In the order of their requests.
    waiting: Vec<ObjectKey>,
}

#[derive(Clone, Copy, Debug)]
struct RolloutInProgress {
    /// Time at which it no longer counts as in progress, unless there is progress before.
    until: Timestamp,
    /// When this process started it; `None` once the watch has reported it. Until then its write
    /// may have failed.
    started_at: Option<Timestamp>,
}

impl RolloutSlots {
    pub(crate) fn new(max: NonZeroU32) -> Self {
        Self {
            max: usize::try_from(max.get()).unwrap_or(usize::MAX),
            rolling: BTreeMap::new(),
            waiting: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.rolling.clear();
        self.waiting.clear();
    }

    /// Starts the roll-out of `key` at `now`, which counts as in progress until `until`, regardless
    /// of other roll-outs.
    pub(crate) fn begin(&mut self, key: &ObjectKey, now: Timestamp, until: Timestamp) {
        let started_at = Some(now);
        self.waiting.retain(|waiting| waiting != key);
        self.rolling
            .insert(key.clone(), RolloutInProgress { until, started_at });
    }

    /// Starts the roll-out of `key` if it is already in progress (with an older template) or if
    /// fewer than `max` others are in progress at `now`. Otherwise `key` waits, and the roll-outs
    /// for which it waits are returned. A repeated request after a failed write keeps its original
    /// end; after that end it queues behind the waiting deployments.
    pub(crate) fn request(
        &mut self,
        key: &ObjectKey,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<(), Vec<ObjectKey>> {
        let previous = self.rolling.remove(key);
        self.rolling.retain(|_, rolling| rolling.until > now);
        let has_failed = match previous {
            Some(previous) if previous.until > now => {
                let until = match previous.started_at {
                    Some(_) => previous.until,
                    None => until,
                };
                self.begin(key, now, until);
                return Ok(());
            }
            Some(previous) => previous.started_at.is_some(),
            None => false,
        };
        let must_queue = has_failed && self.waiting.iter().any(|waiting| waiting != key);
        if self.rolling.len() < self.max && !must_queue {
            self.begin(key, now, until);
            return Ok(());
        }
        if !self.waiting.contains(key) {
            self.waiting.push(key.clone());
        }
        Err(self.rolling.keys().cloned().collect())
    }

    /// Records that the roll-out of `key` is in progress according to the watch, until `until`
    /// unless there is progress before.
    pub(crate) fn keep(&mut self, key: &ObjectKey, until: Timestamp) {
        let started_at = None;
        self.rolling
            .insert(key.clone(), RolloutInProgress { until, started_at });
    }

    /// Records that the roll-out of `key` that started at `rolled_at` has ended according to the
    /// watch; `key` may still wait.
    pub(crate) fn end(&mut self, key: &ObjectKey, rolled_at: Option<Timestamp>) {
        let is_over = |rolling: &RolloutInProgress| {
            rolling
                .started_at
                .is_none_or(|started_at| rolled_at >= Some(started_at))
        };
        if self.rolling.get(key).is_some_and(is_over) {
            self.rolling.remove(key);
        }
    }

    /// Removes `key`: its roll-out is complete or stuck, or the deployment is invalid or deleted.
    pub(crate) fn release(&mut self, key: &ObjectKey) {
        self.rolling.remove(key);
        self.waiting.retain(|waiting| waiting != key);
    }

    /// The waiting deployments that may start at `now`, at most as many as there are free slots.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<ObjectKey> {
        let rolling = self.rolling.values().filter(|rolling| rolling.until > now);
        let free = self.max.saturating_sub(rolling.count());
        self.waiting.iter().take(free).cloned().collect()
    }
}
