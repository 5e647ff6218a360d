//! Local search of joint problems: exchanges of two threads and shifts of one.
//!
//! **Problem.** An assignment made thread by thread is not optimal. **Approach.** Moves that keep
//! the loads balanced: an *exchange* of the cpus of two threads, of any tenants, and a *shift* of a
//! thread to a cpu whose load is exactly one less (on the same core, or on a core whose load is
//! also one less): the loads swap. First moves that reduce the violation of the rules on mains
//! (`repair`), then moves that increase the score. A table contains, for each pair of cpus, an
//! upper bound on the gain of any thread on one that moves to the other, so that most pairs are
//! pruned by one comparison. **Proof sketch.** Each move reduces the violation, or keeps it and
//! increases the score, a bounded integer; the table bounds the gains of a cpu's threads when it
//! was filled, and is filled again when one of their workers has moved; the search ends after a
//! round over all cpus without a move. **Limits.** The result is a local optimum. The budget is
//! checked before the gains of a cpu are filled and before each move of a pair.

use std::collections::VecDeque;

use super::instance::NO_CPU;
use super::search_state::{CYCLE, JointThread, SearchState, Step};
use crate::WorkBudget;
use crate::limits::{CPU_PAIR_STEPS, EXCHANGE_STEPS, GAIN_STEPS};

const INFEASIBLE: i64 = i64::MIN / 8;

pub(super) fn apply_move(search: &mut SearchState<'_>, step: Step) {
    match step {
        Step::Exchange(first, second) => search.exchange(first, second),
        Step::Shift(thread, to) => search.shift(thread, to),
    }
}

/// Whether a thread may shift from a cpu to another without unbalancing loads.
pub(super) fn is_balanced_shift(search: &SearchState<'_>, from: usize, to: usize) -> bool {
    let (a, b) = (search.instance.core(from), search.instance.core(to));
    let order = &search.instance.fill_order;
    // equal fill levels on cores of different speed imply equal loads
    search.loads[from] == search.loads[to] + 1
        && match order.is_uniform() {
            true => a == b || search.core_loads[a] == search.core_loads[b] + 1,
            false => order.level(from, search.loads[from]) == order.level(to, search.loads[from]),
        }
}

/// Changes of violation and score by a move; `None` if the move is infeasible.
pub(super) fn evaluate(search: &SearchState<'_>, step: Step) -> Option<(i64, i64)> {
    match step {
        Step::Exchange(first, second) => evaluate_exchange(search, first, second),
        Step::Shift(thread, to) => evaluate_shift(search, thread, to),
    }
}

fn evaluate_shift(search: &SearchState<'_>, thread: usize, to: usize) -> Option<(i64, i64)> {
    let JointThread {
        tenant,
        worker,
        main,
        cpu,
    } = search.threads[thread];
    let from = usize::from(cpu);
    let legal = from != to
        && is_balanced_shift(search, from, to)
        && search.has_room(tenant, worker, to)
        && search.has_ranks(tenant, to, main.into(), (!main).into());
    let mains = if main { search.mains_gain(from, to) } else { 0 };
    legal.then(|| {
        let violation = search.violation_change(from, to, main.into(), 1);
        (violation, search.move_gain(thread, to) + mains)
    })
}

fn evaluate_exchange(search: &SearchState<'_>, first: usize, second: usize) -> Option<(i64, i64)> {
    let (a, b) = (search.threads[first], search.threads[second]);
    let (from, to) = (usize::from(a.cpu), usize::from(b.cpu));
    if from == to || (a.worker == b.worker && a.main == b.main) {
        return None;
    }
    if a.worker != b.worker
        && !(search.has_room(a.tenant, a.worker, to) && search.has_room(b.tenant, b.worker, from))
    {
        return None;
    }
    if !(a.tenant == b.tenant && a.main == b.main) {
        let count = |thread: JointThread, sign: i32| {
            let main = i32::from(thread.main);
            (sign * main, sign * (1 - main))
        };
        let leaves = |of: JointThread, to: JointThread| {
            if of.tenant == to.tenant {
                count(of, -1)
            } else {
                (0, 0)
            }
        };
        let enters = |thread: JointThread, other: JointThread, cpu: usize| {
            let (mains, peers) = count(thread, 1);
            let less = leaves(other, thread);
            search.has_ranks(thread.tenant, cpu, mains + less.0, peers + less.1)
        };
        if !(enters(a, b, to) && enters(b, a, from)) {
            return None;
        }
    }
    let (mut violation, mut score) = (0, 0);
    if a.worker == b.worker {
        score += (search.unmoved_change(first, to) + search.unmoved_change(second, from))
            * search.unmoved_bonus();
    } else {
        score += search.move_gain(first, to) + search.move_gain(second, from);
    }
    if a.main != b.main {
        let (from, to) = if a.main { (from, to) } else { (to, from) };
        violation = search.violation_change(from, to, 1, 0);
        score += search.mains_gain(from, to);
    }
    Some((violation, score))
}

