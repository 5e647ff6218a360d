//! Assigns candidates of queues to workers, and computes when to decide next.
//!
//! **Problem.** Candidates have windows, workers have times at which they are free. A candidate is
//! assigned to a worker that is free in its window, the most urgent candidate first, and always to
//! the lowest-numbered worker, so that workers that are not needed stay idle and can be counted.
//!
//! **Approach.** A candidate waits for its window to open (`opens`). If a worker is free at its
//! start, the two are matched. Otherwise the candidate waits for a worker (`expires`); a worker
//! that becomes free takes the one that expires first. An expired candidate is recomputed a
//! nanosecond later. Simultaneous events are handled in this order: opening windows, workers,
//! expired candidates; within a kind by index.
//!
//! **Proof sketch.** Every decision removes a candidate from `opens` or `expires`, and it is added
//! again only for a later time, or to `expires` while no worker is free: so a step terminates.
//! After it, the time of the next possible event is among the four minima that
//! [`WorkerAssigner::next`] reads.
//!
//! **Threads.** Queues and assigner share no state and exchange [`WorkerAssigner::set_candidate`],
//! [`WorkerAssigner::complete_grant`] and [`Decision`]: they may run on different threads with a
//! message queue in each direction. Messages of a queue between a grant and its completion are
//! stale and ignored.
//!
//! A caller that shares the workers' time between queues ranks them
//! ([`WorkerAssigner::set_ranks`]): candidates that wait for a worker are then ordered by rank
//! first, by urgency second.
//!
//! **Limits.** O(log queues + log workers) per decision. With ranks, or with non-zero delays for a
//! candidate for which a worker is too late, a decision scans all queues.

use super::request_queue::Candidate;
use super::rules::Delays;
use super::tournament::{ABSENT, Tournament};
use crate::{Nanos, QueueIndex, WorkerIndex};

/// A decision that a queue must carry out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Dispatch to this worker, then call [`WorkerAssigner::complete_grant`]; until then the queue
    /// gets no other decision.
    Grant {
        queue: QueueIndex,
        worker: WorkerIndex,
        /// When the worker is free.
        free: Nanos,
    },
    /// The candidate expired: compute another one.
    Refresh { queue: QueueIndex },
}

/// Matches candidates with workers; independent of single requests.
#[derive(Debug)]
pub struct WorkerAssigner {
    delays: Delays,
    candidates: Vec<Option<Candidate>>,
    /// Queues with an incomplete grant.
    is_granted: Vec<bool>,
    /// When workers are free.
    workers: Tournament,
    opens: Tournament,
    /// The latest start of candidates that wait for a worker.
    expires: Tournament,
    /// Expiry of candidates whose window opens after it (`Timeout` only).
    stale: Tournament,
    /// Bitwise inverted delays of the candidates that wait for a worker: the minimum belongs to the
    /// largest delay.
    largest_delays: Tournament,
    /// Candidates that wait for a worker are ordered by rank, lowest first.
    ranks: Vec<u8>,
    /// Whether some rank is above 0.
    has_ranks: bool,
}

impl WorkerAssigner {
    /// Creates an assigner without candidates; every worker is absent.
    #[must_use]
    pub fn new(queues: usize, workers: usize, delays: Delays) -> Self {
        Self {
            delays,
            candidates: vec![None; queues],
            is_granted: vec![false; queues],
            workers: Tournament::new(workers),
            opens: Tournament::new(queues),
            expires: Tournament::new(queues),
            stale: Tournament::new(queues),
            largest_delays: Tournament::new(queues),
            ranks: vec![0; queues],
            has_ranks: false,
        }
    }

    pub fn add_queue(&mut self) {
        self.candidates.push(None);
        self.is_granted.push(false);
        self.ranks.push(0);
        let queues = self.candidates.len();
        for tree in [
            &mut self.opens,
            &mut self.expires,
            &mut self.stale,
            &mut self.largest_delays,
        ] {
            tree.grow_to(queues);
        }
    }

    /// Replaces the candidate of a queue.
    pub fn set_candidate(&mut self, queue: QueueIndex, candidate: Option<Candidate>) {
        if self.is_granted[queue.0] {
            return;
        }
        if self.expires.get(queue.0) != ABSENT {
            self.remove_waiting(queue.0);
        }
        self.candidates[queue.0] = candidate;
        let (wakes, stale) = match candidate {
            Some(c) if c.exec > c.latest => (c.wakes.0, c.latest.0),
            Some(c) => (c.wakes.0, ABSENT),
            None => (ABSENT, ABSENT),
        };
        self.opens.set(queue.0, wakes);
        self.stale.set(queue.0, stale);
    }

    /// Whether the candidate of this queue only waits for a worker.
    #[must_use]
    pub fn is_waiting(&self, queue: QueueIndex) -> bool {
        self.expires.get(queue.0) != ABSENT
    }

