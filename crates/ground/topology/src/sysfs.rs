//! Parses a machine from the text of `/sys/devices/system`, live or from a copy.
//!
//! Problem: the kernel describes cores and caches by one small file per fact and cpu. Which files
//! exist depends on its version, the architecture, the firmware and the hypervisor, which often
//! hides caches or reports impossible ones. Offline cpus have no topology, and ids have gaps.
//!
//! Approach: only `cpu/online` is required. Each domain is built from the first of these sources
//! that exists:
//!
//! - core: `core_cpus_list`, `thread_siblings_list`, equal (package, die, `core_id`); otherwise one
//!   core per cpu
//! - L2: `shared_cpu_list` of the level-2 cache; if *no* cpu has one: `cluster_cpus_list`;
//!   otherwise the core
//! - L3: `shared_cpu_list` of the level-3 cache, split at NUMA nodes; if *no* cpu has one: the part
//!   of the NUMA node in the die; if other cpus have one: the L2 (hybrid laptops have a few cores
//!   outside the L3)
//! - NUMA node: `node/nodeN/cpulist`, split at packages; otherwise the package
//! - package: `physical_package_id`; otherwise one package
//! - capacity: `cpu_capacity`; otherwise `cpu_atom/cpus` and `cpu_lowpower/cpus`, which are in the
//!   parent directory; otherwise `cpufreq/cpuinfo_max_freq`; otherwise all equal (`capacities`)
//!
//! If files contradict each other, the smaller domain is trusted: sharing a core or an L2 implies
//! sharing the enclosing domains, so the larger domains are merged until cpu < core < L2 < L3 <
//! NUMA node < package is a tree, as [`Topology`] requires.
//!
//! `node/nodeN/distance` (SLIT) scales the distances between nodes; only the means within and
//! between packages are used, because distances must form a tree.

use std::collections::BTreeMap;

use crate::capacities::{SpeedFacts, members};
use crate::domains::DisjointSets;
use crate::limits::CACHE_INDEXES_MAX;
use crate::machine::NodeDistances;
use crate::{Cpu, CpuId, CpuSet, CpuSetError, Topology, TopologyError};

/// File contents by path below `/sys/devices/system` (`cpu/online`, `node/node0/cpulist`); files
/// that do not exist are absent. `cpu_atom/cpus` and `cpu_lowpower/cpus` of `/sys/devices` are
/// stored under exactly these names.
pub type SysfsFiles = BTreeMap<String, String>;

/// Error of parsing sysfs files.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SysfsError {
    /// The only required file is missing.
    #[error("cpu/online is missing")]
    NoOnline,
    /// A file does not contain a valid cpu list.
    #[error("{path} is not a list of cpus")]
    List {
        path: String,
        /// The parse error.
        source: CpuSetError,
    },
    /// The list of cpus that share a domain with a cpu does not contain that cpu.
    #[error("{path}: the list {list:?} does not contain cpu {cpu} itself")]
    MissingSelf {
        path: String,
        list: String,
        /// The missing cpu.
        cpu: CpuId,
    },
    /// A file does not contain a number.
    #[error("{path}: {text:?} is not a number")]
    Number { path: String, text: String },
    /// A row of NUMA distances does not contain positive numbers.
    #[error("{path}: {text:?} is not a list of positive distances")]
    NodeDistances { path: String, text: String },
    /// The cpus do not form a valid machine.
    #[error("the cpus of cpu/online do not form a valid machine")]
    Machine(#[from] TopologyError),
}

impl SysfsError {
    /// True if a file does not contain what the kernel writes: a copy may be incomplete.
    pub fn is_unlike_kernel(&self) -> bool {
        matches!(
            self,
            Self::MissingSelf { .. } | Self::Number { .. } | Self::NodeDistances { .. }
        )
    }
}

