//! The mapping in force: whether it is still valid for the problem, and its value.
//!
//! **Problem.** A problem is solved again at every respawn, and nearly always the mapping in force
//! is the answer: that must be recognized quickly. **Approach.** Threads are counted in flat
//! arrays, group by group (a worker, or the threads of one rank): the x-th thread of a group in a
//! domain is close to x - 1 others there. **Proof sketch.** 0 + 1 + ... + (x - 1) = x(x-1)/2, the
//! closeness of `domains`. **Limits.** A mapping that breaks (1), (2), (3) or (8), which are never
//! relaxed, is rejected. O(WT + C); `check` computes the same with separate code.

use crate::single::allowed::Allowed;
use crate::single::domains::{CORE, CPU, Domains, LEVELS};
use crate::{Certificate, Mapping, Problem, ProvenBound, Relaxation, Solution};

/// Value of the mapping in force, and by how much it breaks the rules that can be relaxed.
pub(crate) struct CurrentMapping<'a> {
    mapping: &'a Mapping,
    pub(crate) objective: i64,
    /// In the order of `check`.
    amounts: [(&'static str, u32); 4],
}

impl<'a> CurrentMapping<'a> {
    /// Counts the mapping in force; `None` if there is none or it is invalid for this problem.
    pub(crate) fn of(problem: &'a Problem, domains: &Domains) -> Option<Self> {
        let current = problem.current.as_ref()?;
        let (workers, threads) = (domains.workers, domains.threads);
        if current.threads != problem.threads || current.cpus.len() != workers * threads {
            return None;
        }
        let places: Vec<u16> = (current.cpus.iter())
            .map(|&id| domains.position(id))
            .collect::<Option<_>>()?;
        let mut group = GroupCounts::of(domains);
        let mains = group.closeness(places.iter().step_by(threads), domains.rules.rank_cap)?;
        for rank in 1..threads {
            group.check(
                places[rank..].iter().step_by(threads),
                domains.rules.rank_cap,
            )?;
        }
        let mut within = 0;
        for worker in places.chunks(threads) {
            within += group.closeness(worker.iter(), domains.rules.worker_cap)?;
        }
        Some(Self {
            mapping: current,
            objective: domains.objective(mains, within),
            amounts: amounts(domains, &places)?,
        })
    }

    /// Whether it keeps every rule as stated.
    pub(crate) fn keeps_all_rules(&self) -> bool {
        self.amounts.iter().all(|&(_, amount)| amount == 0)
    }

    /// Whether it breaks no rule by more than allowed.
    pub(crate) fn is_within(&self, domains: &Domains, allowed: &Allowed) -> bool {
        let must = allowed.amounts(domains);
        let admitted = |rule| must.iter().find(|(name, _)| *name == rule);
        self.amounts
            .iter()
            .all(|&(rule, amount)| amount == 0 || admitted(rule).is_some_and(|&(_, m)| amount <= m))
    }

    /// The solution that moves no thread.
    pub(crate) fn solution(&self, upper: ProvenBound) -> Solution {
        let relaxed = self.amounts.iter().filter(|&&(_, amount)| amount > 0);
        let relaxed = relaxed.map(|&(rule, amount)| Relaxation { rule, amount });
        Solution {
            mapping: self.mapping.clone(),
            certificate: Certificate::of(self.objective, upper, relaxed.collect()),
        }
    }
}

/// Counts of one group of threads at a time.
struct GroupCounts<'a> {
    domains: &'a Domains,
    /// Levels that divide the cpus differently, with the total gain of all levels that divide them
    /// alike.
    levels: Vec<(usize, i64)>,
    held: [Vec<u32>; LEVELS],
}

impl<'a> GroupCounts<'a> {
    fn of(domains: &'a Domains) -> Self {
        let mut levels: Vec<(usize, i64)> = vec![(CPU, domains.gain[CPU])];
        for level in CORE..LEVELS {
            match levels.last_mut() {
                Some((inner, gain)) if domains.count(*inner) == domains.count(level) => {
                    *gain += domains.gain[level];
                }
                _ => levels.push((level, domains.gain[level])),
            }
        }
        Self {
            domains,
            levels,
            held: std::array::from_fn(|level| vec![0; domains.count(level)]),
        }
    }

