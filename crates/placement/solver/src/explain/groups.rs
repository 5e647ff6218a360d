//! Distances of the mains and of the threads of each worker: actual, and the best alone.

use crate::{Mapping, Mode, Problem};
use albacore_topology::{Cpu, CpuId};

use crate::explain::checked_mapping::CheckedMapping;
use crate::explain::group_bound::{GroupCaps, best_alone};
use crate::{Group, PairCounts, Rule};

/// The pairs that the objective counts.
pub(crate) struct Groups {
    pub(crate) mains: Group,
    pub(crate) workers: Vec<Group>,
}

impl Groups {
    /// Counts the pairs of a checked mapping.
    pub(crate) fn of(problem: &Problem, mapping: &Mapping, checked: &CheckedMapping) -> Self {
        let domains = &checked.domains;
        let volumes = checked.cpu_limits();
        let cpu_most = volumes.iter().map(|&(_, most)| most).max().unwrap_or(0);
        let core_most = checked.core_limits().1;
        // by rule, mains are on fast cores; if the mapping breaks that rule, on any
        let fast_mains = checked.admitted(Rule::FastMains) == 0;
        let takes_mains = |cpu: usize| !(fast_mains && checked.is_slow(cpu));
        let mains_caps = GroupCaps {
            cpu: (domains.rules.rank_cap + checked.admitted(Rule::EqualRanks)).min(cpu_most),
            core: (checked.core_mains + checked.admitted(Rule::MainsPerCore)).min(core_most),
        };
        let worker_caps = GroupCaps {
            cpu: (domains.rules.worker_cap + checked.admitted(Rule::OwnThreads)).min(cpu_most),
            core: core_most,
        };
        let group = |slots: &mut dyn Iterator<Item = CpuId>, alone: Option<i64>| {
            let cpus: Vec<&Cpu> = slots.filter_map(|id| problem.topology.cpu(id)).collect();
            let pairs = PairCounts::of(&cpus);
            let cycles = pairs.cycles(&problem.distances);
            Group {
                pairs,
                cycles,
                alone: alone.unwrap_or(cycles),
            }
        };
        let threads = usize::from(problem.threads);
        let is_far = problem.mode == Mode::Scatter;
        let mains_alone = best_alone(
            domains,
            problem.workers.into(),
            mains_caps,
            true,
            &takes_mains,
        );
        let worker_alone = best_alone(
            domains,
            problem.threads.into(),
            worker_caps,
            is_far,
            &|_| true,
        );
        Self {
            mains: group(
                &mut mapping.cpus.iter().step_by(threads).copied(),
                mains_alone,
            ),
            workers: mapping
                .cpus
                .chunks(threads)
                .map(|row| group(&mut row.iter().copied(), worker_alone))
                .collect(),
        }
    }
}