/// For each ordered pair of cpus, the greatest gain of a main, and of a peer, that moves from the
/// one to the other.
struct GainTable {
    cpus: usize,
    mains: Vec<i64>,
    peers: Vec<i64>,
}

impl GainTable {
    fn fill(&mut self, search: &SearchState<'_>, from: usize) {
        let row = from * self.cpus..(from + 1) * self.cpus;
        self.mains[row.clone()].fill(INFEASIBLE);
        self.peers[row.clone()].fill(INFEASIBLE);
        for &thread in &search.threads_on_cpu[from] {
            let thread = thread as usize;
            let JointThread {
                tenant,
                worker,
                main,
                ..
            } = search.threads[thread];
            let gains = if main {
                &mut self.mains
            } else {
                &mut self.peers
            };
            let gains = &mut gains[row.clone()];
            let of = &search.instance.tenants[usize::from(tenant)];
            let held = &search.held[search.cell(worker, 0)..][..self.cpus];
            let worker_distance = &search.worker_distance[search.cell(worker, 0)..][..self.cpus];
            let distances = search.instance.distances(from);
            let here = i64::from(worker_distance[from]) - i64::from(distances[from]);
            let unmoved_bonus = search.unmoved_bonus();
            for &to in &of.cpus {
                let to = usize::from(to);
                if to == from || held[to] >= of.worker_cap {
                    continue;
                }
                let there = i64::from(worker_distance[to]) - i64::from(distances[to]);
                let mut score = of.sign * (there - here) * CYCLE;
                if of.is_running {
                    score += search.unmoved_change(thread, to) * unmoved_bonus;
                }
                gains[to] = gains[to].max(score);
            }
        }
    }

    /// Whether an exchange or shift between two cpus might increase the score.
    fn may_improve(&self, search: &SearchState<'_>, a: usize, b: usize) -> bool {
        let at = |of: &[i64], from: usize, to: usize| of[from * self.cpus + to];
        let (main_a, peer_a) = (at(&self.mains, a, b), at(&self.peers, a, b));
        let (main_b, peer_b) = (at(&self.mains, b, a), at(&self.peers, b, a));
        let alike = peer_a + peer_b > 0 || main_a + main_b > 0;
        let (there, back) = (search.mains_gain(a, b), search.mains_gain(b, a));
        let unlike = (main_a + peer_b + there > 0 && search.violation_change(a, b, 1, 0) <= 0)
            || (peer_a + main_b + back > 0 && search.violation_change(b, a, 1, 0) <= 0);
        let may_shift = is_balanced_shift(search, a, b);
        alike || unlike || (may_shift && (peer_a > 0 || main_a + there > 0))
    }
}

/// A local search that remembers which cpus are evaluated: after a few moves only the affected cpus
/// are evaluated again.
pub(super) struct LocalSearch {
    gains: GainTable,
    /// Cpus whose rows of the gain table are out of date.
    is_stale: Vec<bool>,
    /// Cpus to visit, in order, and whether each cpu is queued.
    queue: VecDeque<usize>,
    is_queued: Vec<bool>,
    /// Number of threads that could stay if there were no rules.
    max_unmoved: i64,
}

impl LocalSearch {
    /// Starts with nothing evaluated.
    pub(super) fn new(search: &SearchState<'_>) -> Self {
        let cpus = search.instance.cpus;
        let current_cpus = search
            .instance
            .tenants
            .iter()
            .flat_map(|tenant| &tenant.current_cpus);
        Self {
            gains: GainTable {
                cpus,
                mains: vec![INFEASIBLE; cpus * cpus],
                peers: vec![INFEASIBLE; cpus * cpus],
            },
            is_stale: vec![true; cpus],
            queue: VecDeque::new(),
            is_queued: vec![false; cpus],
            max_unmoved: current_cpus
                .filter(|&&current_cpu| current_cpu != NO_CPU)
                .count() as i64,
        }
    }

    /// Makes moves that increase the score until there is none, the objective reaches `goal` with
    /// no thread moved that could stay, or the budget is spent.
    pub(super) fn climb(
        &mut self,
        search: &mut SearchState<'_>,
        goal: i64,
        budget: &mut WorkBudget,
    ) {
        let cpus = search.instance.cpus;
        let mut before = None;
        // bound: each round but the last increases the score
        while before != Some(search.score()) {
            before = Some(search.score());
            (0..cpus).for_each(|cpu| self.enqueue(cpu));
            if !self.climb_from_queue(search, goal, budget) {
                return;
            }
        }
    }

