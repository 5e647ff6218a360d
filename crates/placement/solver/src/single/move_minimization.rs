//! Minimizes moves away from the mapping in force, at no cost in value.
//!
//! **Problem.** After a change (a cpu left the cpuset), an assignment of the same value that moves
//! fewer threads is better. **Approach.** Match the rows to the workers that keep most threads
//! (`labeling`), then make the exchanges and shifts that lose no value and return threads to their
//! current cpus. **Proof sketch.** Every move increases the number of threads on their current
//! cpus, so the search terminates; each is a feasible move of `local_search`. **Limits.** A local
//! search: few moves, not always the fewest.

use crate::limits::MOVE_STEPS;
use crate::single::allowed::Allowed;
use crate::single::assignment::Assignment;
use crate::single::domains::Domains;
use crate::single::labeling::align_to_current;
use crate::single::local_search::{Search, Thread};
use crate::{Mapping, Problem, WorkBudget};

/// Returns the assignment, or one of at least its value that is closer to `current`.
pub(crate) fn minimize_moves(
    problem: &Problem,
    domains: &Domains,
    allowed: &Allowed,
    current: &Mapping,
    assignment: &Assignment,
    budget: &mut WorkBudget,
) -> Assignment {
    let current_cpus = CurrentCpus::of(domains, current);
    let mut search = Search::of(
        domains,
        allowed,
        &align_to_current(problem, domains, assignment),
    );
    for first in 0..search.threads() {
        if budget.spend(MOVE_STEPS * (search.threads() + domains.cpus)) {
            break;
        }
        if !current_cpus.holds(search.thread(first)) {
            move_back(&current_cpus, &mut search, first);
        }
    }
    search.assignment()
}

/// Current cpus of each worker's main and peers, indexed by `worker * cpus + cpu`.
struct CurrentCpus {
    cpus: usize,
    mains: Vec<bool>,
    peers: Vec<bool>,
}

impl CurrentCpus {
    fn of(domains: &Domains, current: &Mapping) -> Self {
        let cells = vec![false; domains.workers * domains.cpus];
        let mut current_cpus = Self {
            cpus: domains.cpus,
            mains: cells.clone(),
            peers: cells,
        };
        for (slot, cpu) in current.iter() {
            let worker = usize::from(slot.worker.0);
            let place = domains.position(cpu).filter(|_| worker < domains.workers);
            if let Some(place) = place.map(usize::from) {
                let at = worker * domains.cpus + place;
                let table = if slot.rank.0 == 0 {
                    &mut current_cpus.mains
                } else {
                    &mut current_cpus.peers
                };
                table[at] = true;
            }
        }
        current_cpus
    }

    fn holds(&self, thread: Thread) -> bool {
        let at = usize::from(thread.worker) * self.cpus + usize::from(thread.cpu);
        if thread.main {
            self.mains[at]
        } else {
            self.peers[at]
        }
    }
}

/// Makes the first move of a thread that loses no value and increases the number of threads on
/// their current cpus.
fn move_back(current_cpus: &CurrentCpus, search: &mut Search<'_>, first: usize) {
    let own = search.own_gains(first);
    let here = search.thread(first);
    for second in 0..search.threads() {
        let there = search.thread(second);
        let same = here.worker == there.worker && here.main == there.main;
        if same
            || here.cpu == there.cpu
            || !current_cpus.holds(Thread {
                cpu: there.cpu,
                ..here
            })
        {
            continue;
        }
        let stays = current_cpus.holds(Thread {
            cpu: here.cpu,
            ..there
        }) || !current_cpus.holds(there);
        let free = stays && search.exchange_gain(first, second, own[usize::from(there.cpu)]) >= 0;
        if free && search.may_exchange(first, second) {
            return search.exchange(first, second);
        }
    }
    for (cpu, &own) in own.iter().enumerate() {
        let home = current_cpus.holds(Thread {
            cpu: cpu as u16,
            ..here
        });
        if home && search.shift_gain(first, cpu, own) >= 0 && search.may_shift(first, cpu) {
            return search.shift(first, cpu);
        }
    }
}
