//! One FIFO of requests that may share a batch.
//!
//! Keys grow, so a request is found by binary search; one that is withdrawn becomes a tombstone (no
//! rows) that leaves with its turn or in a sweep.

use std::collections::VecDeque;

use crate::limits::TOMBSTONES_SLACK;
use crate::{Candidate, Nanos, RequestKey};

/// A waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: RequestKey,
    /// Zero: withdrawn.
    pub(crate) rows: usize,
    pub(crate) arrival: Nanos,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Keys grow; the front is never a tombstone.
    entries: VecDeque<Entry>,
    live: usize,
    rows: usize,
}

impl Queue {
    /// Appends; a key that does not grow is refused (`false`).
    pub(crate) fn push(&mut self, entry: Entry) -> bool {
        if entry.rows == 0
            || self
                .entries
                .back()
                .is_some_and(|last| last.key >= entry.key)
        {
            return false;
        }
        self.entries.push_back(entry);
        self.live += 1;
        self.rows += entry.rows;
        true
    }

    /// Takes a request out; its rows, or `None` if it does not wait here.
    pub(crate) fn withdraw(&mut self, key: RequestKey) -> Option<usize> {
        let at = self
            .entries
            .binary_search_by_key(&key, |entry| entry.key)
            .ok()?;
        let entry = self.entries.get_mut(at).filter(|entry| entry.rows > 0)?;
        let rows = std::mem::take(&mut entry.rows);
        self.live -= 1;
        self.rows -= rows;
        if self.entries.len() > 2 * self.live + TOMBSTONES_SLACK {
            self.entries.retain(|entry| entry.rows > 0);
        }
        self.drop_tombstones();
        Some(rows)
    }

    /// What the queue could release now. With fewer rows than a batch holds everything leaves, else
    /// the batch is full: either way nothing has to be counted.
    pub(crate) fn candidate(&self, rows_max: usize, requests_max: usize) -> Option<Candidate> {
        let oldest = self.entries.front()?.arrival;
        let is_full = self.rows >= rows_max || self.live >= requests_max;
        Some(Candidate {
            rows: self.rows.min(rows_max),
            oldest,
            is_full,
        })
    }

    /// Takes the longest prefix that fits a batch, at least one request; its rows.
    pub(crate) fn take(
        &mut self,
        rows_max: usize,
        requests_max: usize,
        into: &mut Vec<Entry>,
    ) -> usize {
        let mut rows = 0;
        while let Some(&entry) = self.entries.front() {
            let fits = rows + entry.rows <= rows_max && into.len() < requests_max;
            if !fits && !into.is_empty() {
                break;
            }
            self.entries.pop_front();
            self.live -= 1;
            self.rows -= entry.rows;
            rows += entry.rows;
            into.push(entry);
            self.drop_tombstones();
        }
        rows
    }

    fn drop_tombstones(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.rows == 0) {
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tombstones_do_not_pile_up_behind_a_request_that_waits() {
        let mut queue = Queue::default();
        for key in 0..100_000 {
            assert!(queue.push(Entry {
                key: RequestKey(key),
                rows: 1,
                arrival: Nanos(key)
            }));
            if key > 0 {
                assert_eq!(queue.withdraw(RequestKey(key)), Some(1));
                assert_eq!(queue.withdraw(RequestKey(key)), None);
            }
            assert!(queue.entries.len() <= 2 * queue.live + TOMBSTONES_SLACK);
        }
        assert_eq!((queue.live, queue.rows), (1, 1));
    }

    #[test]
    fn a_key_that_does_not_grow_is_refused() {
        let mut queue = Queue::default();
        assert!(queue.push(Entry {
            key: RequestKey(5),
            rows: 1,
            arrival: Nanos(0)
        }));
        assert!(!queue.push(Entry {
            key: RequestKey(5),
            rows: 1,
            arrival: Nanos(0)
        }));
        assert!(!queue.push(Entry {
            key: RequestKey(6),
            rows: 0,
            arrival: Nanos(0)
        }));
    }
}
