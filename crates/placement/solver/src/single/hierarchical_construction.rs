//! Construction of an assignment from the machine down: to L3 caches, in them to L2 caches, in them
//! to cores, then to cpus.
//!
//! **Problem.** A good start where whole workers, volumes and mains compete for domains.
//! **Approach.** In each node of the tree, the threads of the node are distributed over the domains
//! inside (`count_annealing`), starting from workers laid end to end over its cpus. On a core, each
//! worker takes the cpus with most room left, mains first on cpus that will not be full. **Proof
//! sketch.** A result is used only if counting finds it within the rules, after repair. **Limits.**
//! Nodes are decided one after the other, without backtracking: the choice of a level is never
//! revised for the sake of an inner level.

use crate::WorkBudget;
use crate::limits::COUNT_ANNEALING_MOVES_MAX;
use crate::single::allowed::Allowed;
use crate::single::assignment::Assignment;
use crate::single::count_annealing::{Distribution, Subproblem, WorkerPart, anneal_counts};
use crate::single::domain_classes::{
    Classes, FullMainLimit, LevelGroup, classes, peers_beside_main,
};
use crate::single::domains::{CORE, Domains, LEVELS};
use crate::single::local_search::Search;

/// Constructs an assignment that may violate rules on mains (`penalized_moves`). With the seed 0
/// nothing is annealed: workers are laid end to end, which is optimal if they fit whole domains.
pub(crate) fn construct<'a>(
    domains: &'a Domains,
    allowed: &Allowed,
    seed: u64,
    budget: &mut WorkBudget,
) -> Option<Search<'a>> {
    let levels: Vec<usize> = (CORE..LEVELS)
        .rev()
        .filter(|&level| {
            let above = if level + 1 < LEVELS {
                domains.count(level + 1)
            } else {
                1
            };
            domains.count(level) != above || (level == CORE && above == 1)
        })
        .collect();
    let tables: Vec<Classes> = levels
        .iter()
        .map(|&level| {
            classes(
                domains,
                allowed,
                LevelGroup {
                    inner: 0,
                    outer: level,
                },
            )
        })
        .collect();
    let mut construction = Construction {
        domains,
        tables: &tables,
        levels: &levels,
        assignment: Assignment {
            mains: vec![0; domains.workers],
            peers: vec![Vec::new(); domains.workers],
        },
        peers_beside_main: peers_beside_main(domains, allowed),
        seed,
    };
    let all: Vec<WorkerPart> = (0..domains.workers)
        .map(|worker| WorkerPart {
            worker,
            threads: domains.threads as u32,
            main: true,
        })
        .collect();
    let full_main_limits = FullMainLimit::both(domains, allowed)
        .map(|rule| rule.map(|full_main_limits| full_main_limits.count));
    let machine = Subtree {
        depth: 0,
        cpus: 0..domains.cpus,
        full_main_limits,
    };
    construction.node(machine, &all, budget)?;
    let mut assignment = construction.assignment;
    assignment
        .peers
        .iter_mut()
        .for_each(|peers| peers.sort_unstable());
    let full = assignment
        .peers
        .iter()
        .all(|peers| peers.len() + 1 == domains.threads);
    if !full {
        return None;
    }
    Some(Search::of(domains, allowed, &assignment))
}

struct Construction<'a> {
    domains: &'a Domains,
    tables: &'a [Classes],
    levels: &'a [usize],
    assignment: Assignment,
    peers_beside_main: Option<i64>,
    seed: u64,
}

/// A node of the tree.
struct Subtree {
    depth: usize,
    cpus: std::ops::Range<usize>,
    /// How many of its cores, and cpus, may be full and hold a main.
    full_main_limits: [Option<i64>; 2],
}

