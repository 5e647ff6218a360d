//! The least closeness of the mains of all tenants, as a minimum-cost flow up the tree.
//!
//! **Problem.** Tenants with different cpusets place their mains where they may, not where it is
//! best for all. **Approach.** Tenants with the same cpus form one supply; each main is sent along
//! a cheapest path from its supply over the levels of the tree to the machine, where the x-th main
//! in a domain costs x-1 times the domain's gain. Supplies that share no package are independent
//! and are solved separately; a single supply needs no rerouting (`spread`). **Proof sketch.**
//! Successive shortest paths yield a minimum-cost flow, because costs are convex (Ahuja, Magnanti
//! and Orlin 1993). **Limits.** With more work than [`FLOW_WORK_MAX`], all mains of overlapping
//! supplies are merged into one supply that may use all their cpus, which still gives a bound.

use std::collections::BTreeMap;

use super::instance::{CORE, Instance, LEVELS};
use super::spread::Spread;
use crate::limits::FLOW_WORK_MAX;

/// A supply: its cpus, the most of its mains on each, the number of its mains.
type Supply = (Vec<u16>, u32, usize);

/// The least closeness of all mains, with at most `core_cap` of them on a core and `slow_mains` on
/// slow cores.
pub(super) fn least_closeness(instance: &Instance, core_cap: u32, slow_mains: u32) -> i64 {
    let mut groups: BTreeMap<&[u16], (u32, usize)> = BTreeMap::new();
    for tenant in &instance.tenants {
        let group = groups.entry(&tenant.cpus).or_insert((0, 0));
        group.0 += u32::from(tenant.rank_cap);
        group.1 += tenant.workers;
    }
    let supplies = groups
        .into_iter()
        .map(|(cpus, (most, workers))| (cpus.to_vec(), most, workers))
        .collect();
    let supplies = on_fast_cores(instance, supplies, slow_mains as usize);
    let alone = |mut supplies: Vec<Supply>| {
        let edges: usize = supplies.iter().map(|(cpus, ..)| cpus.len()).sum();
        let mains: usize = supplies.iter().map(|&(.., mains)| mains).sum();
        if supplies.len() > 1 && edges * mains > FLOW_WORK_MAX {
            let mut all: Vec<u16> = supplies.into_iter().flat_map(|(cpus, ..)| cpus).collect();
            all.sort_unstable();
            all.dedup();
            supplies = vec![(all, u32::MAX, mains)];
        }
        match &supplies[..] {
            [(cpus, most, mains)] => Spread::new(instance, cpus, (*most, core_cap)).place(*mains),
            _ => MinCostFlow::of(instance, core_cap, supplies).least_closeness(),
        }
    };
    independent_groups(instance, supplies)
        .into_iter()
        .map(alone)
        .sum()
}

/// Restricts supplies to fast cores, except for `slow_mains` mains. For a single supply it is known
/// whose mains these are; several supplies are restricted only if `slow_mains` is 0.
fn on_fast_cores(instance: &Instance, supplies: Vec<Supply>, slow_mains: usize) -> Vec<Supply> {
    let fast = |cpus: &[u16]| -> Vec<u16> {
        let cpus = cpus.iter().copied();
        cpus.filter(|&cpu| !instance.is_slow[usize::from(cpu)])
            .collect()
    };
    match (&supplies[..], slow_mains) {
        (supplies, 0) => {
            let of = |(cpus, most, mains): &Supply| match fast(cpus) {
                // no fast cpu to choose from
                none if none.is_empty() => (cpus.clone(), *most, *mains),
                fast => (fast, *most, *mains),
            };
            supplies.iter().map(of).collect()
        }
        ([(cpus, most, mains)], slow) if slow < *mains => {
            vec![
                (fast(cpus), *most, mains - slow),
                (cpus.clone(), *most, slow),
            ]
        }
        _ => supplies,
    }
}

