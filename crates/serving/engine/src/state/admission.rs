//! Admission control: whether a request can be answered in time behind what already waits.
//!
//! A request's time is divided between the front, which reads it and writes its reply, and the
//! workers. The front's part is estimated from how long requests wait to be read ([`SojournTime`])
//! and how long replies take to be written ([`ReplyLatency`]); the rest must be enough for what the
//! scheduler knows of the work that is queued. Where the front itself is overloaded, requests are
//! refused although a worker may be idle: those of models that take more than their share of the
//! front's time ([`super::front_shares`]).

use std::time::Duration;

use albacore_batching::{Ahead, Nanos, Profile};

use super::{FrontShares, Phase, State};
use crate::limits::{FRONT_SHARES, RETRY_AFTER_MAX, RETRY_AFTER_MIN, SOJOURN_SHARES, WAITED_MIN};
use crate::min_cost::MinCost;
use crate::queues::{first_queue, queue_of, queues_of};
use crate::reply_latency::ReplyLatency;
use crate::sojourn::SojournTime;
use crate::{KindSet, Priority, Refusal};

/// What a request says of its own urgency.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestTerms {
    pub(crate) arrival: Nanos,
    /// When it should be answered, if it says so itself.
    pub(crate) deadline: Option<Nanos>,
    pub(crate) priority: Priority,
}

impl RequestTerms {
    /// From arrival until the reply is due.
    fn time_limit(&self, objective: Option<Nanos>) -> Option<Nanos> {
        let own = self
            .deadline
            .map(|deadline| deadline.saturating_sub(self.arrival));
        [objective, own].into_iter().flatten().min()
    }

    /// Time that is left until its own deadline or, if it has waited for at least [`WAITED_MIN`],
    /// until the objective. `None`: the whole objective.
    pub(crate) fn remaining(&self, objective: Option<Nanos>, now: Nanos) -> Option<Nanos> {
        let waited = now.saturating_sub(self.arrival);
        let has_waited = waited.0 >= WAITED_MIN.as_nanos() as u64;
        let objective = objective.filter(|_| has_waited);
        let left = objective.map(|objective| objective.saturating_sub(waited));
        let own = self.deadline.map(|deadline| deadline.saturating_sub(now));
        [left, own].into_iter().flatten().min()
    }

    fn is_expired(&self, now: Nanos) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Which queued requests run before one of this priority.
    pub(super) fn ahead(priority: Priority) -> Ahead {
        match priority {
            Priority::High | Priority::Normal => Ahead::InTime,
            Priority::Low => Ahead::All,
        }
    }
}

/// A request whose size is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionRequest {
    /// The slot of its model.
    pub(crate) slot: usize,
    pub(crate) rows: usize,
    pub(crate) kinds: KindSet,
    pub(crate) terms: RequestTerms,
}

/// The times that a request is judged by.
#[derive(Clone, Copy, Debug)]
struct TimeLimits {
    /// From its arrival until its reply is due.
    request: Nanos,
    /// The front may take a part of this: for a queue that takes more than its share of the front
    /// the shortest objective of other models counts, too. `None` where there is no crowd, and for
    /// a queue that takes less: it is not refused for what the front does for others.
    front: Option<Nanos>,
}

/// Estimates that admission keeps under the lock of the state.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// How long requests wait for the front.
    sojourn: SojournTime,
    /// The least that requests cost, by slot of a model.
    min_costs: Vec<MinCost>,
}

impl Admission {
    /// Forgets what requests of this slot cost: another model has it now.
    pub(super) fn start_slot(&mut self, slot: usize) {
        if self.min_costs.len() <= slot {
            self.min_costs.resize_with(slot + 1, MinCost::default);
        }
        self.min_costs[slot] = MinCost::default();
    }

    /// The part of a request's time that the front leaves to the workers.
    ///
    /// # Errors
    /// The front takes more than its share, or requests queue up before it: by how much.
    fn worker_budget(
        &mut self,
        terms: &RequestTerms,
        limits: &TimeLimits,
        reply_latency: &ReplyLatency,
        now: Nanos,
    ) -> Result<Nanos, Nanos> {
        let waited = now.saturating_sub(terms.arrival);
        let front_time = waited.saturating_add(reply_latency.expected(now));
        let sojourn = self.sojourn.record(waited, now);
        let Some(front_limit) = limits.front else {
            return Ok(limits.request.saturating_sub(waited));
        };
        let kind = usize::from(reply_latency.is_serialization_slow());
        let queue_excess = sojourn.saturating_sub(Nanos(front_limit.0 / SOJOURN_SHARES[kind]));
        let front_excess = front_time.saturating_sub(Nanos(front_limit.0 / FRONT_SHARES[kind]));
        match front_excess.max(queue_excess) {
            Nanos(0) => Ok(limits.request.saturating_sub(front_time)),
            excess => Err(excess),
        }
    }
}

