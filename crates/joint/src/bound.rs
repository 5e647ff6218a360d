//! What no joint placement within the rules can exceed, from counts alone.
//!
//! **Problem.** As for one deployment: a value needs a limit beside it. **Approach.** The mains of
//! all together and the pairs within workers are bounded alone. *Mains*: parties with the same cpus
//! are one supply; each main goes along the cheapest path of a flow from its supply over cpus, cores,
//! L2 and L3 to the machine, where the x-th main in a domain costs x-1 times the domain's gain.
//! *Within, scatter*: each worker spread as if it were alone on the cpuset. *Within, compact*: level
//! by level, each worker packed as if alone into domains that take no more of it than rule (3) and the
//! loads allow; on cpus and cores also what all compact workers together find: a core of load X holds
//! at most X/k workers with k threads; where (12+) holds, mains take a place beside a full core's.
//! **Proof sketch.** Cheapest paths one after the other are a
//! cheapest flow, because costs are convex. Loads as multisets are the same in every placement that
//! keeps (8) and (8+), so the largest of them limits every worker. The rest is as in `bound` for one
//! deployment. **Limits.** Which mains may lie where peers are wanted is not asked. With more work
//! than [`FLOW_WORK_MAX`] all mains count as one supply that may use all cpus: still a bound.

use std::collections::BTreeMap;

use super::enumerate::Breaches;
use super::rules::Rules;
use super::site::{CORE, LEVELS, Party, Site};
use super::volume::Volume;
use crate::limits::FLOW_WORK_MAX;

/// No placement that breaks no rule on mains further than by these `breaches` is above this.
pub(super) fn upper_bound(site: &Site, rules: &Rules, volume: &Volume, breaches: Breaches) -> i64 {
    let mains = Flow::of(site, rules.core_mains + breaches[0]).least_closeness();
    let core_loads = site.core_loads(&volume.loads);
    let mut sum = pairs(site.workers as u32) * site.beyond - mains;
    let mut known: BTreeMap<(&[u16], usize), i64> = BTreeMap::new();
    for party in &site.parties {
        let workers = party.workers as i64;
        let all = workers * site.beyond * pairs(party.threads as u32);
        sum += party.sign * all;
        if party.sign > 0 {
            let alike = (&party.cpus[..], party.threads);
            sum -= workers
                * *known
                    .entry(alike)
                    .or_insert_with(|| least_alone(site, party));
        }
    }
    let mut compact = packed(site, rules, &core_loads, breaches);
    compact[0] = compact[0].min(most_together(site, &volume.loads, 0));
    compact[CORE] = compact[CORE].min(most_together(site, &core_loads, CORE));
    let at = |level: usize| site.gain[level] * compact[level];
    sum + (0..LEVELS).map(at).sum::<i64>()
}

/// Of each level: most pairs of a worker alone, and with its main on a core that is not full.
type Alone = [(i64, i64); LEVELS];

/// Most pairs of compact workers in domains of each level if each worker were alone. Where (12+)
/// holds, all but so many workers as it lets through have their main on a core that is not full.
fn packed(site: &Site, rules: &Rules, core_loads: &[u32], breaches: Breaches) -> [i64; LEVELS] {
    let most = core_loads.iter().copied().max().unwrap_or(0);
    let mut known: BTreeMap<(&[u16], usize), Alone> = BTreeMap::new();
    let (mut sums, mut most_more) = ([0; LEVELS], [0; LEVELS]);
    let mut workers = 0;
    for party in site.parties.iter().filter(|party| party.sign < 0) {
        workers += party.workers as i64;
        let alone = known
            .entry((&party.cpus, party.threads))
            .or_insert_with(|| {
                std::array::from_fn(|level| most_alone(site, party, level, (most, rules)))
            });
        for (level, &mut (free, bound)) in alone.iter_mut().enumerate() {
            sums[level] += party.workers as i64 * bound;
            most_more[level] = (free - bound).max(most_more[level]);
        }
    }
    // cores that may be full beside mains, times mains on each
    let (_, through) = rules.full_cores.unwrap_or((0, 0));
    let mains = i64::from(rules.core_mains + breaches[0]);
    let free = workers.min(i64::from(through + breaches[2]) * mains);
    for (sum, more) in sums.iter_mut().zip(most_more) {
        *sum += free * more;
    }
    sums
}

