//! The right-hand sides of all rules.

/// Right-hand sides of the rules for W workers x T threads on C cpus in P cores.
#[derive(Clone, Copy, Debug)]
pub struct RuleLimits {
    /// Most threads of equal rank on a cpu: ceil(W/C), rule (2).
    pub rank_cap: u32,
    /// Most threads of one worker on a cpu: ceil(T/C), rule (3).
    pub worker_cap: u32,
    /// floor(WT/C) and ceil(WT/C), rule (8).
    pub cpu_volume: (u32, u32),
    /// floor(WT/P) and ceil(WT/P), rule (8+).
    pub core_volume: (u32, u32),
    /// ceil(W/P), most mains on a core.
    pub core_mains: u32,
    /// Right-hand side of (12); `None` where it does not apply.
    pub full_main_cpus: Option<u32>,
    /// Right-hand side of (12+); `None` where it does not apply.
    pub full_main_cores: Option<u32>,
}

impl RuleLimits {
    /// The limits for a problem whose cpus are in `cores` cores.
    pub fn of(problem: &crate::Problem, cores: usize) -> Self {
        let (workers, threads) = (u32::from(problem.workers), u32::from(problem.threads));
        let (cpus, cores) = (problem.topology.cpus().len() as u32, cores as u32);
        let slots = workers * threads;
        Self {
            rank_cap: workers.div_ceil(cpus),
            worker_cap: threads.div_ceil(cpus),
            cpu_volume: (slots / cpus, slots.div_ceil(cpus)),
            core_volume: (slots / cores, slots.div_ceil(cores)),
            core_mains: workers.div_ceil(cores),
            full_main_cpus: max_full_units_with_main(workers, slots, cpus),
            full_main_cores: max_full_units_with_main(workers, slots, cores),
        }
    }
}

/// Rule (12) or (12+): the maximum number of units (cpus or cores) that hold ceil(slots / units)
/// threads and a main, max(0, workers - units + r) with r = slots mod units; `None` if the rule
/// does not apply.
pub fn max_full_units_with_main(workers: u32, slots: u32, units: u32) -> Option<u32> {
    let rest = slots % units;
    let applies = rest > 0 && slots > units && workers <= units;
    applies.then(|| (workers + rest).saturating_sub(units))
}