impl State {
    /// Admits a request of which only the model is known, as if it cost what the cheapest of the
    /// last ones did. Refusing before the body is read saves most of what a refusal costs.
    ///
    /// # Errors
    /// [`Refusal::Late`]; it is counted.
    pub(crate) fn admit_early(
        &mut self,
        slot: usize,
        terms: &RequestTerms,
        reply_latency: &ReplyLatency,
        now: Nanos,
    ) -> Result<(), Refusal> {
        // The outputs are not known yet: the longest objective counts.
        let objectives = queues_of(slot).map(|queue| self.scheduler.profile(queue).objective);
        let Some(time_limit) = terms.time_limit(objectives.max().flatten()) else {
            return Ok(());
        };
        // A request that has expired is refused as such when it reserves its rows.
        if terms.is_expired(now) {
            return Ok(());
        }
        let min_cost = self.admission.min_costs.get_mut(slot);
        let min_cost = min_cost.map_or(Nanos(0), MinCost::estimate);
        let limits = self.time_limits(slot, time_limit, reply_latency, |shares| {
            shares.may_be_within(slot)
        });
        let admitted = self
            .admission
            .worker_budget(terms, &limits, reply_latency, now)
            .and_then(|budget| {
                let budget = budget.saturating_sub(min_cost);
                self.scheduler.admit_early(queues_of(slot), budget, now)
            });
        admitted.map_err(|over| {
            self.count_unread(slot, now);
            self.counters.shed(slot, None, now);
            Refusal::late(over, time_limit)
        })
    }

    /// Admits a request and reserves its rows in the queue; returns when to try again should
    /// something else refuse it.
    ///
    /// # Errors
    /// A [`Refusal`]; it is counted, and nothing is reserved.
    pub(crate) fn admit(
        &mut self,
        request: &AdmissionRequest,
        reply_latency: &ReplyLatency,
        now: Nanos,
    ) -> Result<Duration, Refusal> {
        self.front_cost.count();
        let queue = queue_of(request.slot, request.kinds);
        self.front_shares.record(queue, 1, 0, now);
        if self.phase >= Phase::Closing {
            return Err(Refusal::Draining);
        }
        let retry_after = self.retry_after();
        let admitted = self
            .check_workers(retry_after)
            .and_then(|()| check_deadline(&request.terms, now))
            .and_then(|()| self.check_time(request, reply_latency, now))
            .and_then(|()| self.reserve_rows(request, retry_after));
        match admitted {
            Ok(()) => Ok(retry_after),
            Err(refusal) => {
                let kind = request.kinds.costliest();
                self.counters.shed(request.slot, kind, now);
                Err(refusal)
            }
        }
    }

    /// `is_within`: the request may be within its share of the front's time.
    fn time_limits(
        &self,
        slot: usize,
        request: Nanos,
        reply_latency: &ReplyLatency,
        is_within: impl FnOnce(&FrontShares) -> bool,
    ) -> TimeLimits {
        let is_judged = reply_latency.is_crowded() && !is_within(&self.front_shares);
        let beside = self.scheduler.shortest_beside(first_queue(slot));
        TimeLimits {
            request,
            front: is_judged.then(|| request.min(beside.unwrap_or(request))),
        }
    }

    /// How long the workers have to do with what is queued.
    fn retry_after(&self) -> Duration {
        let (rows, workers) = (self.scheduler.queued_rows(), self.workers.ready());
        let nanos = self.counters.nanos_for(rows, workers);
        Duration::from_nanos(nanos).clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
    }

    fn check_workers(&self, retry_after: Duration) -> Result<(), Refusal> {
        match self.workers.is_crash_looping() {
            true => Err(Refusal::NoWorkers { retry_after }),
            false => Ok(()),
        }
    }

    /// Whether the request can be answered within its time behind what is queued.
    fn check_time(
        &mut self,
        request: &AdmissionRequest,
        reply_latency: &ReplyLatency,
        now: Nanos,
    ) -> Result<(), Refusal> {
        let AdmissionRequest {
            slot,
            rows,
            kinds,
            ref terms,
        } = *request;
        let queue = queue_of(slot, kinds);
        self.scheduler.note_request(queue, now);
        let Profile {
            objective, cost, ..
        } = self.scheduler.profile(queue);
        if let (Some(cost), Some(min_cost)) = (cost, self.admission.min_costs.get_mut(slot)) {
            min_cost.record(cost.of(rows as u64));
        }
        let Some(time_limit) = terms.time_limit(objective) else {
            return Ok(());
        };
        let ahead = RequestTerms::ahead(terms.priority);
        let limits = self.time_limits(slot, time_limit, reply_latency, |shares| {
            shares.is_within(queue)
        });
        self.admission
            .worker_budget(terms, &limits, reply_latency, now)
            .and_then(|budget| self.scheduler.admit(queue, rows, ahead, budget, now))
            .map_err(|over| Refusal::late(over, time_limit))
    }

    fn reserve_rows(
        &mut self,
        request: &AdmissionRequest,
        retry_after: Duration,
    ) -> Result<(), Refusal> {
        let queue = queue_of(request.slot, request.kinds);
        let reserved = self.scheduler.reserve(queue, request.rows);
        reserved.map_err(|full| Refusal::QueueFull {
            retry_after,
            queued_rows: full.queued_rows,
            rows_max: full.rows_max,
        })
    }
}

fn check_deadline(terms: &RequestTerms, now: Nanos) -> Result<(), Refusal> {
    match terms.is_expired(now) {
        true => Err(Refusal::Expired),
        false => Ok(()),
    }
}