/// x(x-1)/2.
fn pairs(x: u32) -> i64 {
    i64::from(x) * (i64::from(x) - 1) / 2
}

/// The least closeness of a worker that is alone on its cpuset.
fn least_alone(site: &Site, party: &Party) -> i64 {
    let mut counts: [Vec<u32>; LEVELS] = std::array::from_fn(|level| vec![0; site.counts[level]]);
    let mut closeness = 0;
    for _ in 0..party.threads {
        let open = party.cpus.iter().map(|&cpu| usize::from(cpu));
        let added = |cpu: usize| -> i64 {
            let held = |level: usize| counts[level][usize::from(site.of[level][cpu])];
            (0..LEVELS)
                .map(|level| site.gain[level] * i64::from(held(level)))
                .sum()
        };
        let best = open
            .filter(|&cpu| counts[0][cpu] < u32::from(party.worker_cap))
            .min_by_key(|&cpu| (added(cpu), counts[CORE][site.core(cpu)], cpu));
        if let Some(cpu) = best {
            closeness += added(cpu);
            for (level, counts) in counts.iter_mut().enumerate() {
                counts[usize::from(site.of[level][cpu])] += 1;
            }
        }
    }
    closeness
}

/// Most pairs of threads of a worker in one domain of a level, if it is alone on its cpuset and no
/// core takes more than `most` threads; and the same if its main's core is not full.
fn most_alone(
    site: &Site,
    party: &Party,
    level: usize,
    (most, rules): (u32, &Rules),
) -> (i64, i64) {
    let mut cores = vec![0u32; site.counts[CORE]];
    for &cpu in &party.cpus {
        cores[site.core(cpu.into())] += u32::from(party.worker_cap);
    }
    // of each domain: how many threads it takes, and how many less if the main is there
    let mut rooms: BTreeMap<u16, (u32, u32)> = BTreeMap::new();
    let mut seen = vec![false; cores.len()];
    for &cpu in &party.cpus {
        let (cpu, core) = (usize::from(cpu), site.core(cpu.into()));
        let (room, less) = rooms.entry(site.of[level][cpu]).or_insert((0, u32::MAX));
        if level == 0 {
            (*room, *less) = (*room + u32::from(party.worker_cap), 0);
        } else if !std::mem::replace(&mut seen[core], true) {
            let here = cores[core].min(most);
            let below_full = rules
                .full_cores
                .map_or(here, |(full, _)| here.min(full - 1));
            (*room, *less) = (*room + here, (*less).min(here - below_full));
        }
    }
    let threads = party.threads as u32;
    let mut rooms: Vec<(u32, u32)> = rooms.into_values().collect();
    rooms.sort_unstable_by(|a, b| b.cmp(a));
    let sizes: Vec<u32> = rooms.iter().map(|&(room, _)| room).collect();
    let free = fill(sizes.iter().copied(), threads);
    if rooms[0].1 == 0 {
        return (free, free);
    }
    let mut with_main = 0;
    for (at, &(room, less)) in rooms.iter().enumerate() {
        if at > 0 && rooms[at - 1] == (room, less) {
            continue;
        }
        for here in 1..=(room - less).min(threads) {
            let others = sizes.iter().enumerate().filter(|&(other, _)| other != at);
            let rest = fill(others.map(|(_, &room)| room), threads - here);
            with_main = with_main.max(pairs(here) + rest);
        }
    }
    (free, with_main.min(free))
}

/// Pairs within domains if they are filled one after the other.
fn fill(rooms: impl Iterator<Item = u32>, threads: u32) -> i64 {
    let mut left = threads;
    let mut sum = 0;
    for room in rooms {
        let here = room.min(left);
        left -= here;
        sum += pairs(here);
    }
    sum
}