    /// The same, but starts from the queued cpus only; false if the goal was reached or the budget
    /// spent.
    pub(super) fn climb_from_queue(
        &mut self,
        search: &mut SearchState<'_>,
        goal: i64,
        budget: &mut WorkBudget,
    ) -> bool {
        // bound: a cpu is queued again only after a move, which increases the score
        while let Some(cpu) = self.queue.pop_front() {
            self.is_queued[cpu] = false;
            let is_done = search.value >= goal && search.unmoved == self.max_unmoved;
            if is_done || budget.spend(CPU_PAIR_STEPS * search.instance.cpus) {
                return false;
            }
            self.improve(search, cpu, budget);
        }
        true
    }

    /// Marks all cpus of the workers that moved as out of date and queues them.
    pub(super) fn mark_touched(&mut self, search: &SearchState<'_>, undo_log: &[Step]) {
        for &step in undo_log {
            let (thread, other) = match step {
                Step::Exchange(first, second) => (first, Some(second)),
                Step::Shift(thread, from) => {
                    self.touch(from);
                    (thread, None)
                }
            };
            for thread in std::iter::once(thread).chain(other) {
                for mate in search.worker_threads(thread) {
                    self.touch(usize::from(search.threads[mate].cpu));
                }
            }
        }
    }

    pub(super) fn clear_queue(&mut self) {
        for cpu in self.queue.drain(..) {
            self.is_queued[cpu] = false;
        }
    }

    fn touch(&mut self, cpu: usize) {
        self.is_stale[cpu] = true;
        self.enqueue(cpu);
    }

    fn enqueue(&mut self, cpu: usize) {
        if !std::mem::replace(&mut self.is_queued[cpu], true) {
            self.queue.push_back(cpu);
        }
    }

    fn refresh(&mut self, search: &SearchState<'_>, cpu: usize, budget: &mut WorkBudget) {
        if std::mem::replace(&mut self.is_stale[cpu], false) {
            budget.spend(GAIN_STEPS * search.threads_on_cpu[cpu].len() * search.instance.cpus);
            self.gains.fill(search, cpu);
        }
    }

    /// Makes improving moves of the threads on a cpu.
    fn improve(&mut self, search: &mut SearchState<'_>, cpu: usize, budget: &mut WorkBudget) {
        // bound: each iteration increases the score
        while let Some(step) = main_with_own_peer(search, cpu) {
            self.apply(search, step);
        }
        self.refresh(search, cpu, budget);
        for other in (0..search.instance.cpus).filter(|&other| other != cpu) {
            if budget.is_exhausted() {
                return;
            }
            self.refresh(search, other, budget);
            // bound: each iteration increases the score
            while self.gains.may_improve(search, cpu, other) {
                let moves = search.threads_on_cpu[cpu].len() * search.threads_on_cpu[other].len();
                if budget.spend(EXCHANGE_STEPS * moves + 4 * search.instance.cpus) {
                    return;
                }
                let Some(step) = best_between(search, cpu, other) else {
                    break;
                };
                self.apply(search, step);
                self.refresh(search, cpu, budget);
                self.refresh(search, other, budget);
            }
        }
    }

    fn apply(&mut self, search: &mut SearchState<'_>, step: Step) {
        let first = search.undo_log.len();
        apply_move(search, step);
        self.mark_touched(search, &search.undo_log[first..]);
    }
}

/// The exchange of a main on the cpu with a peer of its worker that increases the score most.
fn main_with_own_peer(search: &SearchState<'_>, cpu: usize) -> Option<Step> {
    let mut best: Option<((i64, i64), Step)> = None;
    for &main in search.threads_on_cpu[cpu]
        .iter()
        .filter(|&&t| search.threads[t as usize].main)
    {
        let main = main as usize;
        for peer in search.worker_threads(main).skip(1) {
            consider(search, Step::Exchange(main, peer), &mut best);
        }
    }
    best.map(|(_, step)| step)
}

/// The best improving move between two cpus.
fn best_between(search: &SearchState<'_>, a: usize, b: usize) -> Option<Step> {
    let mut best: Option<((i64, i64), Step)> = None;
    for &first in &search.threads_on_cpu[a] {
        for &second in &search.threads_on_cpu[b] {
            let step = Step::Exchange(first as usize, second as usize);
            consider(search, step, &mut best);
        }
        if is_balanced_shift(search, a, b) {
            consider(search, Step::Shift(first as usize, b), &mut best);
        }
    }
    best.map(|(_, step)| step)
}

/// Keeps the move if it is feasible, improves, and is better than the best so far.
fn consider(search: &SearchState<'_>, step: Step, best: &mut Option<((i64, i64), Step)>) {
    if let Some((violation, score)) = evaluate(search, step) {
        let key = (violation, -score);
        if key < (0, 0) && best.as_ref().is_none_or(|(before, _)| key < *before) {
            *best = Some((key, step));
        }
    }
}
