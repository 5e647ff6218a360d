//! Assigns the threads of the volumes to workers.
//!
//! **Problem.** Give every worker one main and T-1 peers, at most `worker_cap` threads on a cpu,
//! such that the cpus' volumes and mains are used up exactly: a transportation problem.
//! **Approach.** Worker by worker. A worker must take what the workers after it could not
//! (`forced`); beyond that it takes, thread by thread, what is best for itself; once the budget is
//! spent, from the cpus with most left. **Proof sketch.** Let n' and m' be the remaining threads
//! and mains of a cpu, W' the remaining workers. With n' <= cap W' everywhere, sum n' = W'T, sum m'
//! = W' and m' <= n', each row n'/W' is a fractional solution, so any choice of T threads with at
//! least n' - cap (W'-1) and at most cap on each cpu keeps the same invariant. The forced threads
//! are at most T, because n' - cap (W'-1) <= n'/W'; if they are exactly T, they are all that is
//! left and include the mains. **Limits.** O(W T C).

use std::cmp::Reverse;

use crate::single::domains::{CPU, Domains, L3, LEVELS};
use crate::single::spread::{add, zero_counts};
use crate::single::volumes::Volumes;
use crate::{Mode, WorkBudget};

/// The cpus of the main and of the peers of every worker, as positions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Assignment {
    /// Cpu of each worker's main.
    pub(crate) mains: Vec<u16>,
    /// Cpus of each worker's peers, T-1 each.
    pub(crate) peers: Vec<Vec<u16>>,
}

pub(crate) fn assign(domains: &Domains, volumes: &Volumes) -> Assignment {
    assign_in_budget(domains, volumes, &mut WorkBudget::unlimited())
}

/// Assigns all threads; once the budget is spent, regardless of distances.
pub(crate) fn assign_in_budget(
    domains: &Domains,
    volumes: &Volumes,
    budget: &mut WorkBudget,
) -> Assignment {
    let mut out_of_time = false;
    let mut left = Remaining {
        threads: volumes.threads.clone(),
        mains: volumes.mains.clone(),
        workers: domains.workers as u32,
    };
    let mut assignment = Assignment {
        mains: Vec::new(),
        peers: Vec::new(),
    };
    for _ in 0..domains.workers {
        let main = left.take_main(domains);
        out_of_time |= budget.spend(5 * domains.threads * domains.cpus);
        let mut peers = left.take_peers(domains, main, out_of_time);
        left.workers -= 1;
        peers.sort_unstable();
        assignment.mains.push(main as u16);
        assignment.peers.push(peers);
    }
    assignment
}

/// Threads and mains that no worker has taken yet.
struct Remaining {
    threads: Vec<u32>,
    mains: Vec<u32>,
    workers: u32,
}

impl Remaining {
    /// Number of threads on `cpu` that the current worker must take.
    fn forced(&self, domains: &Domains, cpu: usize) -> u32 {
        self.threads[cpu].saturating_sub(domains.rules.worker_cap * (self.workers - 1))
    }

    /// The main's cpu; one of the forced cpus if these are all that the worker may take.
    fn take_main(&mut self, domains: &Domains) -> usize {
        let forced: u32 = (0..domains.cpus).map(|cpu| self.forced(domains, cpu)).sum();
        let all = forced as usize >= domains.threads;
        let open = |&cpu: &usize| self.mains[cpu] > 0 && (!all || self.forced(domains, cpu) > 0);
        let main = (0..domains.cpus).find(open).unwrap_or(0);
        self.mains[main] -= self.mains[main].min(1);
        main
    }