/// Most pairs of threads of compact workers in units (cpus or cores) with these loads.
fn most_together(site: &Site, loads: &[u32], level: usize) -> i64 {
    let mut of_worker = vec![0u32; loads.len()];
    for party in site.parties.iter().filter(|party| party.sign < 0) {
        let mut own = vec![0u32; loads.len()];
        for &cpu in &party.cpus {
            own[usize::from(site.of[level][usize::from(cpu)])] += u32::from(party.worker_cap);
        }
        for (most, own) in of_worker.iter_mut().zip(own) {
            *most = (*most).max(own.min(party.threads as u32));
        }
    }
    // which unit has which load may differ from placement to placement, the loads as such do not
    let cap = of_worker.into_iter().max().unwrap_or(0).max(1);
    let filled = |&load: &u32| i64::from(load / cap) * pairs(cap) + pairs(load % cap);
    loads.iter().map(filled).sum()
}

/// The mains as a flow up the tree.
struct Flow<'a> {
    site: &'a Site,
    /// Cpus of each supply, most mains of it on each, how many mains it has.
    supplies: Vec<(Vec<u16>, u32, usize)>,
    core_cap: u32,
    /// Mains of each supply on each cpu.
    from: Vec<Vec<u32>>,
    /// Mains in each domain of each level.
    counts: [Vec<u32>; LEVELS],
}

impl<'a> Flow<'a> {
    fn of(site: &'a Site, core_cap: u32) -> Self {
        let mut groups: BTreeMap<&[u16], (u32, usize)> = BTreeMap::new();
        for party in &site.parties {
            let group = groups.entry(&party.cpus).or_insert((0, 0));
            group.0 += u32::from(party.rank_cap);
            group.1 += party.workers;
        }
        let mut supplies: Vec<(Vec<u16>, u32, usize)> = groups
            .into_iter()
            .map(|(cpus, (most, workers))| (cpus.to_vec(), most, workers))
            .collect();
        let edges: usize = supplies.iter().map(|(cpus, ..)| cpus.len()).sum();
        if supplies.len() > 1 && edges * site.workers > FLOW_WORK_MAX {
            let all = (0..site.cpus as u16).collect();
            supplies = vec![(all, u32::MAX, site.workers)];
        }
        Self {
            site,
            core_cap,
            from: vec![vec![0; site.cpus]; supplies.len()],
            supplies,
            counts: std::array::from_fn(|level| vec![0; site.counts[level]]),
        }
    }

    fn least_closeness(mut self) -> i64 {
        let nodes = Nodes::of(self.site, self.supplies.len());
        let mut sum = 0;
        for supply in 0..self.supplies.len() {
            for _ in 0..self.supplies[supply].2 {
                // a main without a way at all costs nothing: lower, so the bound stays one
                sum += self.push(&nodes, supply).unwrap_or(0);
            }
        }
        sum
    }

