//! Fair sharing of the workers' time: between groups of queues (models) by weight, and equally
//! between the queues of a group (its kinds of output).
//!
//! **Problem.** With deadlines alone, a flood of requests for one model takes all workers, because
//! its requests are as urgent as any. A queue that demands no more than its share must find the
//! workers as if the others demanded no more than theirs, and unused shares must not be wasted.
//!
//! **Approach.** Start-time fair queueing (P. Goyal, H. Vin, H. Cheng: Start-time Fair Queueing,
//! SIGCOMM 1996) on two levels, with slack for deadlines: see [`flows`]. A queue may be ahead of
//! its share by the shortest objective of the other waiting queues divided by
//! [`TOLERATED_DELAY_DIVISOR`]; up to that deadlines decide, beyond it the others have priority. A
//! running batch is not preempted, so the same part of the shortest objective bounds the time until
//! some worker is free: see [`FairShares::tolerated_delay`]. Admission reads [`QueueShare`].
//!
//! **Proof sketch.** Let T be that part of its objective. A queue within its share that begins to
//! wait is at the virtual time. At most T passes until a worker is free. Other queues are served
//! before it while they are within their share, or ahead by at most T of all workers' time: so it
//! waits for at most 2 T and one batch of each, in addition to its own running batches.
//!
//! **Limits.** Shares are of time that was predicted at the dispatch, and corrected when the batch
//! is done. A single request is never split, even if it takes longer than T.

mod flows;

use flows::{Flow, SCALE, Tag, update_flows};

use crate::Nanos;
use crate::admission::QueueShare;

/// Default weight of a group, that of a Linux control group (`cpu.weight`).
pub const DEFAULT_WEIGHT: u32 = 100;

/// Other queues may delay a queue within its share by its objective divided by this, twice: by the
/// running batch, and by more urgent requests.
const TOLERATED_DELAY_DIVISOR: u64 = 4;

/// Objective assumed for queues without one.
const ASSUMED_OBJECTIVE: Nanos = Nanos(100_000_000);

/// How long a queue stays active after a request.
const ACTIVE_TIME: Nanos = Nanos(10_000_000_000);

/// Averaging window of worker use (its weight decays to 1/e).
const USE_WINDOW: Nanos = Nanos(1_000_000_000);

/// Minimum time between refreshes of the rates, unless a queue becomes active.
const REFRESH_PERIOD: Nanos = Nanos(10_000_000);

#[derive(Debug)]
struct QueueGroup {
    weight: u32,
    queues: Vec<usize>,
    /// Virtual time of its queues.
    virtual_time: Tag,
    is_active: bool,
    /// The shortest objective of active queues of other groups that have one.
    shortest_other_objective: Option<Nanos>,
}

#[derive(Debug)]
struct QueueState {
    group: usize,
    objective: Option<Nanos>,
    /// Time of the last request for it.
    last_request: Option<Nanos>,
    is_active: bool,
    /// Worker time used, in nanoseconds, exponentially decayed.
    used: f64,
    /// Whether it used less than its share at the last refresh.
    has_priority: bool,
    rate: f64,
    tolerated_delay: Option<Nanos>,
}

#[derive(Debug, Default)]
pub(crate) struct FairShares {
    groups: Vec<QueueGroup>,
    /// Service received by groups, by weight.
    group_flows: Vec<Flow>,
    queues: Vec<QueueState>,
    /// Service received by queues within their group.
    queue_flows: Vec<Flow>,
    /// Virtual time of the groups.
    virtual_time: Tag,
    /// Whether some queue waited for a worker at the last call of [`FairShares::rank`].
    was_backlogged: bool,
    refreshed: Option<Nanos>,
    /// Whether at least two queues are active.
    has_rivals: bool,
}

