//! Which nodes are silent: their agents have not told for a minute that they read their masks back.
//!
//! The time in a NodePlacement is that of the node's clock, which may be minutes off. So two such
//! times are only ever compared with each other, for equality: what counts is when this process saw
//! the time change, by its own clock that never jumps. A process that has just begun has seen no
//! change yet and cannot know for how long a node has been silent. For as long as a node may take
//! to be called silent it leaves the status of deployments as it is (see
//! [`Freshness::Unconfirmed`]), so that its start neither calls a silent node placed nor a placed
//! one silent.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::limits::SILENCE_TIME_MAX;

/// What is known of the age of a node's report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Freshness {
    /// Its agent renewed it lately.
    Fresh,
    /// It was there when this process began, which has not seen it renewed yet.
    Unconfirmed,
    /// It was not renewed for [`SILENCE_TIME_MAX`].
    Silent,
}

#[derive(Debug)]
struct Renewal {
    /// The time that the agent told, as it was last seen to change.
    told: Option<Time>,
    seen_at: Instant,
    freshness: Freshness,
}

#[derive(Debug, Default)]
struct Known {
    nodes: HashMap<String, Renewal>,
    is_listed: bool,
}

/// The renewals of all nodes. Clones are the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Renewals(Arc<Mutex<Known>>);

impl Renewals {
    fn lock(&self) -> MutexGuard<'_, Known> {
        // Entries are whole at every moment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All nodes were listed once: a report that appears from now on was written now.
    pub(crate) fn begin(&self) {
        self.lock().is_listed = true;
    }

    /// Takes note of a report that was seen at `now`; true if its node was not [`Freshness::Fresh`]
    /// before and is now.
    pub(crate) fn note(&self, node: &str, told: Option<&Time>, now: Instant) -> bool {
        let mut known = self.lock();
        let is_new = known.is_listed && told.is_some();
        let Some(renewal) = known.nodes.get_mut(node) else {
            let renewal = Renewal {
                told: told.cloned(),
                seen_at: now,
                freshness: match is_new {
                    true => Freshness::Fresh,
                    false => Freshness::Unconfirmed,
                },
            };
            known.nodes.insert(node.to_owned(), renewal);
            return is_new;
        };
        // An agent that has just begun has verified nothing and tells no time.
        if renewal.told.as_ref() == told || told.is_none() {
            return false;
        }
        renewal.told = told.cloned();
        renewal.seen_at = now;
        std::mem::replace(&mut renewal.freshness, Freshness::Fresh) != Freshness::Fresh
    }

    /// The report of a node was deleted.
    pub(crate) fn forget(&self, node: &str) {
        self.lock().nodes.remove(node);
    }

    /// How fresh the report of a node is.
    pub(crate) fn freshness(&self, node: &str) -> Freshness {
        let known = self.lock();
        let renewal = known.nodes.get(node);
        renewal.map_or(Freshness::Unconfirmed, |renewal| renewal.freshness)
    }

    /// The nodes that have become silent by `now`, and when the next one will if it is not renewed.
    pub(crate) fn expire(&self, now: Instant) -> (Vec<String>, Option<Instant>) {
        let (mut silent, mut next) = (Vec::new(), None);
        for (node, renewal) in &mut self.lock().nodes {
            let at = renewal.seen_at + SILENCE_TIME_MAX;
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
        renewals.begin();
        // Far behind, and then even further: only that it is another time counts.
        assert!(renewals.note("a", time(1_000).as_ref(), start));
        assert!(!renewals.note("a", time(40).as_ref(), start + 40 * SECOND));
        let (silent, next) = renewals.expire(start + 61 * SECOND);
        assert!(silent.is_empty(), "{silent:?}");
        assert_eq!(next, Some(start + 100 * SECOND));
        // Told again without having been renewed.
        assert!(!renewals.note("a", time(40).as_ref(), start + 99 * SECOND));
        assert_eq!(renewals.freshness("a"), Freshness::Fresh);
        assert_eq!(renewals.expire(start + 100 * SECOND).0, ["a"]);
        assert_eq!(renewals.freshness("a"), Freshness::Silent);
        // It is told once, and recovers with the next renewal.
        assert_eq!(renewals.expire(start + 101 * SECOND), (Vec::new(), None));
        assert!(renewals.note("a", time(41).as_ref(), start + 102 * SECOND));
        assert_eq!(renewals.freshness("a"), Freshness::Fresh);
    }

    #[test]
    fn what_was_there_at_the_start_is_unconfirmed_until_it_is_renewed() {
        let (renewals, start) = (Renewals::default(), Instant::now());
        for node in ["dead", "alive", "old agent"] {
            let told = time(7).filter(|_| node != "old agent");
            assert!(!renewals.note(node, told.as_ref(), start));
            assert_eq!(renewals.freshness(node), Freshness::Unconfirmed);
        }
        renewals.begin();
        assert!(renewals.note("alive", time(8).as_ref(), start + 20 * SECOND));
        assert!(!renewals.note("old agent", None, start + 20 * SECOND));
        let (mut silent, next) = renewals.expire(start + 60 * SECOND);
        silent.sort();
        assert_eq!(silent, ["dead", "old agent"]);
        assert_eq!(next, Some(start + 80 * SECOND));
        renewals.forget("alive");
        assert_eq!(renewals.expire(start + 81 * SECOND), (Vec::new(), None));
    }
}
