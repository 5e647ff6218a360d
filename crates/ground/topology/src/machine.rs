//! Topology of a machine: which cpus share which caches, cores, NUMA nodes and packages.

use crate::{CAPACITY_MAX, CpuId, CpuSet, Distances, Level};

/// One online cpu and its domains.
///
/// `core`, `l2`, `l3`, `numa` and `package` are the numbers of domains of the *machine*, dense from
/// 0 in order of their lowest cpu; two cpus share a domain if and only if the numbers are equal. If
/// sysfs has no entry for a cache, the next smaller known domain is used (no L2: the core; no L3:
/// the part of the NUMA node in the die; no L3 for a few cores of a machine that has one, as in
/// some laptops: their L2). An L3 that spans NUMA nodes (sub-NUMA clusters) is split per node, and
/// a NUMA node that spans packages (interleaved memory) is split per package.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cpu {
    pub id: CpuId,
    /// Physical core; cpus of one core share L1.
    pub core: u32,
    /// L2 domain.
    pub l2: u32,
    /// L3 domain.
    pub l3: u32,
    /// NUMA node, or the part of it in one package.
    pub numa: u32,
    /// Package (socket).
    pub package: u32,
    /// Speed of its core relative to the machine's fastest cores, which have [`CAPACITY_MAX`];
    /// equal for all cores whose speed differs by no more than turbo bins.
    pub capacity: u16,
}

/// Mean distances between NUMA nodes as reported by firmware (ACPI SLIT), where a node's distance
/// to itself is `local`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct NodeDistances {
    pub(crate) local: f64,
    /// Between two nodes of one package; `None` if no package has two.
    pub(crate) in_package: Option<f64>,
    /// Between nodes of two packages; `None` if there is one package.
    pub(crate) remote: Option<f64>,
}

impl NodeDistances {
    /// The default distances, with remote nodes scaled by the ratio of remote to local distance
    /// reported by firmware.
    fn scale(&self) -> Distances {
        let default = Distances::default();
        let scaled = |mean: Option<f64>| {
            let times = |mean: f64| (f64::from(default.numa) * mean / self.local).round() as u32;
            mean.map(times)
        };
        let machine = scaled(self.remote).map_or(default.machine, |far| far.max(default.numa));
        let package = scaled(self.in_package).map_or(default.package, |far| far.max(default.numa));
        Distances {
            package: package.min(machine),
            machine,
            ..default
        }
    }
}

/// Reason why a set of cpus is not a valid machine.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyError {
    /// There is no cpu.
    #[error("the topology has no online cpu")]
    NoCpus,
    /// The same id appears twice.
    #[error("cpu {cpu} appears twice")]
    Twice { cpu: CpuId },
    /// A domain is not inside the next larger one, so the distances would not form a tree.
    #[error("cpus {a} and {b} share a {inner} but not a {outer}")]
    NotNested {
        /// One cpu of the smaller domain.
        a: CpuId,
        b: CpuId,
        /// Name of the smaller domain.
        inner: &'static str,
        /// Name of the larger domain.
        outer: &'static str,
    },
}

/// The online cpus of a machine, sorted by id. Immutable; cpu < core < L2 < L3 < NUMA node <
/// package < machine form a tree.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Topology {
    cpus: Vec<Cpu>,
    /// Measured distances, or the defaults scaled by those of its NUMA nodes; `None` if neither is
    /// known.
    distances: Option<Distances>,
}

impl Topology {
    /// Creates a machine from its cpus.
    ///
    /// # Errors
    /// There is no cpu, an id is repeated, or domains are not nested.
    pub fn new(mut cpus: Vec<Cpu>) -> Result<Self, TopologyError> {
        cpus.sort_by_key(|cpu| cpu.id);
        if cpus.is_empty() {
            return Err(TopologyError::NoCpus);
        }
        for pair in cpus.windows(2) {
            if pair[0].id == pair[1].id {
                return Err(TopologyError::Twice { cpu: pair[0].id });
            }
        }
        check_nested(&cpus, ("core", |c| c.core), ("L2", |c| c.l2))?;
        check_nested(&cpus, ("L2", |c| c.l2), ("L3", |c| c.l3))?;
        check_nested(&cpus, ("L3", |c| c.l3), ("NUMA node", |c| c.numa))?;
        check_nested(&cpus, ("NUMA node", |c| c.numa), ("package", |c| c.package))?;
        Ok(Self {
            cpus,
            distances: None,
        })
    }

