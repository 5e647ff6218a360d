//! A problem in index form: cpus as positions in tree order, domains by level, and the right-hand
//! sides of all rules.
//!
//! **Distances form a tree** (cpu < core < L2 < L3 < NUMA node < package < machine). With
//! `gain(level)` = distance of the next outer level minus the distance of this one, the sum of
//! distances over all pairs of k items is `beyond * k(k-1)/2 - closeness`, `closeness = sum over
//! domains of gain * x(x-1)/2`, where x is the number of items in the domain. So all other modules
//! count closeness in domains and never evaluate a pair.

use std::ops::Range;

use albacore_topology::{Cpu, CpuId};

use crate::levels::{DistinctLevels, domain_keys};
use crate::rule_limits::RuleLimits;
use crate::{Mode, Problem, Rank, Slot, WorkerIndex};

pub(crate) use crate::levels::{CORE, CPU, L3, LEVELS, pairs};

/// The position of an id that no cpu has.
const NO_POSITION: u16 = u16::MAX;

/// A [`Problem`] in index form. Cpus are positions 0..C in tree order.
pub(crate) struct Domains {
    pub(crate) workers: usize,
    pub(crate) threads: usize,
    pub(crate) cpus: usize,
    /// Number of distinct levels; further levels contain the whole machine and have no gain.
    pub(crate) levels: usize,
    pub(crate) mode: Mode,
    /// Distance of two cpus that share no domain.
    pub(crate) machine_distance: i64,
    /// Closeness of a pair that shares a domain of the level, in addition to that of outer levels;
    /// never negative.
    pub(crate) gain: [i64; LEVELS],
    /// The domain of each position at each level, numbered in tree order.
    pub(crate) of: Vec<[u16; LEVELS]>,
    /// First position of each domain of each level, and C at the end.
    pub(crate) starts: [Vec<u16>; LEVELS],
    /// Id of the cpu at each position.
    pub(crate) ids: Vec<CpuId>,
    /// The positions in ascending order of their ids.
    pub(crate) by_id: Vec<u16>,
    /// Position of each id up to the highest, [`NO_POSITION`] if no cpu has it.
    positions: Vec<u16>,
    pub(crate) rules: RuleLimits,
}

impl Domains {
    /// Converts a validated problem.
    pub(crate) fn of(problem: &Problem) -> Self {
        let cpus = problem.topology.cpus();
        let original = tree_order(cpus);
        let (mut of, mut starts) = number(cpus, &original);
        let counts = starts.each_ref().map(|starts| starts.len() - 1);
        let levels = DistinctLevels::of(&counts, &problem.distances);
        keep_distinct(&levels, &mut of, &mut starts);
        let ids: Vec<CpuId> = original
            .iter()
            .map(|&at| cpus[usize::from(at)].id)
            .collect();
        let highest = cpus.last().map_or(0, |cpu| usize::from(cpu.id.0));
        let mut positions = vec![NO_POSITION; highest + 1];
        for (position, id) in (0u16..).zip(&ids) {
            positions[usize::from(id.0)] = position;
        }
        let mut by_id: Vec<u16> = (0..cpus.len() as u16).collect();
        by_id.sort_unstable_by_key(|&position| ids[usize::from(position)]);
        Self {
            workers: problem.workers.into(),
            threads: problem.threads.into(),
            cpus: cpus.len(),
            mode: problem.mode,
            machine_distance: problem.distances.machine.into(),
            gain: levels.gain,
            levels: levels.count,
            rules: RuleLimits::of(problem, starts[CORE].len() - 1),
            of,
            starts,
            ids,
            by_id,
            positions,
        }
    }

    /// The position of a cpu, if it is one of the problem's.
    pub(crate) fn position(&self, id: CpuId) -> Option<u16> {
        let position = self.positions.get(usize::from(id.0)).copied();
        position.filter(|&position| position != NO_POSITION)
    }

    /// The slot of a thread; threads are numbered by worker, the main first.
    pub(crate) fn slot(&self, thread: usize) -> Slot {
        Slot {
            worker: WorkerIndex((thread / self.threads) as u16),
            rank: Rank((thread % self.threads) as u16),
        }
    }

    /// Number of domains of a level.
    pub(crate) fn count(&self, level: usize) -> usize {
        self.starts[level].len() - 1
    }

    /// The positions of a domain.
    pub(crate) fn members(&self, level: usize, domain: usize) -> Range<usize> {
        usize::from(self.starts[level][domain])..usize::from(self.starts[level][domain + 1])
    }

    /// The core of a position.
    pub(crate) fn core(&self, cpu: usize) -> usize {
        usize::from(self.of[cpu][CORE])
    }

    /// The domain of a position at a level.
    pub(crate) fn domain(&self, level: usize, cpu: usize) -> usize {
        usize::from(self.of[cpu][level])
    }

