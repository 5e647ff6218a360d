//! Closer to the mapping in force, at no cost in value.
//!
//! **Problem.** When something did change (a cpu left the cpuset), a deal of the same value that
//! moves fewer threads is better. **Approach.** Give the rows to the workers that keep most of them
//! (`name`), then make the exchanges and shifts that lose no value and bring threads back to where
//! they are now. **Proof sketch.** Every move raises the number of threads at home, so it ends;
//! each is a legal move of `improve`. **Limits.** A local search: few moves, not always the fewest.

use crate::deal::Deal;
use crate::domains::Domains;
use crate::improve::{Allowed, Search, Thread};
use crate::name::align;
use crate::{Mapping, Problem};

/// The deal, or one of at least its value that is closer to `current`.
pub(crate) fn settle(
    problem: &Problem,
    (domains, allowed): (&Domains, &Allowed),
    current: &Mapping,
    deal: &Deal,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Deal {
    let homes = Homes::of(problem, domains, current);
    let mut search = Search::of(domains, allowed, &align(problem, domains, deal));
    for first in 0..search.threads() {
        if out_of_budget() {
            break;
        }
        if !homes.holds(search.thread(first)) {
            bring_home(&homes, &mut search, first);
        }
    }
    search.deal()
}

/// Where each worker's main and peers are now, as `worker * cpus + cpu`.
struct Homes {
    cpus: usize,
    mains: Vec<bool>,
    peers: Vec<bool>,
}

impl Homes {
    fn of(problem: &Problem, domains: &Domains, current: &Mapping) -> Self {
        let cells = vec![false; domains.workers * domains.cpus];
        let mut homes = Self {
            cpus: domains.cpus,
            mains: cells.clone(),
            peers: cells,
        };
        let mut position = std::collections::BTreeMap::new();
        for (place, &original) in domains.original.iter().enumerate() {
            position.insert(problem.topology.cpus()[usize::from(original)].id, place);
        }
        for (slot, cpu) in current.iter() {
            let worker = usize::from(slot.worker.0);
            let place = position.get(&cpu).filter(|_| worker < domains.workers);
            if let Some(&place) = place {
                let at = worker * domains.cpus + place;
                let table = if slot.rank.0 == 0 {
                    &mut homes.mains
                } else {
                    &mut homes.peers
                };
                table[at] = true;
            }
        }
        homes
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

/// Makes the first move of a thread that loses no value and leaves more threads at home.
fn bring_home(homes: &Homes, search: &mut Search<'_>, first: usize) {
    let own = search.own_gains(first);
    let here = search.thread(first);
    for second in 0..search.threads() {
        let there = search.thread(second);
        let same = here.worker == there.worker && here.main == there.main;
        if same
            || here.cpu == there.cpu
            || !homes.holds(Thread {
                cpu: there.cpu,
                ..here
            })
        {
            continue;
        }
        let stays = homes.holds(Thread {
            cpu: here.cpu,
            ..there
        }) || !homes.holds(there);
        let free = stays && search.exchange_gain(first, second, &own) >= 0;
        if free && search.may_exchange(first, second) {
            return search.exchange(first, second);
        }
    }
    for cpu in 0..homes.cpus {
        let home = homes.holds(Thread {
            cpu: cpu as u16,
            ..here
        });
        if home && search.shift_gain(first, cpu, &own) >= 0 && search.may_shift(first, cpu) {
            return search.shift(first, cpu);
        }
    }
}