/// Supplies in groups that share no package.
fn independent_groups(instance: &Instance, supplies: Vec<Supply>) -> Vec<Vec<Supply>> {
    let mut groups: Vec<(Vec<bool>, Vec<Supply>)> = Vec::new();
    for supply in supplies {
        let top = instance.levels - 1;
        let mut packages = vec![false; instance.counts[top]];
        for &cpu in &supply.0 {
            packages[usize::from(instance.of[top][usize::from(cpu)])] = true;
        }
        let mut own = vec![supply];
        groups.retain_mut(|(others, members)| {
            let meets = others.iter().zip(&packages).any(|(&a, &b)| a && b);
            if meets {
                packages
                    .iter_mut()
                    .zip(others)
                    .for_each(|(package, other)| *package |= *other);
                own.append(members);
            }
            !meets
        });
        groups.push((packages, own));
    }
    groups.into_iter().map(|(_, supplies)| supplies).collect()
}

/// The mains as a flow up the tree.
struct MinCostFlow<'a> {
    instance: &'a Instance,
    supplies: Vec<Supply>,
    core_cap: u32,
    /// Mains of each supply on each cpu.
    from: Vec<Vec<u32>>,
    /// Mains in each domain of each level.
    counts: [Vec<u32>; LEVELS],
}

impl<'a> MinCostFlow<'a> {
    fn of(instance: &'a Instance, core_cap: u32, supplies: Vec<Supply>) -> Self {
        Self {
            instance,
            core_cap,
            from: vec![vec![0; instance.cpus]; supplies.len()],
            supplies,
            counts: std::array::from_fn(|level| vec![0; instance.counts[level]]),
        }
    }

    fn least_closeness(mut self) -> i64 {
        let nodes = Nodes::of(self.instance, self.supplies.len());
        let mut sum = 0;
        for supply in 0..self.supplies.len() {
            for _ in 0..self.supplies[supply].2 {
                // a main without a path costs nothing: the sum is lower, so it still gives a bound
                sum += self.add_main(&nodes, supply).unwrap_or(0);
            }
        }
        sum
    }

    /// Adds a main of a supply along the cheapest path; returns its cost.
    fn add_main(&mut self, nodes: &Nodes, supply: usize) -> Option<i64> {
        let mut cost = vec![i64::MAX; nodes.count];
        let mut before = vec![usize::MAX; nodes.count];
        cost[supply] = 0;
        let mut queue = std::collections::VecDeque::from([supply]);
        let mut is_queued = vec![false; nodes.count];
        // bound: Bellman-Ford; residual costs have no negative cycle
        while let Some(at) = queue.pop_front() {
            is_queued[at] = false;
            self.edges(nodes, at, &mut |to, price| {
                let total = cost[at] + price;
                if total < cost[to] {
                    cost[to] = total;
                    before[to] = at;
                    if !std::mem::replace(&mut is_queued[to], true) {
                        queue.push_back(to);
                    }
                }
            });
        }
        let machine = nodes.count - 1;
        if cost[machine] == i64::MAX {
            return None;
        }
        let mut to = machine;
        // bound: a cheapest path visits no node twice
        while to != supply {
            let at = before[to];
            self.push_flow(nodes, at, to);
            to = at;
        }
        Some(cost[machine])
    }

