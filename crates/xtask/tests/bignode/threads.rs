//! The masks of the workers' threads and the CPUs that they are pinned to, read from the guest's
//! kernel.

use std::collections::{BTreeMap, BTreeSet};

use albacore_testbed::{Node, PodMasks, Task};

/// Program in the guest that reads the masks of a pod.
const PROGRAM: &str = "/albacore-testbed";

/// Topology of the CPUs.
#[derive(Debug)]
pub(crate) struct Cpus {
    /// Core and package, by CPU id.
    topology: BTreeMap<u32, (String, String)>,
}

impl Cpus {
    /// Reads all CPUs of the node from its kernel.
    pub(crate) fn read(node: &Node) -> Self {
        let place = |cpu: u32| {
            let folder = format!("/sys/devices/system/cpu/cpu{cpu}/topology");
            let read = |name: &str| node.read(&format!("{folder}/{name}")).unwrap();
            (read("thread_siblings_list"), read("physical_package_id"))
        };
        Self {
            topology: (0..8).map(|cpu| (cpu, place(cpu))).collect(),
        }
    }

    pub(crate) fn cores(&self) -> usize {
        self.topology.values().collect::<BTreeSet<_>>().len()
    }

    pub(crate) fn packages(&self) -> usize {
        let packages = self.topology.values().map(|(_, package)| package);
        packages.collect::<BTreeSet<_>>().len()
    }

    /// Whether all threads are pinned to different CPUs of their cpuset, and the main threads to
    /// different cores.
    pub(crate) fn is_placed(&self, seen: &PodMasks) -> bool {
        let allowed = list(&seen.cpuset);
        let pinned = pinned(seen);
        let cpus: BTreeSet<u32> = pinned.values().copied().collect();
        let mains = pinned.iter().filter(|(name, _)| name.ends_with(".0"));
        let mains = mains.map(|(_, cpu)| *cpu).collect();
        seen.masks.len() == THREADS
            && pinned.len() == THREADS
            && cpus.len() == THREADS
            && cpus.is_subset(&allowed)
            && self.cores_of(&mains) == WORKERS
    }

    /// Whether no two threads share a core, which is possible on a node with four cores.
    pub(crate) fn is_spread(&self, seen: &PodMasks) -> bool {
        self.cores_of(&pinned(seen).into_values().collect()) == THREADS
    }

    fn cores_of(&self, cpus: &BTreeSet<u32>) -> usize {
        let cores = cpus.iter().map(|cpu| &self.topology[cpu]);
        cores.collect::<BTreeSet<_>>().len()
    }
}

/// The threads that are pinned to one CPU.
fn pinned(seen: &PodMasks) -> BTreeMap<&str, u32> {
    let masks = seen.masks.iter();
    masks
        .filter_map(|(name, (_, mask))| Some((name.as_str(), mask.parse().ok()?)))
        .collect()
}

/// W, and W x T, of examples/fraud.yaml.
const WORKERS: usize = 2;
const THREADS: usize = 4;

/// Parses a CPU list such as `0-3,6`.
pub(crate) fn list(text: &str) -> BTreeSet<u32> {
    let ranges = text.trim().split(',').filter(|range| !range.is_empty());
    ranges
        .flat_map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            from.parse().unwrap()..=to.parse().unwrap()
        })
        .collect()
}

/// The current masks of the pod's workers.
pub(crate) fn read_masks(node: &Node, uid: &str) -> PodMasks {
    let output = node.exec(&[PROGRAM, "watch", uid]).unwrap();
    lines(&output.stdout).pop().unwrap()
}

fn lines(output: &[u8]) -> Vec<PodMasks> {
    let text = std::str::from_utf8(output).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Watches the masks of a pod until [`Watch::end`].
pub(crate) struct Watch(Task);

impl Watch {
    pub(crate) fn begin(node: &Node, uid: &str) -> Self {
        Self(node.begin(&[PROGRAM, "watch", uid]).unwrap())
    }

    /// Every state that differed from the previous one.
    pub(crate) fn end(self) -> Vec<PodMasks> {
        lines(&self.0.end().unwrap().stdout)
    }
}

/// A period without placement: the masks seen in it, and its length.
#[derive(Debug)]
pub(crate) struct Gap {
    pub(crate) ms: u64,
    pub(crate) masks: BTreeSet<String>,
}

/// The periods without placement between two placed states.
pub(crate) fn gaps(cpus: &Cpus, seen: &[PodMasks]) -> Vec<Gap> {
    let mut found = Vec::new();
    let mut open: Option<(u64, BTreeSet<String>)> = None;
    for one in seen {
        if cpus.is_placed(one) {
            if let Some((since, masks)) = open.take() {
                let ms = one.ms - since;
                found.push(Gap { ms, masks });
            }
        } else {
            let (_, masks) = open.get_or_insert_with(|| (one.ms, BTreeSet::new()));
            masks.extend(one.masks.values().map(|(_, mask)| mask.clone()));
        }
    }
    found
}
