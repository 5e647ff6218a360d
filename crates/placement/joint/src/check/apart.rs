//! How far apart the mains of all deployments can be, whatever their peers want.
//!
//! **Problem.** The checker needs the greatest sum of distances of mains, each on its own cpuset,
//! with a limit on a core. **Approach.** Not built up, but tried: from the mains as they are
//! placed, look for a circle of moves (a main of one cpuset from one cpu to another, or one more in
//! a domain and one less in another) that brings them farther apart, make it, and look again.
//! **Proof sketch.** Sums of distances in a tree are concave in the counts of its domains, so a
//! flow with no such circle is the best there is (negative cycles, Klein). **Limits.** After
//! [`CIRCLES_MAX`] circles all mains count as if they might use all cpus that any may use: still a
//! bound. Deployments with the same cpuset are one source.

use std::collections::BTreeMap;

use albacore_topology::CpuSet;

use super::Placed;
use super::bound::{levels, pairs};
use crate::JointProblem;
use crate::limits::CIRCLES_MAX;

/// The greatest sum of distances of all pairs of mains, at most `on_core` of them on a core.
pub(super) fn farthest(problem: &JointProblem, placed: &[Placed<'_>], on_core: u32) -> i64 {
    let mut flow = Flow::of(problem, placed, on_core);
    if !flow.settle() {
        flow.join();
        while flow.circle().is_some_and(|circle| flow.turn(&circle)) {}
    }
    flow.distances(problem)
}

/// Where mains come from: a cpuset.
struct Source {
    /// Most of its mains on a cpu.
    most: i64,
    /// Positions of its cpus, and its mains on each.
    cpus: Vec<(usize, i64)>,
}

/// The mains as a flow from sources over cpus, cores, L2 and L3 to the machine.
struct Flow {
    sources: Vec<Source>,
    on_core: i64,
    /// Of each level: what sharing is worth, the mains in each domain, the domain around each.
    levels: Vec<Ring>,
}

struct Ring {
    gain: i64,
    held: Vec<i64>,
    around: Vec<usize>,
}

/// One main more (or less) on an arc.
#[derive(Clone, Copy)]
enum Step {
    /// From a source to the cpu at that place of its list.
    Place(usize, usize, i64),
    /// From a domain of a level to that around it.
    Climb(usize, usize, i64),
}

/// An arc between two nodes, what it costs, and what taking it means.
type Arc = (usize, usize, i64, Step);

impl Flow {
    fn of(problem: &JointProblem, placed: &[Placed<'_>], on_core: u32) -> Self {
        let cpus = problem.topology.cpus();
        let position: BTreeMap<u16, usize> = cpus.iter().map(|cpu| cpu.id.0).zip(0..).collect();
        let mut sources: BTreeMap<&CpuSet, Source> = BTreeMap::new();
        let mut mains = vec![0; cpus.len()];
        for (deployment, own) in problem.deployments.iter().zip(placed) {
            let source = sources.entry(&deployment.cpuset).or_insert_with(|| Source {
                most: 0,
                cpus: deployment
                    .cpuset
                    .iter()
                    .map(|id| (position[&id.0], 0))
                    .collect(),
            });
            let count = source.cpus.len() as i64;
            source.most += (i64::from(deployment.workers) + count - 1) / count;
            for (_, cpu) in own.iter().filter(|(slot, _)| slot.rank.0 == 0) {
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
        let ring = |at: usize| {
            let count = domains[at].iter().max().map_or(0, |&most| most + 1);
            let mut ring = Ring {
                gain: all[at].gain,
                held: vec![0; count],
                around: vec![0; count],
            };
            for (cpu, &domain) in domains[at].iter().enumerate() {
                ring.held[domain] += mains[cpu];
                ring.around[domain] = domains.get(at + 1).map_or(0, |outer| outer[cpu]);
            }
            ring
        };
        Self {
            sources: sources.into_values().collect(),
            on_core: on_core.into(),
            levels: (0..all.len()).map(ring).collect(),
        }
    }

    /// Turns circles until there is none; false if there are too many.
    fn settle(&mut self) -> bool {
        for _ in 0..CIRCLES_MAX {
            match self.circle() {
                Some(circle) => self.turn(&circle),
                None => return true,
            };
        }
        self.sources.len() == 1
    }

    /// All mains as one source that may use all cpus.
    fn join(&mut self) {
        let mut cpus: BTreeMap<usize, i64> = BTreeMap::new();
        for &(cpu, held) in self.sources.iter().flat_map(|source| &source.cpus) {
            *cpus.entry(cpu).or_insert(0) += held;
        }
        self.sources = vec![Source {
            most: cpus.values().sum(),
            cpus: cpus.into_iter().collect(),
        }];
    }

    /// Every arc on which one main more or less may go.
    fn arcs(&self) -> (usize, Vec<Arc>) {
        let mut starts = vec![self.sources.len()];
        for ring in &self.levels {
            starts.push(starts[starts.len() - 1] + ring.held.len());
        }
        let mut arcs = Vec::new();
        for (source, of) in self.sources.iter().enumerate() {
            for (at, &(cpu, held)) in of.cpus.iter().enumerate() {
                let node = starts[0] + cpu;
                if held < of.most {
                    arcs.push((source, node, 0, Step::Place(source, at, 1)));
                }
                if held > 0 {
                    arcs.push((node, source, 0, Step::Place(source, at, -1)));
                }
            }
        }
        for (level, ring) in self.levels.iter().enumerate() {
            for (domain, (&held, &around)) in ring.held.iter().zip(&ring.around).enumerate() {
                let (inside, outside) = (starts[level] + domain, starts[level + 1] + around);
                if level != 1 || held < self.on_core {
                    let step = Step::Climb(level, domain, 1);
                    arcs.push((inside, outside, ring.gain * held, step));
                }
                if held > 0 {
                    let step = Step::Climb(level, domain, -1);
                    arcs.push((outside, inside, -ring.gain * (held - 1), step));
                }
            }
        }
        (starts[self.levels.len()] + 1, arcs)
    }

    /// A circle of arcs that costs less than nothing.
    fn circle(&self) -> Option<Vec<Step>> {
        let (nodes, arcs) = self.arcs();
        let mut cost = vec![0; nodes];
        let mut by: Vec<Option<usize>> = vec![None; nodes];
        let mut last = None;
        // bound: Bellman and Ford: what still changes after as many rounds as nodes is on a circle
        for round in 0..=nodes {
            last = None;
            for (arc, &(from, to, price, _)) in arcs.iter().enumerate() {
                if cost[from] + price < cost[to] {
                    cost[to] = cost[from] + price;
                    by[to] = Some(arc);
                    last = Some(to);
                }
            }
            last?;
            // a circle among the predecessors shows long before
            if round % ROUNDS_BETWEEN_LOOKS == ROUNDS_BETWEEN_LOOKS - 1
                && let Some(circle) = around(&by, &arcs)
            {
                return Some(circle);
            }
        }
        last.and_then(|_| around(&by, &arcs))
    }

    /// Takes every step; always true.
    fn turn(&mut self, circle: &[Step]) -> bool {
        for &step in circle {
            match step {
                Step::Place(source, at, more) => self.sources[source].cpus[at].1 += more,
                Step::Climb(level, domain, more) => self.levels[level].held[domain] += more,
            }
        }
        true
    }

    fn distances(&self, problem: &JointProblem) -> i64 {
        let beyond = i64::from(problem.distances.beyond);
        let mains: i64 = problem
            .deployments
            .iter()
            .map(|d| i64::from(d.workers))
            .sum();
        let closer = self.levels.iter().map(|ring| {
            let shared: i64 = ring.held.iter().map(|&held| pairs(held)).sum();
            ring.gain * shared
        });
        beyond * pairs(mains) - closer.sum::<i64>()
    }
}

/// Rounds of Bellman and Ford between two looks for a circle: most flows are settled in fewer.
const ROUNDS_BETWEEN_LOOKS: usize = 8;

/// A circle among the arcs by which nodes were reached.
fn around(by: &[Option<usize>], arcs: &[Arc]) -> Option<Vec<Step>> {
    let mut seen = vec![usize::MAX; by.len()];
    for start in 0..by.len() {
        let mut node = start;
        // bound: each node is seen once
        while let Some(arc) = by[node].filter(|_| seen[node] == usize::MAX) {
            seen[node] = start;
            node = arcs[arc].0;
        }
        if by[node].is_none() || seen[node] != start {
            continue;
        }
        let (mut circle, first) = (Vec::new(), node);
        while let Some(arc) = by[node] {
            circle.push(arcs[arc].3);
            node = arcs[arc].0;
            if node == first {
                return Some(circle);
            }
        }
    }
    None
}