impl FairShares {
    /// Adds a queue, in a group of its own or in that of another queue.
    pub(crate) fn add_queue(&mut self, sibling: Option<usize>) {
        let group = match sibling.and_then(|sibling| self.queues.get(sibling)) {
            Some(sibling) => sibling.group,
            None => {
                self.groups.push(QueueGroup {
                    weight: DEFAULT_WEIGHT,
                    queues: Vec::new(),
                    virtual_time: 0,
                    is_active: false,
                    shortest_other_objective: None,
                });
                self.group_flows.push(Flow::default());
                self.groups.len() - 1
            }
        };
        self.groups[group].queues.push(self.queues.len());
        self.queues.push(QueueState {
            group,
            objective: None,
            last_request: None,
            is_active: false,
            used: 0.0,
            rate: 1.0,
            has_priority: true,
            tolerated_delay: None,
        });
        self.queue_flows.push(Flow::default());
        self.refreshed = None;
    }

    /// Sets the weight of a queue's group.
    pub(crate) fn set_weight(&mut self, queue: usize, weight: u32) {
        if let Some(of) = self.queues.get(queue) {
            self.groups[of.group].weight = weight.max(1);
            self.refreshed = None;
        }
    }

    pub(crate) fn set_objective(&mut self, queue: usize, objective: Option<Nanos>) {
        if let Some(of) = self.queues.get_mut(queue) {
            of.objective = objective;
            self.refreshed = None;
        }
    }

    /// Resets a queue because another model uses it now.
    pub(crate) fn reset(&mut self, queue: usize) {
        if let Some(of) = self.queues.get_mut(queue) {
            (of.last_request, of.used) = (None, 0.0);
            self.refreshed = None;
        }
    }

    /// Records a request for the queue, admitted or not.
    pub(crate) fn record_request(&mut self, queue: usize, now: Nanos) {
        if let Some(of) = self.queues.get_mut(queue) {
            of.last_request = Some(now);
            if !of.is_active {
                self.refreshed = None;
            }
        }
    }

    /// Values that admission reads. The rate, the fraction of all workers that the queue can count
    /// on, is 1 while the queue uses less than its share, because it then has priority; otherwise
    /// it is its share, or the capacity that the others leave unused, if more.
    pub(crate) fn queue_share(&self, queue: usize) -> QueueShare {
        let of = self.queues.get(queue);
        QueueShare {
            rate: of.map_or(1.0, |of| of.rate),
            has_rivals: of.is_some_and(|of| of.tolerated_delay.is_some()),
            has_priority: of.is_some_and(|of| of.has_priority),
            is_active: of.is_some_and(|of| of.is_active),
        }
    }

    /// The time after a dispatch of this queue within which some worker should be free for the
    /// other active queues; `None` if there are none.
    pub(crate) fn tolerated_delay(&self, queue: usize) -> Option<Nanos> {
        self.queues.get(queue)?.tolerated_delay
    }

    /// The shortest objective of the active queues of other groups.
    pub(crate) fn shortest_other_objective(&self, queue: usize) -> Option<Nanos> {
        self.groups[self.queues.get(queue)?.group].shortest_other_objective
    }

    /// The share of a queue's group in `rows_max`, the bound of all rows.
    pub(crate) fn rows_share(&self, queue: usize, rows_max: usize) -> usize {
        let Some(of) = self.queues.get(queue) else {
            return 0;
        };
        let active = u128::from(self.active_weight(Some(of.group)).max(1));
        let weight = u128::from(self.groups[of.group].weight);
        // At most `rows_max`, because the weight is included in the active weight.
        (rows_max as u128 * weight / active) as usize
    }

    /// Charges a queue for a dispatched batch with this expected service time.
    pub(crate) fn charge(&mut self, queue: usize, time: Nanos) {
        let Some(of) = self.queues.get_mut(queue) else {
            return;
        };
        of.used += time.0 as f64;
        let weight = Tag::from(self.groups[of.group].weight);
        self.queue_flows[queue].tag += Tag::from(time.0) * SCALE;
        self.group_flows[of.group].tag += Tag::from(time.0) * SCALE / weight;
    }

    /// Corrects a charge by the measured service time of the batch.
    pub(crate) fn correct(&mut self, queue: usize, charged: Nanos, service_time: Nanos) {
        if service_time >= charged {
            return self.charge(queue, service_time.saturating_sub(charged));
        }
        let Some(of) = self.queues.get_mut(queue) else {
            return;
        };
        let less = Tag::from(charged.saturating_sub(service_time).0) * SCALE;
        of.used = (of.used - (charged.0 - service_time.0) as f64).max(0.0);
        let weight = Tag::from(self.groups[of.group].weight);
        let tags = [
            (&mut self.queue_flows[queue].tag, less),
            (&mut self.group_flows[of.group].tag, less / weight),
        ];
        for (tag, less) in tags {
            *tag = tag.saturating_sub(less);
        }
    }

