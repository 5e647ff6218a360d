//! Bound on the mains: the greatest sum of distances between the mains of all deployments,
//! regardless of their other threads.
//!
//! **Problem.** Maximize the sum of distances of the mains, each on its own cpuset, with a limit
//! per core. **Approach.** A minimum-cost flow by negative-cycle canceling (Klein 1967): start with
//! the mains as they are placed, find a cycle of changes (a main of one cpuset from one cpu to
//! another, or one main more in a domain and one less in another) that increases the sum, apply it,
//! and repeat. **Proof sketch.** Sums of distances in a tree are concave in the counts of its
//! domains, so a flow without such a cycle is optimal; one with such a cycle gives no bound.
//! **Limits.** After [`CYCLES_MAX`] cycles all mains are assumed to be allowed on every cpu that
//! any of them may use, which still gives a bound once no cycle is left. Deployments with the same
//! cpuset are one source.

use std::collections::BTreeMap;

use albacore_topology::CpuSet;

use super::{levels, pairs};
use crate::JointProblem;
use crate::check::fill_levels::slow_cpus;
use crate::check::placed::Placed;

/// Maximum number of canceled cycles. An answer that is proven needs none.
const CYCLES_MAX: usize = 400;

/// The greatest sum of distances of all pairs of mains, with at most `on_core` mains per core and
/// `slow_mains` mains on slow cores.
pub(super) fn max_distance(
    problem: &JointProblem,
    placed: &[Placed<'_>],
    on_core: u32,
    slow_mains: i64,
) -> i64 {
    let mut flow = MainsFlow::of(problem, placed, on_core);
    flow.keep_on_fast_cores(&slow_cpus(problem), slow_mains);
    if !flow.cancel_negative_cycles() {
        flow.merge_sources();
        // bound: each cycle increases the sum of distances, an integer with an upper limit
        while let Some(cycle) = flow.negative_cycle() {
            flow.augment(&cycle);
        }
    }
    flow.distances(problem)
}

/// Source of the flow: a cpuset with its mains.
struct FlowSource {
    /// Most of its mains on one cpu.
    most: i64,
    /// Positions of its cpus, and its mains on each.
    cpus: Vec<(usize, i64)>,
}

/// The mains as a flow from the sources through the levels of the topology to the machine.
struct MainsFlow {
    sources: Vec<FlowSource>,
    on_core: i64,
    /// Per level: the gain of sharing, the mains in each domain, and the parent of each domain.
    levels: Vec<LevelMains>,
}

struct LevelMains {
    gain: i64,
    mains: Vec<i64>,
    parents: Vec<usize>,
}

/// Change of the flow on an arc by one main.
#[derive(Clone, Copy)]
enum ArcChange {
    /// From a source to the cpu at an index of its list.
    Place(usize, usize, i64),
    /// From a domain of a level to its parent.
    Up(usize, usize, i64),
}

/// An arc: its two nodes, its cost, and the change of the flow if it is taken.
type Arc = (usize, usize, i64, ArcChange);

impl MainsFlow {
    fn of(problem: &JointProblem, placed: &[Placed<'_>], on_core: u32) -> Self {
        let cpus = problem.topology.cpus();
        let position: BTreeMap<u16, usize> = cpus.iter().map(|cpu| cpu.id.0).zip(0..).collect();
        let mut sources: BTreeMap<&CpuSet, FlowSource> = BTreeMap::new();
        let mut mains = vec![0; cpus.len()];
        for (deployment, own) in problem.deployments.iter().zip(placed) {
            let source = sources
                .entry(&deployment.cpuset)
                .or_insert_with(|| FlowSource {
                    most: 0,
                    cpus: deployment
                        .cpuset
                        .iter()
                        .map(|id| (position[&id.0], 0))
                        .collect(),
                });
            let count = source.cpus.len() as i64;
            source.most += (i64::from(deployment.workers) + count - 1) / count;
            for cpu in own.mains() {
                let at = position[&cpu.id.0];
                mains[at] += 1;
                if let Ok(here) = source.cpus.binary_search_by_key(&at, |&(cpu, _)| cpu) {
                    source.cpus[here].1 += 1;
                }
            }
        }
        let all = levels(&problem.distances);
        let domains = all.each_ref().map(|level| {
            let mut numbers = BTreeMap::new();
            let number = |cpu| {
                let next = numbers.len();
                *numbers.entry((level.key)(cpu)).or_insert(next)
            };
            cpus.iter().map(number).collect::<Vec<usize>>()
        });
        let level_flow = |at: usize| {
            let count = domains[at].iter().max().map_or(0, |&most| most + 1);
            let mut level_flow = LevelMains {
                gain: all[at].gain,
                mains: vec![0; count],
                parents: vec![0; count],
            };
            for (cpu, &domain) in domains[at].iter().enumerate() {
                level_flow.mains[domain] += mains[cpu];
                level_flow.parents[domain] = domains.get(at + 1).map_or(0, |outer| outer[cpu]);
            }
            level_flow
        };
        Self {
            sources: sources.into_values().collect(),
            on_core: on_core.into(),
            levels: (0..all.len()).map(level_flow).collect(),
        }
    }

    /// Restricts sources to the fast cpus, except for `slow_mains` mains. With several sources it
    /// is unknown whose mains those are.
    fn keep_on_fast_cores(&mut self, is_slow: &[bool], slow_mains: i64) {
        let on_slow = |cpus: &[(usize, i64)]| -> i64 {
            let slow = cpus.iter().filter(|&&(cpu, _)| is_slow[cpu]);
            slow.map(|&(_, mains)| mains).sum()
        };
        let has_fast = |source: &&mut FlowSource| source.cpus.iter().any(|&(cpu, _)| !is_slow[cpu]);
        if slow_mains == 0 {
            let sources = self.sources.iter_mut().filter(has_fast);
            for source in sources.filter(|source| on_slow(&source.cpus) == 0) {
                source.cpus.retain(|&(cpu, _)| !is_slow[cpu]);
            }
            return;
        }
        let [source] = &mut self.sources[..] else {
            return;
        };
        let mains: i64 = source.cpus.iter().map(|&(_, mains)| mains).sum();
        // `slow_mains` mains keep all cpus, first those that are on slow cpus already
        let mut free = slow_mains - on_slow(&source.cpus);
        if free < 0 || slow_mains >= mains {
            return;
        }
        let mut fast = FlowSource {
            most: source.most,
            cpus: Vec::new(),
        };
        for (cpu, mains) in source
            .cpus
            .iter_mut()
            .filter(|&&mut (cpu, _)| !is_slow[cpu])
        {
            let stay = free.min(*mains);
            free -= stay;
            fast.cpus.push((*cpu, *mains - stay));
            *mains = stay;
        }
        self.sources.push(fast);
    }

    /// Cancels negative cycles; false if some may be left after [`CYCLES_MAX`] of them.
    fn cancel_negative_cycles(&mut self) -> bool {
        for _ in 0..CYCLES_MAX {
            match self.negative_cycle() {
                Some(cycle) => self.augment(&cycle),
                None => return true,
            }
        }
        false
    }

    /// Merges all mains into one source that may use all cpus; a single source keeps its limits.
    fn merge_sources(&mut self) {
        if self.sources.len() == 1 {
            return;
        }
        let mut cpus: BTreeMap<usize, i64> = BTreeMap::new();
        for &(cpu, mains) in self.sources.iter().flat_map(|source| &source.cpus) {
            *cpus.entry(cpu).or_insert(0) += mains;
        }
        self.sources = vec![FlowSource {
            most: cpus.values().sum(),
            cpus: cpus.into_iter().collect(),
        }];
    }

    /// Number of nodes, and every arc on which the flow can change by one main.
    fn arcs(&self) -> (usize, Vec<Arc>) {
        let mut starts = vec![self.sources.len()];
        for level_flow in &self.levels {
            starts.push(starts[starts.len() - 1] + level_flow.mains.len());
        }
        let mut arcs = Vec::new();
        for (source, of) in self.sources.iter().enumerate() {
            for (at, &(cpu, mains)) in of.cpus.iter().enumerate() {
                let node = starts[0] + cpu;
                if mains < of.most {
                    arcs.push((source, node, 0, ArcChange::Place(source, at, 1)));
                }
                if mains > 0 {
                    arcs.push((node, source, 0, ArcChange::Place(source, at, -1)));
                }
            }
        }
        for (level, level_flow) in self.levels.iter().enumerate() {
            for (domain, (&mains, &parents)) in
                level_flow.mains.iter().zip(&level_flow.parents).enumerate()
            {
                let (inside, outside) = (starts[level] + domain, starts[level + 1] + parents);
                if level != 1 || mains < self.on_core {
                    let step = ArcChange::Up(level, domain, 1);
                    arcs.push((inside, outside, level_flow.gain * mains, step));
                }
                if mains > 0 {
                    let step = ArcChange::Up(level, domain, -1);
                    arcs.push((outside, inside, -level_flow.gain * (mains - 1), step));
                }
            }
        }
        (starts[self.levels.len()] + 1, arcs)
    }

    /// A cycle of arcs with negative cost.
    fn negative_cycle(&self) -> Option<Vec<ArcChange>> {
        let (nodes, arcs) = self.arcs();
        let mut cost = vec![0; nodes];
        let mut predecessor_arc: Vec<Option<usize>> = vec![None; nodes];
        let mut last = None;
        // bound: Bellman-Ford: a node that still changes after as many rounds as nodes is on a
        // cycle
        for round in 0..=nodes {
            last = None;
            for (arc, &(from, to, price, _)) in arcs.iter().enumerate() {
                if cost[from] + price < cost[to] {
                    cost[to] = cost[from] + price;
                    predecessor_arc[to] = Some(arc);
                    last = Some(to);
                }
            }
            last?;
            // a cycle among the predecessors usually shows much earlier
            if round % ROUNDS_BETWEEN_CHECKS == ROUNDS_BETWEEN_CHECKS - 1
                && let Some(cycle) = find_cycle(&predecessor_arc, &arcs)
            {
                return Some(cycle);
            }
        }
        last.and_then(|_| find_cycle(&predecessor_arc, &arcs))
    }

    /// Applies every change.
    fn augment(&mut self, cycle: &[ArcChange]) {
        for &step in cycle {
            match step {
                ArcChange::Place(source, at, more) => self.sources[source].cpus[at].1 += more,
                ArcChange::Up(level, domain, more) => self.levels[level].mains[domain] += more,
            }
        }
    }

    fn distances(&self, problem: &JointProblem) -> i64 {
        let machine_distance = i64::from(problem.distances.machine);
        let mains: i64 = problem
            .deployments
            .iter()
            .map(|d| i64::from(d.workers))
            .sum();
        let closer = self.levels.iter().map(|level_flow| {
            let shared: i64 = level_flow.mains.iter().map(|&mains| pairs(mains)).sum();
            level_flow.gain * shared
        });
        machine_distance * pairs(mains) - closer.sum::<i64>()
    }
}

/// Rounds of Bellman-Ford between two searches for a cycle: most flows need fewer.
const ROUNDS_BETWEEN_CHECKS: usize = 8;

/// A cycle among the predecessor arcs of the nodes.
fn find_cycle(predecessor_arc: &[Option<usize>], arcs: &[Arc]) -> Option<Vec<ArcChange>> {
    let mut seen = vec![usize::MAX; predecessor_arc.len()];
    for start in 0..predecessor_arc.len() {
        let mut node = start;
        // bound: each node is seen once
        while let Some(arc) = predecessor_arc[node].filter(|_| seen[node] == usize::MAX) {
            seen[node] = start;
            node = arcs[arc].0;
        }
        if predecessor_arc[node].is_none() || seen[node] != start {
            continue;
        }
        let (mut cycle, first) = (Vec::new(), node);
        while let Some(arc) = predecessor_arc[node] {
            cycle.push(arcs[arc].3);
            node = arcs[arc].0;
            if node == first {
                return Some(cycle);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use albacore_topology::{Distances, Topology, parse_synthetic};

    use super::{CYCLES_MAX, max_distance};
    use crate::check::placed::Placed;
    use crate::{JointProblem, Mapping, Mode, Problem};

    #[test]
    fn a_single_source_is_optimal_also_after_the_maximum_number_of_cycles() {
        let topology = parse_synthetic("core:2 pu:1").unwrap();
        let workers = 2 * CYCLES_MAX as u16 + 200;
        let problem = JointProblem::of_one(&Problem {
            topology: topology.clone(),
            distances: Distances::default(),
            workers,
            threads: 1,
            mode: Mode::Scatter,
            current: None,
        });
        // half of the mains must move, one per cycle
        let on_one_cpu = Mapping {
            threads: 1,
            cpus: vec![topology.cpus()[0].id; workers.into()],
        };
        let placed = Placed::of(&topology, None, (workers, 1), &on_one_cpu).unwrap();
        let even = i64::from(workers) / 2;
        let (same, other) = (&topology.cpus()[0], &topology.cpus()[1]);
        let distance = |a, b| i64::from(Topology::distance(a, b, &problem.distances));
        let greatest =
            even * even * distance(same, other) + even * (even - 1) * distance(same, same);
        assert_eq!(
            max_distance(&problem, &[placed], workers.into(), 0),
            greatest
        );
    }
}