    /// The objective of a mapping from its closeness: of the mains, and summed over workers.
    pub(crate) fn objective(&self, mains: i64, within: i64) -> i64 {
        let apart = |n: usize, closeness: i64| self.machine_distance * pairs(n as u32) - closeness;
        let all = self.workers as i64 * self.machine_distance * pairs(self.threads as u32) - within;
        apart(self.workers, mains)
            + match self.mode {
                Mode::Scatter => all,
                Mode::Compact => -all,
            }
    }
}

/// The cpus, domain within domain: the largest first (by the sizes of their parts), equal ones by
/// their lowest cpu. So two machines that differ only in the names of their cpus have the same
/// positions.
fn tree_order(cpus: &[Cpu]) -> Vec<u16> {
    let mut order: Vec<u16> = (0..cpus.len() as u16).collect();
    let mut nodes: Vec<Node> = (0..cpus.len()).map(Node::of_cpu).collect();
    for domain in [
        |cpu: &Cpu| cpu.core,
        |cpu: &Cpu| cpu.l2,
        |cpu: &Cpu| cpu.l3,
        |cpu: &Cpu| cpu.numa,
        |cpu: &Cpu| cpu.package,
        |_: &Cpu| 0,
    ] {
        let parent = |node: &Node| domain(&cpus[node.lowest]);
        nodes.sort_unstable_by_key(|node| (parent(node), node.shape, node.lowest));
        let mut moved = Vec::with_capacity(order.len());
        let mut outer: Vec<Node> = Vec::with_capacity(nodes.len());
        for (part, node) in nodes.iter().enumerate() {
            let start = moved.len();
            moved.extend_from_slice(&order[node.members.clone()]);
            match outer.last_mut() {
                Some(last) if parent(last) == parent(node) => {
                    last.members.end = moved.len();
                    last.parts.end = part + 1;
                    last.lowest = last.lowest.min(node.lowest);
                }
                _ => outer.push(Node {
                    members: start..moved.len(),
                    parts: part..part + 1,
                    lowest: node.lowest,
                    shape: 0,
                }),
            }
        }
        number_shapes(&mut outer, &nodes);
        (order, nodes) = (moved, outer);
    }
    order
}

/// A domain while the order is built.
struct Node {
    /// Its cpus, as a part of the order found so far.
    members: Range<usize>,
    /// Its parts, among the nodes of the next inner level.
    parts: Range<usize>,
    /// The lowest index of its cpus.
    lowest: usize,
    /// Equal for domains of equal shape, smaller for larger ones.
    shape: usize,
}

impl Node {
    fn of_cpu(index: usize) -> Self {
        Self {
            members: index..index + 1,
            parts: 0..0,
            lowest: index,
            shape: 0,
        }
    }
}

/// Numbers the shapes of domains: compared by the number of cpus, then by the shapes of their
/// parts, which are sorted.
fn number_shapes(nodes: &mut [Node], inner: &[Node]) {
    let compare = |a: &Node, b: &Node| {
        let shapes = |node: &Node| inner[node.parts.clone()].iter().map(|part| part.shape);
        let by_size = b.members.len().cmp(&a.members.len());
        by_size.then_with(|| shapes(a).cmp(shapes(b)))
    };
    let mut sorted: Vec<usize> = (0..nodes.len()).collect();
    sorted.sort_unstable_by(|&a, &b| compare(&nodes[a], &nodes[b]));
    let mut shape = 0;
    for at in 1..sorted.len() {
        let (before, now) = (sorted[at - 1], sorted[at]);
        shape += usize::from(compare(&nodes[before], &nodes[now]).is_ne());
        nodes[now].shape = shape;
    }
}

/// Drops levels that are not distinct; those at the end become one domain.
fn keep_distinct(
    levels: &DistinctLevels,
    of: &mut [[u16; LEVELS]],
    starts: &mut [Vec<u16>; LEVELS],
) {
    for level in 0..LEVELS {
        if level < levels.count {
            starts.swap(level, levels.source[level]);
        } else {
            starts[level] = vec![0, of.len() as u16];
        }
    }
    for of in of {
        let all = *of;
        let kept = |level: usize| match level < levels.count {
            true => all[levels.source[level]],
            false => 0,
        };
        *of = std::array::from_fn(kept);
    }
}

type Numbered = (Vec<[u16; LEVELS]>, [Vec<u16>; LEVELS]);

/// Numbers the domains in the order in which `original` visits them.
fn number(cpus: &[Cpu], original: &[u16]) -> Numbered {
    let mut of: Vec<[u16; LEVELS]> = Vec::with_capacity(cpus.len());
    let mut starts: [Vec<u16>; LEVELS] = Default::default();
    let mut last: Option<[u32; LEVELS]> = None;
    for (position, &index) in original.iter().enumerate() {
        let now = domain_keys(&cpus[usize::from(index)]);
        for level in 0..LEVELS {
            if last.is_none_or(|last| last[level] != now[level]) {
                starts[level].push(position as u16);
            }
        }
        of.push(std::array::from_fn(|level| starts[level].len() as u16 - 1));
        last = Some(now);
    }
    for level in &mut starts {
        level.push(cpus.len() as u16);
    }
    (of, starts)
}
