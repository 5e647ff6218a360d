//! Detects silent nodes: nodes whose agents have not reported for a minute that they verified
//! masks.
//!
//! The time in a NodePlacement is that of the node's clock, which may be off by minutes. Therefore
//! two such times are only compared for equality, and the age of a report is measured with the
//! monotonic clock of this process from the moment when it observed a new time. A process that was
//! just started has not observed a change yet and cannot know how long a node has been silent. For
//! [`SILENCE_TIME_MAX`] it leaves the status of deployments unchanged (see
//! [`Freshness::Unconfirmed`]), so that a restart reports neither a silent node as placed nor a
//! placed node as silent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::limits::SILENCE_TIME_MAX;

/// The age of a node's report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Freshness {
    /// Its agent has renewed it within [`SILENCE_TIME_MAX`].
    Fresh,
    /// It existed when this process started, and this process has not observed a renewal yet.
    Unconfirmed,
    /// It was not renewed for [`SILENCE_TIME_MAX`].
    Silent,
}

#[derive(Debug)]
struct Renewal {
    /// The time of the last renewal as reported by the agent.
    reported: Option<Time>,
    observed_at: Instant,
    freshness: Freshness,
}

#[derive(Debug, Default)]
struct RenewalTable {
    nodes: HashMap<String, Renewal>,
    is_listed: bool,
}

/// The renewals of all nodes. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renewals(Arc<Mutex<RenewalTable>>);

impl Renewals {
    fn lock(&self) -> MutexGuard<'_, RenewalTable> {
        // Each entry is consistent at any time.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called after the first list of all nodes: a report that appears later is new.
    pub(crate) fn set_listed(&self) {
        self.lock().is_listed = true;
    }

    /// Records a report that was observed at `now`; returns true if its node becomes
    /// [`Freshness::Fresh`].
    pub(crate) fn record(&self, node: &str, reported: Option<&Time>, now: Instant) -> bool {
        let mut known = self.lock();
        let is_new = known.is_listed && reported.is_some();
        let Some(renewal) = known.nodes.get_mut(node) else {
            let renewal = Renewal {
                reported: reported.cloned(),
                observed_at: now,
                freshness: match is_new {
                    true => Freshness::Fresh,
                    false => Freshness::Unconfirmed,
                },
            };
            known.nodes.insert(node.to_owned(), renewal);
            return is_new;
        };
        // An agent that was just started has verified nothing and reports no time.
        if renewal.reported.as_ref() == reported || reported.is_none() {
            return false;
        }
        renewal.reported = reported.cloned();
        renewal.observed_at = now;
        std::mem::replace(&mut renewal.freshness, Freshness::Fresh) != Freshness::Fresh
    }

    /// Removes a node whose report was deleted.
    pub(crate) fn remove(&self, node: &str) {
        self.lock().nodes.remove(node);
    }

    pub(crate) fn freshness(&self, node: &str) -> Freshness {
        let known = self.lock();
        let renewal = known.nodes.get(node);
        renewal.map_or(Freshness::Unconfirmed, |renewal| renewal.freshness)
    }

    /// Returns the nodes that have become silent by `now`, and the time at which the next one will
    /// unless it is renewed.
    pub(crate) fn expire(&self, now: Instant) -> (Vec<String>, Option<Instant>) {
        let (mut silent, mut next) = (Vec::new(), None);
        for (node, renewal) in &mut self.lock().nodes {
            let at = renewal.observed_at + SILENCE_TIME_MAX;
            if renewal.freshness == Freshness::Silent {
                continue;
            }
            if now < at {
                next = Some(next.map_or(at, |next: Instant| next.min(at)));
                continue;
            }
            renewal.freshness = Freshness::Silent;
            silent.push(node.clone());
        }
        (silent, next)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::jiff::Timestamp;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn time(second: i64) -> Option<Time> {
        Some(Time(Timestamp::from_second(second).unwrap()))
    }

    #[test]
    fn a_node_is_silent_a_minute_after_its_last_renewal_whatever_its_clock_says() {
        let (renewals, start) = (Renewals::default(), Instant::now());
        renewals.set_listed();
        // The reported time moves back: only the difference counts.
        assert!(renewals.record("a", time(1_000).as_ref(), start));
        assert!(!renewals.record("a", time(40).as_ref(), start + 40 * SECOND));
        let (silent, next) = renewals.expire(start + 61 * SECOND);
        assert!(silent.is_empty(), "{silent:?}");
        assert_eq!(next, Some(start + 100 * SECOND));
        // The same report without a renewal.
        assert!(!renewals.record("a", time(40).as_ref(), start + 99 * SECOND));
        assert_eq!(renewals.freshness("a"), Freshness::Fresh);
        assert_eq!(renewals.expire(start + 100 * SECOND).0, ["a"]);
        assert_eq!(renewals.freshness("a"), Freshness::Silent);
        // A silent node is returned once; it recovers with the next renewal.
        assert_eq!(renewals.expire(start + 101 * SECOND), (Vec::new(), None));
        assert!(renewals.record("a", time(41).as_ref(), start + 102 * SECOND));
        assert_eq!(renewals.freshness("a"), Freshness::Fresh);
    }

    #[test]
    fn a_report_that_exists_at_the_start_is_unconfirmed_until_renewed() {
        let (renewals, start) = (Renewals::default(), Instant::now());
        for node in ["dead", "alive", "old agent"] {
            let reported = time(7).filter(|_| node != "old agent");
            assert!(!renewals.record(node, reported.as_ref(), start));
            assert_eq!(renewals.freshness(node), Freshness::Unconfirmed);
        }
        renewals.set_listed();
        assert!(renewals.record("alive", time(8).as_ref(), start + 20 * SECOND));
        assert!(!renewals.record("old agent", None, start + 20 * SECOND));
        let (mut silent, next) = renewals.expire(start + 60 * SECOND);
        silent.sort();
        assert_eq!(silent, ["dead", "old agent"]);
        assert_eq!(next, Some(start + 80 * SECOND));
        renewals.remove("alive");
        assert_eq!(renewals.expire(start + 81 * SECOND), (Vec::new(), None));
    }
}