    /// Applies the NUMA distances reported by firmware.
    pub(crate) fn with_node_distances(self, nodes: &NodeDistances) -> Self {
        self.with_distances(nodes.scale())
    }

    /// Distances of this machine unless a deployment overrides them: measured ones, otherwise the
    /// defaults, scaled by the distances of its NUMA nodes if
    /// [`has_node_distances`](Self::has_node_distances).
    pub fn distances(&self) -> Distances {
        self.distances.unwrap_or_default()
    }

    /// True if the distances between its NUMA nodes are known.
    pub fn has_node_distances(&self) -> bool {
        self.distances.is_some()
    }

    /// Applies measured distances.
    pub fn with_distances(self, distances: Distances) -> Self {
        let distances = Some(distances);
        Self { distances, ..self }
    }

    /// Number of NUMA nodes with cpus.
    pub fn node_count(&self) -> usize {
        let nodes: std::collections::BTreeSet<u32> = self.cpus.iter().map(|cpu| cpu.numa).collect();
        nodes.len()
    }

    /// The cpus, sorted by id.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The ids of all cpus.
    pub fn cpuset(&self) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// The cpu with this id, if it is online.
    pub fn cpu(&self, id: CpuId) -> Option<&Cpu> {
        self.cpus
            .binary_search_by_key(&id, |cpu| cpu.id)
            .ok()
            .map(|i| &self.cpus[i])
    }

    /// True if all cores are equally fast.
    pub fn is_uniform(&self) -> bool {
        let mut pairs = self.cpus.windows(2);
        pairs.all(|pair| pair[0].capacity == pair[1].capacity)
    }

    /// Number of physical cores.
    pub fn core_count(&self) -> usize {
        let mut cores: Vec<u32> = self.cpus.iter().map(|cpu| cpu.core).collect();
        cores.sort_unstable();
        cores.dedup();
        cores.len()
    }

    /// The part of the machine that a container with this `cpuset` may use; domains keep their
    /// numbers.
    ///
    /// # Errors
    /// [`TopologyError::NoCpus`] if no cpu of `cpuset` is online.
    pub fn restrict(&self, cpuset: &CpuSet) -> Result<Self, TopologyError> {
        let cpus = self.cpus.iter().filter(|cpu| cpuset.contains(cpu.id));
        let restricted = Self::new(cpus.copied().collect())?;
        Ok(Self {
            distances: self.distances,
            ..restricted
        })
    }

    /// Distance between two cpus, in clock cycles.
    pub fn distance(a: &Cpu, b: &Cpu, distances: &Distances) -> u32 {
        distances.at(Level::of(a, b))
    }

    /// [`hash64`](Self::hash64) as 16 hexadecimal digits.
    pub fn hash_hex(&self) -> String {
        format!("{:016x}", self.hash64())
    }

    /// FNV-1a hash of all cpus: equal for equal machines, across builds and runs.
    pub fn hash64(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut update = |value: u32| {
            for byte in value.to_le_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        };
        for cpu in &self.cpus {
            for value in [
                cpu.id.0.into(),
                cpu.core,
                cpu.l2,
                cpu.l3,
                cpu.numa,
                cpu.package,
            ] {
                update(value);
            }
            // 0 for the fastest cores.
            update(CAPACITY_MAX.abs_diff(cpu.capacity).into());
        }
        hash
    }
}

type NestedDomain = (&'static str, fn(&Cpu) -> u32);

fn check_nested(
    cpus: &[Cpu],
    inner: NestedDomain,
    outer: NestedDomain,
) -> Result<(), TopologyError> {
    let mut sorted: Vec<&Cpu> = cpus.iter().collect();
    sorted.sort_by_key(|cpu| (inner.1)(cpu));
    for pair in sorted.windows(2) {
        if (inner.1)(pair[0]) == (inner.1)(pair[1]) && (outer.1)(pair[0]) != (outer.1)(pair[1]) {
            let (a, b) = (pair[0].id, pair[1].id);
            return Err(TopologyError::NotNested {
                a,
                b,
                inner: inner.0,
                outer: outer.0,
            });
        }
    }
    Ok(())
}
