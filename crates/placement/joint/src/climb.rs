//! Better placements by moves: exchanges of two threads and shifts of one.
//!
//! **Problem.** A deal made thread by thread is not the best. **Approach.** Moves that leave the
//! loads balanced: an *exchange* of the cpus of two threads, of any parties, and a *shift* of a
//! thread to a cpu that carries exactly one less (on a core that does too, or on its own): the
//! loads trade places. First moves that lower the breaches of the rules on mains (`mend`), then
//! moves that raise worth. Per pair of cpus the most that any thread on the one wants to be on the
//! other is kept in a table, so that most pairs are dismissed with a look. **Proof sketch.** Each
//! move lowers the breaches, or keeps them and raises worth, an integer with a bound; the table is
//! an upper limit for a cpu's threads when it was last filled, and it is filled again where one of
//! their workers moved; a round over all cpus that changes nothing ends it. **Limits.** A local
//! search. The budget is asked before a cpu's wishes are filled and before each move of a pair.

use std::collections::VecDeque;

use super::search::{CYCLE, Move, Search, Thread};
use super::site::NOWHERE;
use crate::limits::FROZEN_COST;

const NEVER: i64 = i64::MIN / 8;

/// What a budget says: true if it is spent.
pub(super) type Spent<'a> = &'a mut dyn FnMut() -> bool;

/// Lowers the breaches of the rules on mains, thread by thread: first by moves that leave everybody
/// where they run, then by any.
pub(super) fn mend(search: &mut Search<'_>, spent: Spent<'_>) {
    let move_cost = search.move_cost;
    let is_joined = search.site.parties.iter().any(|party| party.is_running);
    if is_joined {
        search.move_cost = FROZEN_COST;
        mend_with(search, -FROZEN_COST * CYCLE / 2, spent);
        search.move_cost = move_cost;
    }
    mend_with(search, i64::MIN, spent);
}

/// The same by moves that are worth at least so much.
fn mend_with(search: &mut Search<'_>, least: i64, spent: Spent<'_>) {
    let (mut idle, mut thread) = (0, 0);
    // bound: each round over all threads but the last lowers the breaches
    while search.breach() > 0 && idle < search.threads.len() {
        idle += 1;
        let cpu = usize::from(search.threads[thread].cpu);
        if search.is_culprit(cpu) {
            if spent() {
                return;
            }
            if let Some(step) = mending(search, thread, least) {
                make(search, step);
                idle = 0;
            }
        }
        thread = (thread + 1) % search.threads.len();
    }
}

/// The move of a thread that lowers the breaches most.
fn mending(search: &Search<'_>, thread: usize, least: i64) -> Option<Move> {
    let mut best: Option<((i64, i64), Move)> = None;
    let Thread { main, cpu, .. } = search.threads[thread];
    let from = usize::from(cpu);
    let mut consider = |step: Move| {
        let lowers = |&(breach, worth): &(i64, i64)| breach < 0 && worth >= least;
        if let Some((breach, worth)) = look(search, step).filter(lowers) {
            let key = (breach, -worth);
            if best.as_ref().is_none_or(|(before, _)| key < *before) {
                best = Some((key, step));
            }
        }
    };
    for to in (0..search.site.cpus).filter(|&to| to != from) {
        if may_trade(search, from, to) {
            consider(Move::Shift(thread, to));
        }
        if main && search.breach_change(from, to, 1, 0) < 0 {
            for &other in &search.on[to] {
                consider(Move::Exchange(thread, other as usize));
            }
        }
    }
    best.map(|(_, step)| step)
}

pub(super) fn make(search: &mut Search<'_>, step: Move) {
    match step {
        Move::Exchange(first, second) => search.exchange(first, second),
        Move::Shift(thread, to) => search.shift(thread, to),
    }
}

/// Whether one thread may go from a cpu to another without unbalancing loads.
fn may_trade(search: &Search<'_>, from: usize, to: usize) -> bool {
    let (a, b) = (search.site.core(from), search.site.core(to));
    search.loads[from] == search.loads[to] + 1
        && (a == b || search.core_loads[a] == search.core_loads[b] + 1)
}

/// How breaches and worth change with a move; `None` if it is not legal.
pub(super) fn look(search: &Search<'_>, step: Move) -> Option<(i64, i64)> {
    match step {
        Move::Exchange(first, second) => look_at_exchange(search, first, second),
        Move::Shift(thread, to) => look_at_shift(search, thread, to),
    }
}

fn look_at_shift(search: &Search<'_>, thread: usize, to: usize) -> Option<(i64, i64)> {
    let Thread {
        party,
        worker,
        main,
        cpu,
    } = search.threads[thread];
    let from = usize::from(cpu);
    let legal = from != to
        && may_trade(search, from, to)
        && search.has_room(party, worker, to)
        && search.has_ranks(party, to, main.into(), (!main).into());
    let mains = if main {
        search.mains_worth(from, to)
    } else {
        0
    };
    legal.then(|| {
        let breach = search.breach_change(from, to, main.into(), 1);
        (breach, search.worth(thread, to) + mains)
    })
}