    /// Adds a main of a supply along the cheapest path; what it costs.
    fn push(&mut self, nodes: &Nodes, supply: usize) -> Option<i64> {
        if self.supplies.len() == 1 {
            return self.push_single();
        }
        let mut cost = vec![i64::MAX; nodes.count];
        let mut before = vec![usize::MAX; nodes.count];
        cost[supply] = 0;
        let mut queue = std::collections::VecDeque::from([supply]);
        let mut waits = vec![false; nodes.count];
        // bound: Bellman-Ford; residual costs have no negative cycle
        while let Some(at) = queue.pop_front() {
            waits[at] = false;
            self.edges(nodes, at, &mut |to, price| {
                let total = cost[at] + price;
                if total < cost[to] {
                    cost[to] = total;
                    before[to] = at;
                    if !std::mem::replace(&mut waits[to], true) {
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
            self.carry(nodes, at, to);
            to = at;
        }
        Some(cost[machine])
    }

    /// The only supply needs no detour: the cheapest cpu is the cheapest path.
    fn push_single(&mut self) -> Option<i64> {
        let site = self.site;
        let (cpus, most, _) = &self.supplies[0];
        let added = |cpu: usize| -> i64 {
            let held = |level: usize| self.counts[level][usize::from(site.of[level][cpu])];
            (0..LEVELS)
                .map(|level| site.gain[level] * i64::from(held(level)))
                .sum()
        };
        let open = cpus.iter().map(|&cpu| usize::from(cpu)).filter(|&cpu| {
            self.counts[0][cpu] < *most && self.counts[CORE][site.core(cpu)] < self.core_cap
        });
        let cpu = open.min_by_key(|&cpu| (added(cpu), self.counts[CORE][site.core(cpu)], cpu))?;
        let price = added(cpu);
        for (level, counts) in self.counts.iter_mut().enumerate() {
            counts[usize::from(site.of[level][cpu])] += 1;
        }
        Some(price)
    }

    /// The residual edges out of a node.
    fn edges(&self, nodes: &Nodes, at: usize, edge: &mut dyn FnMut(usize, i64)) {
        let site = self.site;
        let up = |level: usize, domain: usize| {
            let held = self.counts[level][domain];
            let open = level != CORE || held < self.core_cap;
            open.then(|| site.gain[level] * i64::from(held))
        };
        match nodes.kind(at) {
            Kind::Supply(supply) => {
                let (cpus, most, _) = &self.supplies[supply];
                for &cpu in cpus {
                    if self.from[supply][usize::from(cpu)] < *most {
                        edge(nodes.domain(0, cpu.into()), 0);
                    }
                }
            }
            Kind::Domain(level, domain) => {
                if let Some(price) = up(level, domain) {
                    edge(nodes.parent(level, domain), price);
                }
                for &child in nodes.children(level, domain) {
                    let held = self.counts[level - 1][child];
                    if held > 0 {
                        let price = site.gain[level - 1] * i64::from(held - 1);
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
            Kind::Machine => {
                for (child, &held) in self.counts[LEVELS - 1].iter().enumerate() {
                    if held > 0 {
                        let price = site.gain[LEVELS - 1] * i64::from(held - 1);
                        edge(nodes.domain(LEVELS - 1, child), -price);
                    }
                }
            }
        }
    }

    /// One main more along an edge, or one less against it.
    fn carry(&mut self, nodes: &Nodes, at: usize, to: usize) {
        match (nodes.kind(at), nodes.kind(to)) {
            (Kind::Supply(supply), Kind::Domain(_, cpu)) => self.from[supply][cpu] += 1,
            (Kind::Domain(_, cpu), Kind::Supply(supply)) => self.from[supply][cpu] -= 1,
            (Kind::Domain(level, domain), Kind::Machine) => self.counts[level][domain] += 1,
            (Kind::Machine, Kind::Domain(level, domain)) => self.counts[level][domain] -= 1,
            (Kind::Domain(a, domain), Kind::Domain(b, _)) if a < b => self.counts[a][domain] += 1,
            (Kind::Domain(..), Kind::Domain(b, domain)) => self.counts[b][domain] -= 1,
            _ => {}
        }
    }
}

enum Kind {
    Supply(usize),
    Domain(usize, usize),
    Machine,
}

/// Numbers for supplies, domains and the machine.
struct Nodes {
    supplies: usize,
    starts: [usize; LEVELS],
    count: usize,
    parents: [Vec<usize>; LEVELS],
    children: [Vec<Vec<usize>>; LEVELS],
}

impl Nodes {
    fn of(site: &Site, supplies: usize) -> Self {
        let mut starts = [0; LEVELS];
        let mut count = supplies;
        for (level, start) in starts.iter_mut().enumerate() {
            *start = count;
            count += site.counts[level];
        }
        let mut parents: [Vec<usize>; LEVELS] =
            std::array::from_fn(|level| vec![count; site.counts[level]]);
        let mut children: [Vec<Vec<usize>>; LEVELS] =
            std::array::from_fn(|level| vec![Vec::new(); site.counts[level]]);
        for cpu in 0..site.cpus {
            for level in 0..LEVELS - 1 {
                let own = usize::from(site.of[level][cpu]);
                let outer = usize::from(site.of[level + 1][cpu]);
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

    fn kind(&self, node: usize) -> Kind {
        if node < self.supplies {
            return Kind::Supply(node);
        }
        if node + 1 == self.count {
            return Kind::Machine;
        }
        let level = self.starts.partition_point(|&start| start <= node) - 1;
        Kind::Domain(level, node - self.starts[level])
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