    /// Recomputes rates and patience, if due; returns whether it did.
    pub(crate) fn refresh(&mut self, workers: usize, now: Nanos) -> bool {
        let age = self.refreshed.map(|at| now.saturating_sub(at));
        if age.is_some_and(|age| age < REFRESH_PERIOD) {
            return false;
        }
        self.refreshed = Some(now);
        let decay = match age {
            Some(age) => (-(age.0 as f64) / USE_WINDOW.0 as f64).exp(),
            None => 1.0,
        };
        let mut total = 0.0;
        for of in &mut self.queues {
            of.used *= decay;
            total += of.used;
            let is_recent = |last_request| now.saturating_sub(last_request) < ACTIVE_TIME;
            of.is_active = of.last_request.is_some_and(is_recent);
        }
        for group in &mut self.groups {
            let mut queues = group.queues.iter();
            group.is_active = queues.any(|&queue| self.queues[queue].is_active);
        }
        let window = workers.max(1) as f64 * USE_WINDOW.0 as f64;
        let active = self.active_weight(None);
        for queue in 0..self.queues.len() {
            let (share, used) = (self.share(queue, active), self.queues[queue].used);
            self.queues[queue].has_priority = used < share * window;
            self.queues[queue].rate = match self.queues[queue].has_priority {
                true => 1.0,
                false => share.max(1.0 - (total - used) / window),
            };
        }
        self.refresh_tolerated_delays();
        true
    }

    /// Whether at least two queues are active.
    pub(crate) fn has_rivals(&self) -> bool {
        self.has_rivals
    }

    fn refresh_tolerated_delays(&mut self) {
        let objective = |of: &QueueState| of.objective.unwrap_or(ASSUMED_OBJECTIVE);
        let active = self.queues.iter().enumerate();
        let active = active.filter(|(_, of)| of.is_active);
        let shortest = ShortestObjectives::of(active.map(|(at, of)| (at, objective(of))));
        self.has_rivals = shortest.second.is_some();
        for (queue, of) in self.queues.iter_mut().enumerate() {
            of.tolerated_delay = shortest.other_than(queue).map(tolerated_delay);
        }
        let queues = &self.queues;
        let shortest = |group: &QueueGroup| {
            let active = group
                .queues
                .iter()
                .filter(|&&queue| queues[queue].is_active);
            active.filter_map(|&queue| queues[queue].objective).min()
        };
        let groups = self.groups.iter().enumerate();
        let of_groups = groups.filter_map(|(at, group)| Some((at, shortest(group)?)));
        let of_groups = ShortestObjectives::of(of_groups);
        for (at, group) in self.groups.iter_mut().enumerate() {
            group.shortest_other_objective = of_groups.other_than(at);
        }
    }

    /// Total weight of the active groups; `group` counts as active.
    fn active_weight(&self, group: Option<usize>) -> u64 {
        let groups = self.groups.iter().enumerate();
        let active = groups.filter(|&(at, of)| of.is_active || group == Some(at));
        active.map(|(_, of)| u64::from(of.weight)).sum()
    }

    /// The guaranteed share of a queue among the active queues.
    fn share(&self, queue: usize, active_weight: u64) -> f64 {
        let group = &self.groups[self.queues[queue].group];
        let kinds = group.queues.iter();
        let kinds = kinds.filter(|&&kind| kind == queue || self.queues[kind].is_active);
        let own = u64::from(group.weight);
        let all = active_weight + if group.is_active { 0 } else { own };
        own as f64 / all.max(1) as f64 / kinds.count().max(1) as f64
    }