fn look_at_exchange(search: &Search<'_>, first: usize, second: usize) -> Option<(i64, i64)> {
    let (a, b) = (search.threads[first], search.threads[second]);
    let (from, to) = (usize::from(a.cpu), usize::from(b.cpu));
    if from == to || (a.worker == b.worker && a.main == b.main) {
        return None;
    }
    if a.worker != b.worker
        && !(search.has_room(a.party, a.worker, to) && search.has_room(b.party, b.worker, from))
    {
        return None;
    }
    if !(a.party == b.party && a.main == b.main) {
        let count = |thread: Thread, sign: i32| {
            let main = i32::from(thread.main);
            (sign * main, sign * (1 - main))
        };
        let leaves = |of: Thread, to: Thread| {
            if of.party == to.party {
                count(of, -1)
            } else {
                (0, 0)
            }
        };
        let enters = |thread: Thread, other: Thread, cpu: usize| {
            let (mains, peers) = count(thread, 1);
            let less = leaves(other, thread);
            search.has_ranks(thread.party, cpu, mains + less.0, peers + less.1)
        };
        if !(enters(a, b, to) && enters(b, a, from)) {
            return None;
        }
    }
    let (mut breach, mut worth) = (0, 0);
    if a.worker == b.worker {
        worth += (search.stays(first, to) + search.stays(second, from)) * search.stay_worth();
    } else {
        worth += search.worth(first, to) + search.worth(second, from);
    }
    if a.main != b.main {
        let (from, to) = if a.main { (from, to) } else { (to, from) };
        breach = search.breach_change(from, to, 1, 0);
        worth += search.mains_worth(from, to);
    }
    Some((breach, worth))
}

/// For each pair of cpus the most that a main or a peer on the one wants to be on the other.
struct Wishes {
    cpus: usize,
    mains: Vec<i64>,
    peers: Vec<i64>,
}

impl Wishes {
    fn fill(&mut self, search: &Search<'_>, from: usize) {
        let row = from * self.cpus..(from + 1) * self.cpus;
        self.mains[row.clone()].fill(NEVER);
        self.peers[row.clone()].fill(NEVER);
        for &thread in &search.on[from] {
            let thread = thread as usize;
            let Thread {
                party,
                worker,
                main,
                ..
            } = search.threads[thread];
            let wishes = if main {
                &mut self.mains
            } else {
                &mut self.peers
            };
            let wishes = &mut wishes[row.clone()];
            let of = &search.site.parties[usize::from(party)];
            let held = &search.held[search.cell(worker, 0)..][..self.cpus];
            let pull = &search.pull[search.cell(worker, 0)..][..self.cpus];
            let distances = search.site.distances(from);
            let here = i64::from(pull[from]) - i64::from(distances[from]);
            let stay_worth = search.stay_worth();
            for &to in &of.cpus {
                let to = usize::from(to);
                if to == from || held[to] >= of.worker_cap {
                    continue;
                }
                let there = i64::from(pull[to]) - i64::from(distances[to]);
                let mut worth = of.sign * (there - here) * CYCLE;
                if of.is_running {
                    worth += search.stays(thread, to) * stay_worth;
                }
                wishes[to] = wishes[to].max(worth);
            }
        }
    }

    /// Whether some exchange or shift between two cpus might raise worth.
    fn promise(&self, search: &Search<'_>, a: usize, b: usize) -> bool {
        let at = |of: &[i64], from: usize, to: usize| of[from * self.cpus + to];
        let (main_a, peer_a) = (at(&self.mains, a, b), at(&self.peers, a, b));
        let (main_b, peer_b) = (at(&self.mains, b, a), at(&self.peers, b, a));
        let alike = peer_a + peer_b > 0 || main_a + main_b > 0;
        let (there, back) = (search.mains_worth(a, b), search.mains_worth(b, a));
        let unlike = (main_a + peer_b + there > 0 && search.breach_change(a, b, 1, 0) <= 0)
            || (peer_a + main_b + back > 0 && search.breach_change(b, a, 1, 0) <= 0);
        let trades = may_trade(search, a, b);
        alike || unlike || (trades && (peer_a > 0 || main_a + there > 0))
    }
}

/// A climb that remembers what it looked at: after a few moves only what they touch is looked at
/// again.
pub(super) struct Climber {
    wishes: Wishes,
    /// Cpus whose wishes are not those of the state any more.
    is_stale: Vec<bool>,
    /// Cpus to look at, in order, and whether each is among them.
    queue: VecDeque<usize>,
    waits: Vec<bool>,
    /// How many threads could stay if there were no rules.
    most_kept: i64,
}

impl Climber {
    /// Nothing looked at yet.
    pub(super) fn new(search: &Search<'_>) -> Self {
        let cpus = search.site.cpus;
        let homes = search.site.parties.iter().flat_map(|party| &party.homes);
        Self {
            wishes: Wishes {
                cpus,
                mains: vec![NEVER; cpus * cpus],
                peers: vec![NEVER; cpus * cpus],
            },
            is_stale: vec![true; cpus],
            queue: VecDeque::new(),
            waits: vec![false; cpus],
            most_kept: homes.filter(|&&home| home != NOWHERE).count() as i64,
        }
    }

