//! Why a mapping is as it is: numbers for the sentences that others make.
//!
//! **Problem.** "Optimal" convinces nobody who would have placed a thread elsewhere. **Approach.**
//! Everything is counted from the mapping at hand, whoever made it: how volume, mains and the
//! threads of each worker lie and what each of them could reach alone (`alone`); what every single
//! exchange of two threads and every single shift of one would cost and which rules it would break
//! (`board`); and how far a climb gets if one rule is dropped (`binding`). [`explain_thread`] asks
//! the same of one thread and every cpu, [`difference`] compares two mappings. **Proof sketch.**
//! What a group could reach alone is exact, so the sum of the parts is a bound that a reader can
//! follow: where the value meets it, nothing can be better. A gain without a rule is reached by an
//! actual mapping, so it is at least that. **Limits.** The runner-up is the best among single
//! exchanges and shifts, not among all mappings; a climb may stop below the best. A rule that the
//! mapping breaks already counts as kept while it is broken no further; (2) is judged as if ranks
//! were given anew, as the solver does.

mod alone;
mod binding;
mod board;
mod difference;
mod rules;
mod thread;

use albacore_topology::{Cpu, CpuId, Distances, Topology};

use crate::domains::Domains;
use crate::error::validate;
use crate::{Mapping, Mode, Problem, ProblemError, Slot, Violation, check};

use alone::{Caps, best_alone};
use binding::{Tried, climb_without, try_all};
use board::{Board, Change};

pub use difference::{Move, difference};
pub use rules::Rule;
pub use thread::{Nearness, Place, ThreadExplanation, explain_thread};

/// Why nothing can be explained.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExplainError {
    /// The problem is outside the limits.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The mapping is not one for this problem.
    #[error("the mapping is not one for this problem: {}", .0.first().map_or_else(String::new, ToString::to_string))]
    Mapping(Vec<Violation>),
    /// The mapping has no such thread.
    #[error(
        "there is no thread {}.{}: workers are 0 to {workers_last}, ranks 0 to {ranks_last}",
        slot.worker.0, slot.rank.0
    )]
    NoThread {
        /// As asked.
        slot: Slot,
        /// W - 1.
        workers_last: u16,
        /// T - 1.
        ranks_last: u16,
    },
}

/// Pairs of threads by the nearest thing that both have in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PairCounts {
    /// The same cpu.
    pub cpu: u32,
    /// The core.
    pub core: u32,
    /// L2.
    pub l2: u32,
    /// L3.
    pub l3: u32,
    /// No cache.
    pub beyond: u32,
}

impl PairCounts {
    fn of(cpus: &[&Cpu]) -> Self {
        let mut counts = Self::default();
        for (i, a) in cpus.iter().enumerate() {
            for b in &cpus[i + 1..] {
                *counts.of_pair(a, b) += 1;
            }
        }
        counts
    }

    fn of_pair(&mut self, a: &Cpu, b: &Cpu) -> &mut u32 {
        if a.id == b.id {
            &mut self.cpu
        } else if a.core == b.core {
            &mut self.core
        } else if a.l2 == b.l2 {
            &mut self.l2
        } else if a.l3 == b.l3 {
            &mut self.l3
        } else {
            &mut self.beyond
        }
    }

    /// Sum of the distances, clock cycles.
    pub fn cycles(&self, distances: &Distances) -> i64 {
        let &Self {
            cpu,
            core,
            l2,
            l3,
            beyond,
        } = self;
        [
            (cpu, distances.cpu),
            (core, distances.l1),
            (l2, distances.l2),
            (l3, distances.l3),
            (beyond, distances.beyond),
        ]
        .iter()
        .map(|&(pairs, cycles)| i64::from(pairs) * i64::from(cycles))
        .sum()
    }
}

/// How W x T threads are shared out over cpus, or over cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// How many cpus or cores there are.
    pub units: u32,
    /// Fewest threads of one as the rule wants it: floor(WT / units).
    pub least: u32,
    /// Most threads of one as the rule wants it: ceil(WT / units).
    pub most: u32,
    /// How many units must hold the most: WT mod units, or all of them where that is 0.
    pub at_most: u32,
    /// Fewest and most threads that one holds in this mapping.
    pub held: (u32, u32),
}

/// Threads of which the objective sums the distances: the mains, or the threads of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its pairs.
    pub pairs: PairCounts,
    /// Sum of their distances, clock cycles.
    pub cycles: i64,
    /// The best sum that this group could have if it were alone on the machine and kept the rules,
    /// loosened as far as this mapping loosens them: greatest, for workers in compact least.
    pub alone: i64,
}

/// Two threads that exchange their cpus, or one that goes elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Alternative {
    /// The thread that goes.
    pub slot: Slot,
    /// Where it goes.
    pub to: CpuId,
    /// The thread that comes in return; `None`: no other thread moves.
    pub partner: Option<Slot>,
    /// What the objective gains; negative: it costs.
    pub gain: i64,
}

/// A rule that keeps the value down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The rule.
    pub rule: Rule,
    /// What the objective would gain, at the least, if this rule alone were dropped; on top of what
    /// could be gained with it.
    pub gain: i64,
}