    /// Writes the rank of each queue among those that wait for a worker: 0 is within its share, the
    /// highest is served last. Returns whether any is above 0.
    pub(crate) fn rank(
        &mut self,
        is_backlogged: impl Fn(usize) -> bool,
        any_backlogged: bool,
        workers: usize,
        ranks: &mut Vec<u8>,
    ) -> bool {
        if !any_backlogged && !self.was_backlogged {
            return false;
        }
        self.was_backlogged = any_backlogged;
        let groups = &self.groups;
        let is_group_backlogged =
            |group: usize| groups[group].queues.iter().any(|&q| is_backlogged(q));
        update_flows(
            &mut self.group_flows,
            0..groups.len(),
            &mut self.virtual_time,
            is_group_backlogged,
        );
        for group in &mut self.groups {
            let queues = group.queues.iter().copied();
            update_flows(
                &mut self.queue_flows,
                queues,
                &mut group.virtual_time,
                &is_backlogged,
            );
        }
        ranks.clear();
        ranks.resize(self.queues.len(), 0);
        self.rank_groups(workers, ranks);
        for group in &self.groups {
            self.rank_queues(group, workers, ranks);
        }
        ranks.iter().any(|&rank| rank > 0)
    }

    /// The shortest objective of the waiting queues of a group.
    fn group_objective(&self, group: &QueueGroup) -> Option<Nanos> {
        let queues = group.queues.iter().copied();
        let waiting = queues.filter(|&queue| self.queue_flows[queue].is_backlogged);
        waiting.map(|queue| self.objective(queue)).min()
    }

    fn objective(&self, queue: usize) -> Nanos {
        self.queues[queue].objective.unwrap_or(ASSUMED_OBJECTIVE)
    }

    fn rank_groups(&self, workers: usize, ranks: &mut [u8]) {
        let groups = self.groups.iter().enumerate();
        let objectives = groups.filter_map(|(at, of)| Some((at, self.group_objective(of)?)));
        let shortest = ShortestObjectives::of(objectives);
        for (at, group) in self.groups.iter().enumerate() {
            let lead = self.group_flows[at].lead(self.virtual_time, group.weight);
            if must_yield(lead, shortest.other_than(at), workers) {
                group.queues.iter().for_each(|&queue| ranks[queue] += 2);
            }
        }
    }

    fn rank_queues(&self, group: &QueueGroup, workers: usize, ranks: &mut [u8]) {
        let queues = group.queues.iter().copied();
        let waiting = queues.filter(|&queue| self.queue_flows[queue].is_backlogged);
        let shortest = ShortestObjectives::of(waiting.map(|queue| (queue, self.objective(queue))));
        for &queue in &group.queues {
            let lead = self.queue_flows[queue].lead(group.virtual_time, 1);
            if must_yield(lead, shortest.other_than(queue), workers) {
                ranks[queue] += 1;
            }
        }
    }
}

/// How long a queue with this objective may be delayed by others.
fn tolerated_delay(objective: Nanos) -> Nanos {
    Nanos(objective.0 / TOLERATED_DELAY_DIVISOR)
}

/// Whether a flow that is ahead of its share by this worker time must yield to the others, whose
/// shortest objective is `shortest`.
fn must_yield(lead: Nanos, shortest: Option<Nanos>, workers: usize) -> bool {
    let delay_max = |objective| tolerated_delay(objective).0.saturating_mul(workers as u64);
    shortest.is_some_and(|objective| lead.0 > delay_max(objective))
}

/// The two shortest of several objectives.
#[derive(Clone, Copy, Debug, Default)]
struct ShortestObjectives {
    first: Option<(usize, Nanos)>,
    second: Option<Nanos>,
}

impl ShortestObjectives {
    fn of(objectives: impl Iterator<Item = (usize, Nanos)>) -> Self {
        let mut shortest = Self::default();
        for (at, objective) in objectives {
            let is_less = |than: Option<Nanos>| than.is_none_or(|than| objective < than);
            if is_less(shortest.first.map(|(_, first)| first)) {
                shortest.second = shortest.first.map(|(_, first)| first);
                shortest.first = Some((at, objective));
            } else if is_less(shortest.second) {
                shortest.second = Some(objective);
            }
        }
        shortest
    }

    /// The shortest objective, excluding that at `at`.
    fn other_than(&self, at: usize) -> Option<Nanos> {
        let first = self.first.filter(|&(of, _)| of != at);
        first.map(|(_, first)| first).or(self.second)
    }
}

#[cfg(test)]
mod tests;
