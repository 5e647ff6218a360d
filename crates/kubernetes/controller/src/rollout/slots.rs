//! Which deployments may restart their pods now. Pure: time is an argument.
//!
//! At most `max` roll-outs are under way when another one begins. A roll-out is under way from its
//! start until all pods of the new template are available, or until it has made no progress for
//! [`ROLLOUT_STUCK_AFTER`](crate::limits::ROLLOUT_STUCK_AFTER). An edit of a deployment's own spec
//! takes a slot unconditionally, so edits alone can exceed `max`.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use albacore_cluster::ObjectKey;
use k8s_openapi::jiff::Timestamp;

/// The roll-outs under way, and the deployments that wait.
#[derive(Debug)]
pub(crate) struct RolloutSlots {
    max: usize,
    rolling: BTreeMap<ObjectKey, Rolling>,
    /// In the order of their requests.
    waiting: Vec<ObjectKey>,
}

#[derive(Clone, Copy, Debug)]
struct Rolling {
    /// When it stops counting as under way, unless it makes progress.
    until: Timestamp,
    /// When this process began it; `None` once the cluster shows it. Until then its write may have
    /// failed.
    begun: Option<Timestamp>,
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

    /// Begins the roll-out of `key` at `now`, which counts as under way until `until`, whatever
    /// else rolls.
    pub(crate) fn begin(&mut self, key: &ObjectKey, now: Timestamp, until: Timestamp) {
        let begun = Some(now);
        self.waiting.retain(|waiting| waiting != key);
        self.rolling.insert(key.clone(), Rolling { until, begun });
    }

    /// Begins the roll-out of `key` if it is under way already (with an older template) or if fewer
    /// than `max` others are under way at `now`; else `key` waits, and the roll-outs that it waits
    /// for are returned. A repeated request after a failed write keeps its end, and queues behind
    /// the waiting ones once that has passed.
    pub(crate) fn request(
        &mut self,
        key: &ObjectKey,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<(), Vec<ObjectKey>> {
        let own = self.rolling.remove(key);
        self.rolling.retain(|_, rolling| rolling.until > now);
        let has_failed = match own {
            Some(own) if own.until > now => {
                let until = match own.begun {
                    Some(_) => own.until,
                    None => until,
                };
                self.begin(key, now, until);
                return Ok(());
            }
            Some(own) => own.begun.is_some(),
            None => false,
        };
        let is_behind = has_failed && self.waiting.iter().any(|waiting| waiting != key);
        if self.rolling.len() < self.max && !is_behind {
            self.begin(key, now, until);
            return Ok(());
        }
        if !self.waiting.contains(key) {
            self.waiting.push(key.clone());
        }
        Err(self.rolling.keys().cloned().collect())
    }

    /// Notes that the cluster shows the roll-out of `key` under way, until `until` unless it makes
    /// progress.
    pub(crate) fn keep(&mut self, key: &ObjectKey, until: Timestamp) {
        let begun = None;
        self.rolling.insert(key.clone(), Rolling { until, begun });
    }

    /// Notes that the cluster shows the roll-out of `key` that began at `rolled` as ended; `key`
    /// may still wait.
    pub(crate) fn end(&mut self, key: &ObjectKey, rolled: Option<Timestamp>) {
        let is_over = |rolling: &Rolling| rolling.begun.is_none_or(|begun| rolled >= Some(begun));
        if self.rolling.get(key).is_some_and(is_over) {
            self.rolling.remove(key);
        }
    }

    /// Forgets `key`: its roll-out is complete or stuck, or it is invalid or deleted.
    pub(crate) fn release(&mut self, key: &ObjectKey) {
        self.rolling.remove(key);
        self.waiting.retain(|waiting| waiting != key);
    }

    /// The waiting deployments that find a free slot at `now`, at most as many as there are free
    /// slots.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<ObjectKey> {
        let rolling = self.rolling.values().filter(|rolling| rolling.until > now);
        let free = self.max.saturating_sub(rolling.count());
        self.waiting.iter().take(free).cloned().collect()
    }
}