/// The paths that [`parse_sysfs`] reads on a machine with these online cpus and NUMA nodes (the
/// contents of `cpu/online` and `node/online`): everything that a reader or a copy needs.
pub fn sysfs_paths(online: &CpuSet, nodes: &CpuSet) -> Vec<String> {
    let mut paths: Vec<String> = ["cpu/online", "node/online"].map(str::to_owned).into();
    paths.extend(EFFICIENT_LISTS.map(str::to_owned));
    for node in nodes.iter() {
        paths.extend(["cpulist", "distance"].map(|file| format!("node/node{node}/{file}")));
    }
    for cpu in online.iter() {
        paths.extend(SPEED_FILES.map(|file| format!("cpu/cpu{cpu}/{file}")));
        paths.extend(
            TOPOLOGY_FILES
                .iter()
                .map(|file| format!("cpu/cpu{cpu}/topology/{file}")),
        );
        for index in 0..CACHE_INDEXES_MAX {
            let dir = format!("cpu/cpu{cpu}/cache/index{index}");
            paths.extend(CACHE_FILES.iter().map(|file| format!("{dir}/{file}")));
        }
    }
    paths
}

const TOPOLOGY_FILES: [&str; 6] = [
    "core_cpus_list",
    "thread_siblings_list",
    "cluster_cpus_list",
    "core_id",
    "die_id",
    "physical_package_id",
];
const CACHE_FILES: [&str; 3] = ["level", "type", "shared_cpu_list"];
const SPEED_FILES: [&str; 2] = ["cpu_capacity", "cpufreq/cpuinfo_max_freq"];
/// Lists of the slower cores of a hybrid machine.
const EFFICIENT_LISTS: [&str; 2] = ["cpu_atom/cpus", "cpu_lowpower/cpus"];

/// Parses the topology of the online cpus from `files`.
///
/// # Errors
/// `cpu/online` is missing or empty, or a file has invalid content; the error contains its path.
pub fn parse_sysfs(files: &SysfsFiles) -> Result<Topology, SysfsError> {
    let online = files.get("cpu/online").ok_or(SysfsError::NoOnline)?;
    let online: CpuSet = parse_list("cpu/online", online)?;
    let machine = SysfsReader {
        files,
        ids: online.iter().collect(),
        online,
    };
    let packages = machine.ids("physical_package_id")?;
    let nodes = machine.numa()?;
    let mut core = machine.cores(&packages)?;
    let (mut l2, with_l2) = machine.caches(2)?;
    if !with_l2 {
        l2 = machine.clusters()?;
    }
    l2.merge_over(&mut core);
    let mut numa = DisjointSets::by_key(nodes.iter().zip(&packages));
    let (l3, with_l3) = machine.caches(3)?;
    let mut l3 = if with_l3 {
        l3.split_at(&mut numa)
    } else {
        let dies = machine.ids("die_id")?;
        DisjointSets::by_key(nodes.iter().zip(&packages).zip(dies))
    };
    l3.merge_over(&mut l2);
    numa.merge_over(&mut l3);
    let mut package = DisjointSets::by_key(&packages);
    package.merge_over(&mut numa);
    let capacities = machine.speed_facts()?.capacities();
    let (core, l2, l3) = (core.numbers(), l2.numbers(), l3.numbers());
    let (numa, package) = (numa.numbers(), package.numbers());
    let distances = machine.node_distances(&nodes, &package)?;
    let cpus = machine.ids.iter().enumerate().map(|(i, &id)| Cpu {
        id,
        core: core[i],
        l2: l2[i],
        l3: l3[i],
        numa: numa[i],
        package: package[i],
        capacity: capacities[i],
    });
    let topology = Topology::new(cpus.collect())?;
    Ok(match distances {
        Some(distances) => topology.with_node_distances(&distances),
        None => topology,
    })
}

/// The files and the online cpus; results are indexed by position in `ids`.
struct SysfsReader<'a> {
    files: &'a SysfsFiles,
    online: CpuSet,
    ids: Vec<CpuId>,
}