    fn take_peers(&mut self, domains: &Domains, main: usize, out_of_time: bool) -> Vec<u16> {
        let mut counts = zero_counts(domains);
        let mut need: Vec<u32> = (0..domains.cpus)
            .map(|cpu| self.forced(domains, cpu))
            .collect();
        self.threads[main] -= self.threads[main].min(1);
        need[main] = need[main].saturating_sub(1);
        add(domains, &mut counts, main);
        let mut peers = Vec::with_capacity(domains.threads - 1);
        let forced: Vec<usize> = (0..domains.cpus)
            .flat_map(|cpu| vec![cpu; need[cpu] as usize])
            .collect();
        for cpu in forced {
            self.take(domains, cpu, &mut counts, &mut peers);
        }
        if out_of_time {
            self.take_most_left(domains, &mut counts, &mut peers);
        }
        while peers.len() + 1 < domains.threads {
            let open = |&cpu: &usize| {
                self.threads[cpu] > self.mains[cpu] && counts[0][cpu] < domains.rules.worker_cap
            };
            let free = self.free(domains, &counts);
            let missing = (domains.threads - 1 - peers.len()) as u32;
            let Some(cpu) = (0..domains.cpus).filter(open).max_by_key(|&cpu| {
                let left = self.threads[cpu] - self.mains[cpu];
                (
                    preference(domains, &counts, &free, cpu, missing),
                    left,
                    Reverse(cpu),
                )
            }) else {
                break;
            };
            self.take(domains, cpu, &mut counts, &mut peers);
        }
        peers
    }

    /// Fills a row regardless of distances, from the cpus with most left.
    fn take_most_left(
        &mut self,
        domains: &Domains,
        counts: &mut [Vec<u32>; LEVELS],
        peers: &mut Vec<u16>,
    ) {
        let mut order: Vec<usize> = (0..domains.cpus).collect();
        if domains.mode == Mode::Scatter {
            // the first cpu of every L3, then the second...
            let first = |cpu: usize| domains.members(L3, domains.domain(L3, cpu)).start;
            order.sort_by_key(|&cpu| (cpu - first(cpu), cpu));
        }
        order.sort_by_key(|&cpu| Reverse(self.threads[cpu].saturating_sub(self.mains[cpu])));
        // bound: T threads are at most worker_cap per cpu
        for _ in 0..domains.rules.worker_cap {
            for &cpu in &order {
                let open = self.threads[cpu] > self.mains[cpu];
                let room = counts[CPU][cpu] < domains.rules.worker_cap;
                if peers.len() + 1 < domains.threads && open && room {
                    self.take(domains, cpu, counts, peers);
                }
            }
        }
    }

    fn take(
        &mut self,
        domains: &Domains,
        cpu: usize,
        counts: &mut [Vec<u32>; LEVELS],
        peers: &mut Vec<u16>,
    ) {
        self.threads[cpu] -= self.threads[cpu].min(1);
        add(domains, counts, cpu);
        peers.push(cpu as u16);
    }

    /// What a worker could still take of each domain: the cpus with a peer left and no thread of
    /// this worker.
    fn free(&self, domains: &Domains, counts: &[Vec<u32>; LEVELS]) -> [Vec<u32>; LEVELS] {
        let mut free = zero_counts(domains);
        for (cpu, &held) in counts[CPU].iter().enumerate() {
            if held == 0 && self.threads[cpu] > self.mains[cpu] {
                add(domains, &mut free, cpu);
            }
        }
        free
    }
}

/// Preference of a worker with `counts` for a thread on `cpu`: its own gain; then, if it has to
/// open a new domain (compact), the largest that it can use up, or else the smallest, so that large
/// ones stay whole for others; the caller adds the number of threads left.
fn preference(
    domains: &Domains,
    counts: &[Vec<u32>; LEVELS],
    free: &[Vec<u32>; LEVELS],
    cpu: usize,
    missing: u32,
) -> (i64, [i64; LEVELS - 1]) {
    let held = |level: usize| i64::from(counts[level][domains.domain(level, cpu)]);
    let closer: i64 = (0..domains.levels)
        .map(|level| domains.gain[level] * held(level))
        .sum();
    if domains.mode == Mode::Scatter {
        return (-closer, [0; LEVELS - 1]);
    }
    let fit = |level: usize| {
        let free = free[level][domains.domain(level, cpu)];
        if free <= missing {
            i64::from(free)
        } else {
            -i64::from(free)
        }
    };
    // the largest domains first, down to cores
    (closer, std::array::from_fn(|at| fit(LEVELS - 1 - at)))
}
