//! The mains and the threads of each worker: how far apart they are, and could be alone.

use albacore_mapping::{Mapping, Mode, Problem};
use albacore_topology::{Cpu, CpuId};

use crate::alone::{Caps, best_alone};
use crate::frame::Frame;
use crate::{Group, PairCounts, Rule};

/// The pairs that the objective counts.
pub(crate) struct Groups {
    pub(crate) mains: Group,
    pub(crate) workers: Vec<Group>,
}

impl Groups {
    /// Counts a mapping that was checked.
    pub(crate) fn of(problem: &Problem, mapping: &Mapping, frame: &Frame) -> Self {
        let domains = &frame.domains;
        let (cpu_most, core_most) = (
            domains.cpu_volume.1 + frame.admitted(Rule::CpuVolume),
            domains.core_volume.1 + frame.admitted(Rule::CoreVolume),
        );
        let mains_caps = Caps {
            cpu: (domains.rank_cap + frame.admitted(Rule::EqualRanks)).min(cpu_most),
            core: (domains.core_mains + frame.admitted(Rule::MainsPerCore)).min(core_most),
        };
        let worker_caps = Caps {
            cpu: (domains.worker_cap + frame.admitted(Rule::OwnThreads)).min(cpu_most),
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
        let mains_alone = best_alone(domains, problem.workers.into(), mains_caps, true);
        let worker_alone = best_alone(domains, problem.threads.into(), worker_caps, is_far);
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