impl SysfsReader<'_> {
    fn text(&self, path: &str) -> Option<&str> {
        let text = self.files.get(path)?;
        Some(text.trim_end_matches('\0').trim())
    }

    fn number(&self, path: &str) -> Result<Option<i64>, SysfsError> {
        let Some(text) = self.text(path) else {
            return Ok(None);
        };
        let number = text.parse().map_err(|_| SysfsError::Number {
            path: path.to_owned(),
            text: text.to_owned(),
        })?;
        Ok(Some(number))
    }

    /// Reads one topology file of every cpu; cpus without it have the common key `None`.
    fn ids(&self, file: &str) -> Result<Vec<Option<i64>>, SysfsError> {
        self.numbers(&format!("topology/{file}"))
    }

    /// Reads one file of every cpu, relative to the cpu's directory.
    fn numbers(&self, file: &str) -> Result<Vec<Option<i64>>, SysfsError> {
        let path = |cpu| format!("cpu/cpu{cpu}/{file}");
        self.ids.iter().map(|cpu| self.number(&path(cpu))).collect()
    }

    /// Positions of the online cpus in a list that must contain `cpu`, if the file exists.
    fn shared_with(&self, cpu: CpuId, path: &str) -> Result<Option<Vec<usize>>, SysfsError> {
        let Some(text) = self.text(path) else {
            return Ok(None);
        };
        let set = parse_list(path, text)?;
        if !set.contains(cpu) {
            let (path, list) = (path.to_owned(), text.to_owned());
            return Err(SysfsError::MissingSelf { path, list, cpu });
        }
        let online = set.intersection(&self.online);
        let position = |id| self.ids.binary_search(&id).ok();
        Ok(Some(online.iter().filter_map(position).collect()))
    }

    fn cores(&self, package: &[Option<i64>]) -> Result<DisjointSets, SysfsError> {
        let mut cores = DisjointSets::singletons(self.ids.len());
        let (core_id, die_id) = (self.ids("core_id")?, self.ids("die_id")?);
        let mut first_with_id = BTreeMap::new();
        for (i, &cpu) in self.ids.iter().enumerate() {
            let dir = format!("cpu/cpu{cpu}/topology");
            let mut shared = self.shared_with(cpu, &format!("{dir}/core_cpus_list"))?;
            if shared.is_none() {
                shared = self.shared_with(cpu, &format!("{dir}/thread_siblings_list"))?;
            }
            if let Some(shared) = shared {
                shared.into_iter().for_each(|other| cores.join(i, other));
            } else if let Some(id) = core_id[i] {
                let key = (package[i], die_id[i], id);
                cores.join(i, *first_with_id.entry(key).or_insert(i));
            }
        }
        Ok(cores)
    }

    /// Domains that share a data cache of this level, and whether any cpu has one.
    fn caches(&self, level: i64) -> Result<(DisjointSets, bool), SysfsError> {
        let (mut domains, mut any) = (DisjointSets::singletons(self.ids.len()), false);
        for (i, &cpu) in self.ids.iter().enumerate() {
            for index in 0..CACHE_INDEXES_MAX {
                let dir = format!("cpu/cpu{cpu}/cache/index{index}");
                let holds_data = self.text(&format!("{dir}/type")) != Some("Instruction");
                if self.number(&format!("{dir}/level"))? != Some(level) || !holds_data {
                    continue;
                }
                let path = format!("{dir}/shared_cpu_list");
                if let Some(shared) = self.shared_with(cpu, &path)? {
                    any = true;
                    shared.into_iter().for_each(|other| domains.join(i, other));
                }
            }
        }
        Ok((domains, any))
    }

    /// Clusters of cores, which share an L2 on most processors with clusters.
    fn clusters(&self) -> Result<DisjointSets, SysfsError> {
        let mut clusters = DisjointSets::singletons(self.ids.len());
        for (i, &cpu) in self.ids.iter().enumerate() {
            let path = format!("cpu/cpu{cpu}/topology/cluster_cpus_list");
            for other in self.shared_with(cpu, &path)?.unwrap_or_default() {
                clusters.join(i, other);
            }
        }
        Ok(clusters)
    }

    /// Mean distances of the nodes that have cpus; `None` if a node has no row of distances, or its
    /// length differs from the number of online nodes.
    fn node_distances(
        &self,
        nodes: &[Option<u16>],
        package: &[u32],
    ) -> Result<Option<NodeDistances>, SysfsError> {
        let Some(online) = self.text("node/online") else {
            return Ok(None);
        };
        let columns: Vec<u16> = parse_list("node/online", online)?
            .iter()
            .map(|id| id.0)
            .collect();
        let mut packages_of: BTreeMap<u16, u32> = BTreeMap::new();
        for (&node, &package) in nodes.iter().zip(package) {
            if let Some(node) = node {
                packages_of.entry(node).or_insert(package);
            }
        }
        let (mut local, mut in_package, mut remote) =
            (Mean::default(), Mean::default(), Mean::default());
        for (&from, from_package) in &packages_of {
            let path = format!("node/node{from}/distance");
            let Some(text) = self.text(&path) else {
                return Ok(None);
            };
            let row = node_row(&path, text)?;
            if row.len() != columns.len() {
                return Ok(None);
            }
            for (to, distance) in columns.iter().zip(row) {
                match packages_of.get(to) {
                    Some(_) if *to == from => local.add(distance),
                    Some(package) if package == from_package => in_package.add(distance),
                    Some(_) => remote.add(distance),
                    None => {}
                }
            }
        }
        let (in_package, remote) = (in_package.value(), remote.value());
        Ok(local.value().map(|local| NodeDistances {
            local,
            in_package,
            remote,
        }))
    }

    /// The NUMA node of every cpu; cpus in no node have the common key `None`.
    fn numa(&self) -> Result<Vec<Option<u16>>, SysfsError> {
        let mut numa = vec![None; self.ids.len()];
        for (path, text) in self.files.range("node/node".to_owned()..) {
            let Some(rest) = path.strip_prefix("node/node") else {
                break;
            };
            let node = rest.strip_suffix("/cpulist").map(str::parse::<u16>);
            let Some(Ok(node)) = node else { continue };
            for cpu in parse_list(path, text)?.iter() {
                if let Ok(i) = self.ids.binary_search(&cpu) {
                    numa[i] = Some(node);
                }
            }
        }
        Ok(numa)
    }

    fn speed_facts(&self) -> Result<SpeedFacts, SysfsError> {
        let [capacities, frequencies] = SPEED_FILES.map(|file| self.numbers(file));
        let lists = EFFICIENT_LISTS.iter().filter_map(|&path| {
            let text = self.text(path)?;
            Some(parse_list(path, text))
        });
        let lists: Vec<CpuSet> = lists.collect::<Result<_, _>>()?;
        let has_lists = !lists.is_empty();
        Ok(SpeedFacts {
            capacities: capacities?,
            frequencies: frequencies?,
            efficient: has_lists.then(|| members(&self.ids, &lists)),
        })
    }
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: u32) {
        self.sum += f64::from(value);
        self.count += 1.0;
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

/// Distances from one node to all online nodes, in order of their numbers.
fn node_row(path: &str, text: &str) -> Result<Vec<u32>, SysfsError> {
    let positive = |word: &str| word.parse().ok().filter(|&distance: &u32| distance > 0);
    let row: Option<Vec<u32>> = text.split_ascii_whitespace().map(positive).collect();
    row.ok_or_else(|| SysfsError::NodeDistances {
        path: path.to_owned(),
        text: text.to_owned(),
    })
}

fn parse_list(path: &str, text: &str) -> Result<CpuSet, SysfsError> {
    text.parse().map_err(|source| SysfsError::List {
        path: path.to_owned(),
        source,
    })
}