    /// Makes moves that raise worth until there is none, the objective reaches `goal` with nothing
    /// moved that could stay, or the budget is spent.
    pub(super) fn climb(&mut self, search: &mut Search<'_>, goal: i64, spent: Spent<'_>) {
        let cpus = search.site.cpus;
        let mut before = None;
        // bound: each round but the last raises worth
        while before != Some(search.worth_of_all()) {
            before = Some(search.worth_of_all());
            (0..cpus).for_each(|cpu| self.enqueue(cpu));
            if !self.climb_on(search, goal, spent) {
                return;
            }
        }
    }

    /// The same from the cpus that wait alone; false if the goal was met or the budget spent.
    pub(super) fn climb_on(
        &mut self,
        search: &mut Search<'_>,
        goal: i64,
        spent: Spent<'_>,
    ) -> bool {
        // bound: a cpu waits again only after a move, which raises worth
        while let Some(cpu) = self.queue.pop_front() {
            self.waits[cpu] = false;
            let is_done = search.value >= goal && search.kept == self.most_kept;
            if is_done || spent() {
                return false;
            }
            self.improve(search, cpu, spent);
        }
        true
    }

    /// Notes what moves touch: all cpus of the workers that moved.
    pub(super) fn note(&mut self, search: &Search<'_>, trail: &[Move]) {
        for &step in trail {
            let (thread, other) = match step {
                Move::Exchange(first, second) => (first, Some(second)),
                Move::Shift(thread, from) => {
                    self.touch(from);
                    (thread, None)
                }
            };
            for thread in std::iter::once(thread).chain(other) {
                for mate in search.mates(thread) {
                    self.touch(usize::from(search.threads[mate].cpu));
                }
            }
        }
    }

    pub(super) fn rest(&mut self) {
        for cpu in self.queue.drain(..) {
            self.waits[cpu] = false;
        }
    }

    fn touch(&mut self, cpu: usize) {
        self.is_stale[cpu] = true;
        self.enqueue(cpu);
    }

    fn enqueue(&mut self, cpu: usize) {
        if !std::mem::replace(&mut self.waits[cpu], true) {
            self.queue.push_back(cpu);
        }
    }

    fn refresh(&mut self, search: &Search<'_>, cpu: usize) {
        if std::mem::replace(&mut self.is_stale[cpu], false) {
            self.wishes.fill(search, cpu);
        }
    }

    /// Makes moves of the threads on a cpu.
    fn improve(&mut self, search: &mut Search<'_>, cpu: usize, spent: Spent<'_>) {
        // bound: each turn raises worth
        while let Some(step) = main_with_own_peer(search, cpu) {
            self.make(search, step);
        }
        self.refresh(search, cpu);
        for other in (0..search.site.cpus).filter(|&other| other != cpu) {
            if self.is_stale[other] && spent() {
                return;
            }
            self.refresh(search, other);
            // bound: each turn raises worth
            while self.wishes.promise(search, cpu, other) {
                if spent() {
                    return;
                }
                let Some(step) = best_between(search, cpu, other) else {
                    break;
                };
                self.make(search, step);
                self.refresh(search, cpu);
                self.refresh(search, other);
            }
        }
    }

    fn make(&mut self, search: &mut Search<'_>, step: Move) {
        let first = search.trail.len();
        make(search, step);
        self.note(search, &search.trail[first..]);
    }
}

/// The exchange of a main on the cpu with a peer of its worker that raises worth most.
fn main_with_own_peer(search: &Search<'_>, cpu: usize) -> Option<Move> {
    let mut best: Option<((i64, i64), Move)> = None;
    for &main in search.on[cpu]
        .iter()
        .filter(|&&t| search.threads[t as usize].main)
    {
        let main = main as usize;
        for peer in search.mates(main).skip(1) {
            consider(search, Move::Exchange(main, peer), &mut best);
        }
    }
    best.map(|(_, step)| step)
}

/// The best move between two cpus, if one raises worth.
fn best_between(search: &Search<'_>, a: usize, b: usize) -> Option<Move> {
    let mut best: Option<((i64, i64), Move)> = None;
    for &first in &search.on[a] {
        for &second in &search.on[b] {
            let step = Move::Exchange(first as usize, second as usize);
            consider(search, step, &mut best);
        }
        if may_trade(search, a, b) {
            consider(search, Move::Shift(first as usize, b), &mut best);
        }
    }
    best.map(|(_, step)| step)
}

/// Keeps the move if it is legal, better than nothing and better than the best so far.
fn consider(search: &Search<'_>, step: Move, best: &mut Option<((i64, i64), Move)>) {
    if let Some((breach, worth)) = look(search, step) {
        let key = (breach, -worth);
        if key < (0, 0) && best.as_ref().is_none_or(|(before, _)| key < *before) {
            *best = Some((key, step));
        }
    }
}