    /// The closeness of the group; `None` if more than `cap` are on one cpu.
    fn closeness<'p>(
        &mut self,
        places: impl Iterator<Item = &'p u16> + Clone,
        cap: u32,
    ) -> Option<i64> {
        let mut sum = 0;
        for &place in places.clone() {
            let of = &self.domains.of[usize::from(place)];
            if self.held[CPU][usize::from(of[CPU])] == cap {
                return None;
            }
            for &(level, gain) in &self.levels {
                let held = &mut self.held[level][usize::from(of[level])];
                sum += gain * i64::from(*held);
                *held += 1;
            }
        }
        for &place in places {
            let of = &self.domains.of[usize::from(place)];
            for &(level, _) in &self.levels {
                self.held[level][usize::from(of[level])] = 0;
            }
        }
        Some(sum)
    }

    /// Whether no more than `cap` are on one cpu.
    fn check<'p>(&mut self, places: impl Iterator<Item = &'p u16> + Clone, cap: u32) -> Option<()> {
        let held = &mut self.held[CPU];
        for &place in places.clone() {
            if held[usize::from(place)] == cap {
                return None;
            }
            held[usize::from(place)] += 1;
        }
        places.for_each(|&place| held[usize::from(place)] = 0);
        Some(())
    }
}

/// Amounts by which the rules on cpus and cores are broken; `None` if (8) is broken.
fn amounts(domains: &Domains, places: &[u16]) -> Option<[(&'static str, u32); 4]> {
    let mut cpus = vec![(0u32, 0u32); domains.cpus];
    for worker in places.chunks(domains.threads) {
        cpus[usize::from(worker[0])].1 += 1;
        worker.iter().for_each(|&cpu| cpus[usize::from(cpu)].0 += 1);
    }
    let (least, most) = domains.rules.cpu_volume;
    let (core_least, core_most) = domains.rules.core_volume;
    let (mut off, mut excess, mut full, mut full_cores) = (0, 0, 0, 0);
    for core in 0..domains.count(CORE) {
        let (mut threads, mut mains) = (0, 0);
        for &(n, m) in &cpus[domains.members(CORE, core)] {
            if n < least || n > most {
                return None;
            }
            full += u32::from(n == most && m > 0);
            (threads, mains) = (threads + n, mains + m);
        }
        let below = core_least.saturating_sub(threads);
        off = below.max(threads.saturating_sub(core_most)).max(off);
        excess = mains.saturating_sub(domains.rules.core_mains).max(excess);
        full_cores += u32::from(threads >= core_most && mains > 0);
    }
    let beyond = |full: u32, most: Option<u32>| most.map_or(0, |most| full.saturating_sub(most));
    Some([
        ("12", beyond(full, domains.rules.full_main_cpus)),
        ("8+", off),
        ("mains-per-core", excess),
        ("12+", beyond(full_cores, domains.rules.full_main_cores)),
    ])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::CurrentMapping;
    use crate::sample::problems;
    use crate::single::domains::Domains;
    use crate::{Proof, ProvenBound, WorkBudget, check, solve};

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 1_000, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn current_mapping_is_evaluated_as_by_the_checker(
            mut problem in problems(),
            swaps in proptest::collection::vec((any::<usize>(), any::<usize>()), 0..4),
            lost in proptest::option::weighted(0.3, (any::<usize>(), any::<usize>()))
        ) {
            let mut current = solve(&problem, &mut WorkBudget::of_steps(0)).unwrap().mapping;
            let slots = current.cpus.len();
            for (a, b) in swaps {
                current.cpus.swap(a % slots, b % slots);
            }
            if let Some((thread, cpu)) = lost {
                let cpus = problem.topology.cpus();
                current.cpus[thread % slots] = cpus[cpu % cpus.len()].id;
            }
            let report = check(&problem, &current).unwrap();
            problem.current = Some(current);
            let domains = Domains::of(&problem);
            let never = report.relaxed.iter().any(|r| ["2", "3", "8"].contains(&r.rule));
            match CurrentMapping::of(&problem, &domains) {
                Some(current) => {
                    let solution = current.solution(ProvenBound {
                        bound: i64::MAX,
                        proof: Proof::None,
                    });
                    prop_assert_eq!(solution.certificate.objective, report.objective);
                    prop_assert_eq!(current.keeps_all_rules(), report.relaxed.is_empty());
                    prop_assert_eq!(solution.certificate.relaxed, report.relaxed);
                    prop_assert!(!never);
                }
                None => prop_assert!(never),
            }
        }
    }
}