impl Construction<'_> {
    /// Distributes the parts of a node over its cpus; `None` if that is infeasible.
    fn node(
        &mut self,
        subtree: Subtree,
        parts: &[WorkerPart],
        budget: &mut WorkBudget,
    ) -> Option<()> {
        let Subtree {
            depth,
            cpus,
            full_main_limits,
        } = subtree;
        let Some(&level) = self.levels.get(depth) else {
            return self.core(cpus, parts);
        };
        // a construction that has begun is completed, without annealing if necessary
        let spent = budget.spend(10 * parts.len() * cpus.len());
        if spent && depth == 0 {
            return None;
        }
        let first = self.domains.domain(level, cpus.start);
        let last = self.domains.domain(level, cpus.end - 1);
        let Classes { classes, of_domain } = &self.tables[depth];
        let node = Subproblem {
            children: (first..=last)
                .map(|domain| &classes[of_domain[domain]])
                .collect(),
            parts,
            full_main_limits,
            peers_beside_main: self.peers_beside_main,
        };
        let start = self.lay_end_to_end(&node, level, cpus.clone())?;
        let width = node.children.len();
        let counts = if width == 1 || self.seed == 0 || spent {
            start
        } else {
            let moves = self.moves(depth, cpus.len(), parts.len() * width);
            anneal_counts(&node, start, moves, self.seed, budget).0
        };
        for (child, full_main_limits) in counts.full_main_limits(&node).into_iter().enumerate() {
            let inside: Vec<WorkerPart> = parts
                .iter()
                .enumerate()
                .filter_map(|(at, part)| {
                    let threads = u32::from(counts.held[at * width + child]);
                    let main = part.main && usize::from(counts.main[at]) == child;
                    (threads > 0).then_some(WorkerPart {
                        threads,
                        main,
                        ..*part
                    })
                })
                .collect();
            let subtree = Subtree {
                depth: depth + 1,
                cpus: self.domains.members(level, first + child),
                full_main_limits,
            };
            self.node(subtree, &inside, budget)?;
        }
        Some(())
    }

    /// Number of annealing moves for a node with so many cpus and cells.
    fn moves(&self, depth: usize, cpus: usize, cells: usize) -> usize {
        let most = 2_000 * cells;
        if depth == 0 {
            most.min(COUNT_ANNEALING_MOVES_MAX)
        } else {
            most.min(COUNT_ANNEALING_MOVES_MAX / 4) * cpus / self.domains.cpus
        }
    }

    /// Each worker in turn takes the next cpus that have room for it, cyclically.
    fn lay_end_to_end(
        &self,
        node: &Subproblem<'_>,
        level: usize,
        cpus: std::ops::Range<usize>,
    ) -> Option<Distribution> {
        let width = node.children.len();
        let first = self.domains.domain(level, cpus.start);
        let mut held = vec![0u16; node.parts.len() * width];
        let mut main = vec![0u16; node.parts.len()];
        let mut mains = vec![0u32; width];
        let mut next = 0;
        for (at, part) in node.parts.iter().enumerate() {
            for _ in 0..part.threads {
                let child_of = |turn: &usize| {
                    self.domains.domain(level, cpus.start + turn % cpus.len()) - first
                };
                let room = |turn: &usize| {
                    let child = child_of(turn);
                    u32::from(held[at * width + child]) < node.children[child].capacity.per_worker
                };
                next = (next..next + cpus.len()).find(room)?;
                let child = child_of(&next);
                held[at * width + child] += 1;
                next += 1;
            }
            let fewest = (0..width)
                .filter(|child| part.main && held[at * width + child] > 0)
                .min_by_key(|&child| mains[child]);
            if let Some(child) = fewest {
                main[at] = child as u16;
                mains[child] += 1;
            }
        }
        Some(Distribution::of(node, held, main))
    }

    /// Assigns the threads on a core to its cpus: mains first, if that leaves room for all.
    fn core(&mut self, cpus: std::ops::Range<usize>, parts: &[WorkerPart]) -> Option<()> {
        let filling = [true, false].into_iter().find_map(|mains_first| {
            let mut filling = CoreFilling::of(cpus.len(), parts, self.domains.rules.worker_cap);
            filling.fill(parts, mains_first).map(|()| filling)
        })?;
        for (part, (held, main)) in parts.iter().zip(filling.held.iter().zip(&filling.main)) {
            if let Some(at) = main {
                self.assignment.mains[part.worker] = (cpus.start + at) as u16;
            }
            for (at, &held) in held.iter().enumerate() {
                let peers = held - u32::from(*main == Some(at));
                let cpu = (cpus.start + at) as u16;
                let list = &mut self.assignment.peers[part.worker];
                list.extend(std::iter::repeat_n(cpu, peers as usize));
            }
        }
        Some(())
    }
}

/// The cpus of a core during their filling.
struct CoreFilling {
    /// Remaining capacity; the first cpus have the extras.
    left: Vec<u32>,
    extras: usize,
    mains: Vec<u32>,
    /// Threads of each part on each cpu, its main included.
    held: Vec<Vec<u32>>,
    /// The cpu of each part's main.
    main: Vec<Option<usize>>,
    worker_cap: u32,
}

impl CoreFilling {
    fn of(cpus: usize, parts: &[WorkerPart], worker_cap: u32) -> Self {
        let volume: u32 = parts.iter().map(|part| part.threads).sum();
        let (each, more) = (volume / cpus as u32, volume as usize % cpus);
        Self {
            left: (0..cpus).map(|at| each + u32::from(at < more)).collect(),
            extras: more,
            mains: vec![0; cpus],
            held: vec![vec![0; cpus]; parts.len()],
            main: vec![None; parts.len()],
            worker_cap,
        }
    }

    /// Places the largest parts first, each on the cpus with most room; `None` if one finds no
    /// room.
    fn fill(&mut self, parts: &[WorkerPart], mains_first: bool) -> Option<()> {
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|&at| (std::cmp::Reverse(parts[at].threads), !parts[at].main));
        let cpus = 0..self.left.len();
        for &part in order
            .iter()
            .filter(|&&part| mains_first && parts[part].main)
        {
            let open = cpus.clone().filter(|&at| self.left[at] > 0);
            let at =
                open.min_by_key(|&at| (self.mains[at], at < self.extras, std::cmp::Reverse(at)))?;
            self.take(part, at);
            self.main[part] = Some(at);
            self.mains[at] += 1;
        }
        for &part in &order {
            for _ in u32::from(self.main[part].is_some())..parts[part].threads {
                let room = |&at: &usize| self.left[at] > 0 && self.held[part][at] < self.worker_cap;
                let at = cpus
                    .clone()
                    .filter(room)
                    .max_by_key(|&at| (self.left[at], std::cmp::Reverse(at)))?;
                self.take(part, at);
            }
            if parts[part].main && !mains_first {
                let at = cpus
                    .clone()
                    .filter(|&at| self.held[part][at] > 0)
                    .min_by_key(|&at| (self.mains[at], at < self.extras, std::cmp::Reverse(at)))?;
                self.main[part] = Some(at);
                self.mains[at] += 1;
            }
        }
        Some(())
    }

    fn take(&mut self, part: usize, at: usize) {
        self.left[at] -= 1;
        self.held[part][at] += 1;
    }
}