/// Why a mapping is as it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// Its value: clock cycles summed over pairs, higher is better.
    pub objective: i64,
    /// Threads over cpus, rule (8).
    pub cpus: Share,
    /// Threads over cores, rule (8+).
    pub cores: Share,
    /// Most mains on one core: ceil(W/P).
    pub mains_per_core: u32,
    /// The mains.
    pub mains: Group,
    /// Each worker.
    pub workers: Vec<Group>,
    /// The mains and every worker at the best that each could have alone: nothing that keeps the
    /// rules is above this.
    pub parts: i64,
    /// Rules that keep the value down, the costliest first.
    pub binding: Vec<Binding>,
    /// How many single exchanges and shifts keep every rule and cost nothing.
    pub equal: u64,
    /// The best single exchange or shift that keeps every rule and gains; `None` for a mapping that
    /// no such step improves.
    pub better: Option<Alternative>,
    /// The cheapest single exchange or shift that keeps every rule and costs something.
    pub runner_up: Option<Alternative>,
    /// False if the budget ended before every step and every rule was tried: then `binding`, `equal`,
    /// `better` and `runner_up` are of what was.
    pub complete: bool,
}

/// Counts and tries everything that explains `mapping`, or as much of it as `out_of_budget`
/// allows.
///
/// # Errors
/// The problem is outside the limits, or the mapping does not place its threads on its cpus.
pub fn explain(
    problem: &Problem,
    mapping: &Mapping,
    out_of_budget: &mut dyn FnMut() -> bool,
) -> Result<Explanation, ExplainError> {
    let frame = Frame::of(problem, mapping)?;
    let board = frame.board(problem, mapping);
    let groups = Groups::of(problem, mapping, &frame);
    let Tried {
        gains,
        equal,
        better,
        runner_up,
        mut complete,
    } = try_all(&board, out_of_budget);
    // what could be gained anyway is no rule's fault
    let anyway = match better {
        Some(_) => climb_without(&board, None, out_of_budget),
        None => 0,
    };
    let mut binding = Vec::new();
    for rule in Rule::ALL.into_iter().filter(|&rule| gains[rule as usize]) {
        let gain = climb_without(&board, Some(rule), out_of_budget);
        // a climb that was cut short is still a gain; none at all is one that never began
        complete &= gain > 0;
        if gain > anyway {
            let gain = gain - anyway;
            binding.push(Binding { rule, gain });
        }
    }
    binding.sort_by_key(|b| std::cmp::Reverse(b.gain));
    let alternative = |found: Option<(Change, i64)>| {
        found.map(|(change, gain)| frame.alternative(problem, change, gain))
    };
    let sign = worth(problem.mode);
    let (mains, workers) = (groups.mains, groups.workers);
    Ok(Explanation {
        objective: mains.cycles + sign * workers.iter().map(|w| w.cycles).sum::<i64>(),
        cpus: board.share_of_cpus(),
        cores: board.share_of_cores(),
        mains_per_core: frame.domains.core_mains,
        parts: mains.alone + sign * workers.iter().map(|w| w.alone).sum::<i64>(),
        mains,
        workers,
        binding,
        equal,
        better: alternative(better),
        runner_up: alternative(runner_up),
        complete,
    })
}

/// What distance within a worker is worth: +1 scatter, -1 compact.
fn worth(mode: Mode) -> i64 {
    match mode {
        Mode::Scatter => 1,
        Mode::Compact => -1,
    }
}

/// The problem as counts, and how far the mapping loosens each rule.
struct Frame {
    domains: Domains,
    admitted: [u32; Rule::ALL.len()],
}

impl Frame {
    fn of(problem: &Problem, mapping: &Mapping) -> Result<Self, ExplainError> {
        validate(problem)?;
        let report = check(problem, mapping).map_err(ExplainError::Mapping)?;
        let amount = |rule: Rule| {
            let found = report.relaxed.iter().find(|r| r.rule == rule.name());
            found.map_or(0, |relaxed| relaxed.amount)
        };
        Ok(Self {
            domains: Domains::of(problem),
            admitted: Rule::ALL.map(amount),
        })
    }

    fn admitted(&self, rule: Rule) -> u32 {
        self.admitted[rule as usize]
    }

    fn board(&self, problem: &Problem, mapping: &Mapping) -> Board<'_> {
        Board::of(problem, &self.domains, self.admitted, mapping)
    }

    fn alternative(&self, problem: &Problem, change: Change, gain: i64) -> Alternative {
        let slot = |thread: usize| board::slot(&self.domains, thread);
        Alternative {
            slot: slot(change.thread),
            to: board::id(problem, &self.domains, change.to),
            partner: change.partner.map(slot),
            gain,
        }
    }
}

struct Groups {
    mains: Group,
    workers: Vec<Group>,
}

impl Groups {
    fn of(problem: &Problem, mapping: &Mapping, frame: &Frame) -> Self {
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

/// The distance of one cpu to others, summed.
fn sum_of_distances<'a>(
    problem: &Problem,
    from: &Cpu,
    others: impl Iterator<Item = &'a Cpu>,
) -> i64 {
    others
        .map(|other| i64::from(Topology::distance(from, other, &problem.distances)))
        .sum()
}