    /// The residual edges out of a node.
    fn edges(&self, nodes: &Nodes, at: usize, edge: &mut dyn FnMut(usize, i64)) {
        let instance = self.instance;
        let up = |level: usize, domain: usize| {
            let held = self.counts[level][domain];
            let open = level != CORE || held < self.core_cap;
            open.then(|| instance.gain[level] * i64::from(held))
        };
        match nodes.kind(at) {
            NodeKind::Supply(supply) => {
                let (cpus, most, _) = &self.supplies[supply];
                for &cpu in cpus {
                    if self.from[supply][usize::from(cpu)] < *most {
                        edge(nodes.domain(0, cpu.into()), 0);
                    }
                }
            }
            NodeKind::Domain(level, domain) => {
                if let Some(price) = up(level, domain) {
                    edge(nodes.parent(level, domain), price);
                }
                for &child in nodes.children(level, domain) {
                    let held = self.counts[level - 1][child];
                    if held > 0 {
                        let price = instance.gain[level - 1] * i64::from(held - 1);
                        edge(nodes.domain(level - 1, child), -price);
                    }
                }
                if level == 0 {
                    for (supply, from) in self.from.iter().enumerate() {
                        if from[domain] > 0 {
                            edge(supply, 0);
                        }
                    }
                }
            }
            NodeKind::Machine => {
                for (child, &held) in self.counts[LEVELS - 1].iter().enumerate() {
                    if held > 0 {
                        let price = instance.gain[LEVELS - 1] * i64::from(held - 1);
                        edge(nodes.domain(LEVELS - 1, child), -price);
                    }
                }
            }
        }
    }

    /// Adds one main to a forward edge, or removes one from the forward edge of a reverse one.
    fn push_flow(&mut self, nodes: &Nodes, at: usize, to: usize) {
        match (nodes.kind(at), nodes.kind(to)) {
            (NodeKind::Supply(supply), NodeKind::Domain(_, cpu)) => self.from[supply][cpu] += 1,
            (NodeKind::Domain(_, cpu), NodeKind::Supply(supply)) => self.from[supply][cpu] -= 1,
            (NodeKind::Domain(level, domain), NodeKind::Machine) => self.counts[level][domain] += 1,
            (NodeKind::Machine, NodeKind::Domain(level, domain)) => self.counts[level][domain] -= 1,
            (NodeKind::Domain(a, of), NodeKind::Domain(b, _)) if a < b => self.counts[a][of] += 1,
            (NodeKind::Domain(..), NodeKind::Domain(b, domain)) => self.counts[b][domain] -= 1,
            _ => {}
        }
    }
}

enum NodeKind {
    Supply(usize),
    Domain(usize, usize),
    Machine,
}

/// Node numbers of supplies, domains and the machine.
struct Nodes {
    supplies: usize,
    starts: [usize; LEVELS],
    count: usize,
    parents: [Vec<usize>; LEVELS],
    children: [Vec<Vec<usize>>; LEVELS],
}

impl Nodes {
    fn of(instance: &Instance, supplies: usize) -> Self {
        let mut starts = [0; LEVELS];
        let mut count = supplies;
        for (level, start) in starts.iter_mut().enumerate() {
            *start = count;
            count += instance.counts[level];
        }
        let mut parents: [Vec<usize>; LEVELS] =
            std::array::from_fn(|level| vec![count; instance.counts[level]]);
        let mut children: [Vec<Vec<usize>>; LEVELS] =
            std::array::from_fn(|level| vec![Vec::new(); instance.counts[level]]);
        for cpu in 0..instance.cpus {
            for level in 0..LEVELS - 1 {
                let own = usize::from(instance.of[level][cpu]);
                let outer = usize::from(instance.of[level + 1][cpu]);
                if parents[level][own] == count {
                    parents[level][own] = starts[level + 1] + outer;
                    children[level + 1][outer].push(own);
                }
            }
        }
        Self {
            supplies,
            starts,
            count: count + 1,
            parents,
            children,
        }
    }

    fn kind(&self, node: usize) -> NodeKind {
        if node < self.supplies {
            return NodeKind::Supply(node);
        }
        if node + 1 == self.count {
            return NodeKind::Machine;
        }
        let level = self.starts.partition_point(|&start| start <= node) - 1;
        NodeKind::Domain(level, node - self.starts[level])
    }

    fn domain(&self, level: usize, domain: usize) -> usize {
        self.starts[level] + domain
    }

    fn parent(&self, level: usize, domain: usize) -> usize {
        self.parents[level][domain]
    }

    fn children(&self, level: usize, domain: usize) -> &[usize] {
        &self.children[level][domain]
    }
}