    /// Whether any candidate only waits for a worker.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.expires.min() != ABSENT
    }

    /// Sets the rank of each queue; missing ranks are 0.
    pub fn set_ranks(&mut self, ranks: impl Iterator<Item = u8>) {
        self.has_ranks = false;
        self.ranks.fill(0);
        for (known, rank) in self.ranks.iter_mut().zip(ranks) {
            *known = rank;
            self.has_ranks |= rank > 0;
        }
    }

    /// Sets when a worker is free; `None` if unknown.
    pub fn set_free(&mut self, worker: WorkerIndex, free: Option<Nanos>) {
        self.workers.set(
            worker.position(),
            free.map_or(ABSENT, |free| free.0.min(ABSENT - 1)),
        );
    }

    /// The lowest-numbered worker that is free at time `by`.
    #[must_use]
    pub fn free_worker(&self, by: Nanos) -> Option<WorkerIndex> {
        let worker = self.workers.first_at_most(by.0.min(ABSENT - 1));
        worker.map(WorkerIndex::at)
    }

    /// When a worker is free, if known.
    #[must_use]
    pub fn free(&self, worker: WorkerIndex) -> Option<Nanos> {
        Some(self.workers.get(worker.position()))
            .filter(|&free| free != ABSENT)
            .map(Nanos)
    }

    /// Completes a grant; takes the time when the worker is free again, and the next candidate of
    /// the queue.
    pub fn complete_grant(
        &mut self,
        queue: QueueIndex,
        worker: WorkerIndex,
        free: Option<Nanos>,
        candidate: Option<Candidate>,
    ) {
        self.is_granted[queue.0] = false;
        self.set_free(worker, free);
        self.set_candidate(queue, candidate);
    }

    /// Time of the next possible decision of [`WorkerAssigner::decide`], unless an event occurs
    /// before.
    #[must_use]
    pub fn next(&self) -> Option<Nanos> {
        let expired = self.expires.min().min(self.stale.min());
        let mut next = self.opens.min().min(expired.saturating_add(1));
        if self.expires.min() != ABSENT && self.workers.min() != ABSENT {
            let free = self.workers.min();
            // Without delays, a candidate that expires before the worker is free is refreshed by
            // then.
            if self.delays.is_zero() || self.expires.first_min_from(free).is_some() {
                next = next.min(free.saturating_sub(self.largest_delay()));
            }
        }
        (next != ABSENT).then_some(Nanos(next))
    }

    /// The next decision at `now`; must be called until it returns `None`.
    pub fn decide(&mut self, now: Nanos) -> Option<Decision> {
        // Each iteration moves one candidate whose window opened to those that wait for a worker.
        while self.opens.min() <= now.0 {
            let queue = self.opens.first_min()?;
            let candidate = self.candidates[queue]?;
            self.opens.set(queue, ABSENT);
            self.stale.set(queue, ABSENT);
            let by = candidate.exec.max(now);
            match self.workers.first_at_most(by.0.min(ABSENT - 1)) {
                Some(worker) => return Some(self.grant(queue, worker)),
                None => self.add_waiting(queue, &candidate),
            }
        }
        if self.expires.min() == ABSENT && self.stale.min() == ABSENT {
            return None;
        }
        self.match_free_worker(now)
            .or_else(|| self.refresh_expired(now))
    }

    fn match_free_worker(&mut self, now: Nanos) -> Option<Decision> {
        let earliest = self.workers.min();
        if self.expires.min() == ABSENT || earliest > now.0.saturating_add(self.largest_delay()) {
            return None;
        }
        let worker = match earliest <= now.0 {
            true => self.workers.first_at_most(now.0)?,
            false => self.workers.first_min()?,
        };
        let free = self.workers.get(worker).max(now.0);
        let queue = match self.has_ranks {
            false => self.expires.first_min_from(free)?,
            true => self.first_ranked_from(free)?,
        };
        self.remove_waiting(queue);
        Some(self.grant(queue, worker))
    }

    /// Of the waiting candidates that a worker could start at `free`, the one with the lowest rank;
    /// ties are broken by expiry.
    fn first_ranked_from(&self, free: u64) -> Option<usize> {
        let keys = (0..self.candidates.len()).map(|queue| (queue, self.expires.get(queue)));
        let valid = keys.filter(|&(_, key)| key >= free && key != ABSENT);
        let first = valid.min_by_key(|&(queue, key)| (self.ranks[queue], key));
        first.map(|(queue, _)| queue)
    }

    fn refresh_expired(&mut self, now: Nanos) -> Option<Decision> {
        let (waiting, stale) = (self.expires.min(), self.stale.min());
        if waiting.min(stale) >= now.0 {
            return None;
        }
        let of = |tree: &Tournament| tree.first_min().unwrap_or(usize::MAX);
        let queue = match waiting.cmp(&stale) {
            std::cmp::Ordering::Less => of(&self.expires),
            std::cmp::Ordering::Greater => of(&self.stale),
            std::cmp::Ordering::Equal => of(&self.expires).min(of(&self.stale)),
        };
        let queue = QueueIndex(queue);
        self.set_candidate(queue, None);
        Some(Decision::Refresh { queue })
    }

    fn grant(&mut self, queue: usize, worker: usize) -> Decision {
        let free = Nanos(self.workers.get(worker));
        self.workers.set(worker, ABSENT);
        self.candidates[queue] = None;
        self.is_granted[queue] = true;
        Decision::Grant {
            queue: QueueIndex(queue),
            worker: WorkerIndex::at(worker),
            free,
        }
    }

    fn add_waiting(&mut self, queue: usize, candidate: &Candidate) {
        self.expires.set(queue, candidate.latest.0.min(ABSENT - 1));
        if !self.delays.is_zero() {
            self.largest_delays
                .set(queue, !self.delays.of(candidate.rows).0);
        }
    }

    fn remove_waiting(&mut self, queue: usize) {
        self.expires.set(queue, ABSENT);
        if !self.delays.is_zero() {
            self.largest_delays.set(queue, ABSENT);
        }
    }

    /// The largest delay of a candidate that waits for a worker.
    fn largest_delay(&self) -> u64 {
        !self.largest_delays.min()
    }
}
