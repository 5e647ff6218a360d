//! NUMA nodes with memory and cpus, and the placement of a mapping's pages on them.
//!
//! Pages are allocated on the node of the thread that touches them first. Memory policies are not
//! used, because containers may not set them.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use albacore_topology::CpuSet;

use crate::limits::MAPS_BYTES_MAX;
use crate::read::{parse_cpus, read_optional_text};
use crate::shared_memory::ReadMapping;
use crate::{HostRoot, MaskError, OsError, Tid, current_thread, read_mask, write_mask};

/// NUMA node id of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u16);

/// The NUMA nodes of a machine that have both memory and cpus.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryNodes(Vec<(NodeId, CpuSet)>);

impl MemoryNodes {
    /// Reads one file on a machine with one node, and one file per node on others. Empty if sysfs
    /// lists no nodes.
    ///
    /// # Errors
    /// A file exists but cannot be read or parsed.
    pub fn read(host: &HostRoot) -> Result<Self, OsError> {
        let folder = host.sys.join("devices/system/node");
        let list = |path: &Path| -> Result<CpuSet, OsError> {
            parse_cpus(path, &read_optional_text(path)?.unwrap_or_default())
        };
        let ids = list(&folder.join("has_memory"))?;
        if let (Some(only), 1) = (ids.first(), ids.len()) {
            return Ok(Self(vec![(NodeId(only.0), CpuSet::new())]));
        }
        let mut nodes = Vec::new();
        for id in ids.iter() {
            let cpus = list(&folder.join(format!("node{}/cpulist", id.0)))?;
            if !cpus.is_empty() {
                nodes.push((NodeId(id.0), cpus));
            }
        }
        Ok(Self(nodes))
    }

    /// The only node; `None` if there are several, or none is known.
    #[must_use]
    pub fn single_node(&self) -> Option<NodeId> {
        match self.0[..] {
            [(node, _)] => Some(node),
            _ => None,
        }
    }

    #[must_use]
    pub fn has_multiple_nodes(&self) -> bool {
        self.0.len() > 1
    }

    /// The node that contains all cpus of a mask.
    #[must_use]
    pub fn node_of(&self, mask: &CpuSet) -> Option<NodeId> {
        let mut nodes = self.0.iter();
        let of = nodes.find(|(_, cpus)| !mask.is_empty() && mask.is_subset(cpus));
        of.map(|&(node, _)| node)
    }

    /// The node on which the calling thread currently runs.
    #[must_use]
    pub fn current(&self) -> Option<NodeId> {
        let cpu = nix::sched::sched_getcpu().ok()?;
        let cpu = albacore_topology::CpuId(u16::try_from(cpu).ok()?);
        self.node_of(&[cpu].into_iter().collect())
    }

    /// Restricts the calling thread to the cpus of a node, within its cpuset. If the affinity mask
    /// of this process's main thread includes cpus of the node, only these are used (`albacore run
    /// --cpus`).
    ///
    /// # Errors
    /// See [`MaskError`]: the cpuset contains no cpu of the node, or a sandbox forbids the call.
    pub fn migrate_to(&self, node: NodeId) -> Result<(), MaskError> {
        let known = self.0.iter().find(|&&(known, _)| known == node);
        let cpus = known.map(|(_, cpus)| cpus.clone()).unwrap_or_default();
        // infallible: a process id is a positive i32.
        let main = Tid(std::process::id() as i32);
        let own = read_mask(&HostRoot::live(), main).unwrap_or_default();
        write_mask(current_thread(), &within_mask(cpus, &own))
    }
}

impl ReadMapping {
    /// Bytes of the mapping per node, ascending. First touches all pages that this process has not
    /// yet touched through this mapping.
    ///
    /// # Errors
    /// `/proc/self/numa_maps` cannot be read or parsed.
    pub fn bytes_by_node(&self) -> Result<Vec<(NodeId, u64)>, OsError> {
        self.touch();
        let path = Path::new("/proc/self/numa_maps");
        let text = read_maps(path)?;
        parse_numa_maps(&text, self.address())
            .ok_or_else(|| OsError::content(path, &text, "a line for each mapping"))
    }

    /// Bytes of the mapping in huge pages. First touches all pages that this process has not yet
    /// touched through this mapping. Takes milliseconds.
    ///
    /// # Errors
    /// `/proc/self/smaps` cannot be read or parsed.
    pub fn huge_page_bytes(&self) -> Result<u64, OsError> {
        self.touch();
        let path = Path::new("/proc/self/smaps");
        let text = read_maps(path)?;
        parse_smaps(&text, self.address())
            .ok_or_else(|| OsError::content(path, &text, "lines for each mapping"))
    }
}

/// The cpus that are also in `mask`, or all of them if the intersection is empty.
fn within_mask(cpus: CpuSet, mask: &CpuSet) -> CpuSet {
    let within = cpus.intersection(mask);
    if within.is_empty() { cpus } else { within }
}

fn read_maps(path: &Path) -> Result<String, OsError> {
    let mut text = String::new();
    let file = File::open(path).map(|file| file.take(MAPS_BYTES_MAX));
    let read = file.and_then(|mut file| file.read_to_string(&mut text));
    read.map_err(|source| OsError::read(path, source))?;
    Ok(text)
}

/// Parses the line of a mapping, such as `7f0000000000 default file=/memfd:m mapped=3 N0=2 N1=1
/// kernelpagesize_kB=4`.
fn parse_numa_maps(text: &str, address: usize) -> Option<Vec<(NodeId, u64)>> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let is_mapping = |start: &str| usize::from_str_radix(start, 16) == Ok(address);
    let (_, line) = lines.find(|(start, _)| is_mapping(start))?;
    let words = || line.split(' ').filter_map(|word| word.split_once('='));
    let mut sizes = words().filter(|&(key, _)| key == "kernelpagesize_kB");
    // A mapping without pages has no page size.
    let kib: u64 = sizes
        .next()
        .map_or(Some(4), |(_, size)| size.parse().ok())?;
    let pages = words().filter_map(|(key, pages)| {
        let node = key.strip_prefix('N')?.parse().ok()?;
        Some((NodeId(node), pages.parse::<u64>().ok()? * kib * 1024))
    });
    Some(pages.collect())
}

/// The value of `ShmemPmdMapped` of a mapping; 0 if missing (a kernel without huge pages).
fn parse_smaps(text: &str, address: usize) -> Option<u64> {
    let starts = |line: &str| {
        let (start, _) = line.split_once('-')?;
        usize::from_str_radix(start, 16).ok()
    };
    let mut lines = text.lines();
    lines.find(|line| starts(line) == Some(address))?;
    let mut own = lines.take_while(|line| starts(line).is_none());
    let huge = own.find_map(|line| line.strip_prefix("ShmemPmdMapped:"));
    let kib = huge.map_or(Some(0), |huge| {
        huge.trim().strip_suffix(" kB")?.trim().parse().ok()
    });
    kib.map(|kib: u64| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SharedMemory;

    #[test]
    fn nodes_are_read_and_masks_are_found_on_them() {
        let keep = tempfile::tempdir().unwrap();
        let host = HostRoot::recorded(keep.path());
        assert_eq!(MemoryNodes::read(&host).unwrap(), MemoryNodes::default());
        let write = |name: &str, text: &str| {
            let path = host.sys.join("devices/system/node").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("has_memory", "1\n");
        let one = MemoryNodes::read(&host).unwrap();
        assert_eq!(
            (one.single_node(), one.has_multiple_nodes()),
            (Some(NodeId(1)), false)
        );
        write("has_memory", "0-1,3\n");
        write("node0/cpulist", "0-3\n");
        write("node1/cpulist", "4-7\n");
        write("node3/cpulist", "\n");
        let two = MemoryNodes::read(&host).unwrap();
        assert_eq!((two.single_node(), two.has_multiple_nodes()), (None, true));
        let node = |mask: &str| two.node_of(&mask.parse().unwrap());
        assert_eq!(
            ["0", "1-3", "4,7", "3-4", "", "8"].map(node),
            [
                Some(NodeId(0)),
                Some(NodeId(0)),
                Some(NodeId(1)),
                None,
                None,
                None
            ]
        );
        assert!(two.migrate_to(NodeId(2)).is_err(), "there is no such node");
    }

    #[test]
    fn a_mask_narrows_the_cpus_of_a_node_that_it_has_some_of() {
        let set = |text: &str| -> CpuSet { text.parse().unwrap() };
        let within = |mask| within_mask(set("4-7"), &set(mask));
        assert_eq!(
            ["0-63", "2-5", "0-3", ""].map(within),
            ["4-7", "4-5", "4-7", "4-7"].map(set)
        );
    }

    #[test]
    fn pages_are_counted_for_the_requested_mapping() {
        let text = "7f01 default file=/memfd:m mapped=3 N0=2 N1=1 kernelpagesize_kB=4\n\
                    7f02 default\n7f03 interleave:0-1 anon=1 dirty=1 N1=1 kernelpagesize_kB=2048\n";
        let of = |address| parse_numa_maps(text, address);
        let bytes = vec![(NodeId(0), 8192), (NodeId(1), 4096)];
        assert_eq!(of(0x7f01), Some(bytes));
        assert_eq!(of(0x7f02), Some(Vec::new()));
        assert_eq!(of(0x7f03), Some(vec![(NodeId(1), 2 << 20)]));
        assert_eq!(of(0x7f04), None);
        let text = "7f01-7f02 r--s 0 00:01 5 /memfd:m\nRss: 8 kB\nShmemPmdMapped:     2048 kB\n\
                    7f02-7f03 r--p 0 00:01 5 /x\nRss: 4 kB\n";
        let of = |address| parse_smaps(text, address);
        let known = (of(0x7f01), of(0x7f02), of(0x7f03));
        assert_eq!(known, (Some(2 << 20), Some(0), None));
    }

    #[test]
    fn every_page_of_a_mapping_lies_somewhere() {
        let memory = SharedMemory::create_sealed("test", &[1; 40_000]).unwrap();
        let mapping = memory.map_read().unwrap();
        let bytes = mapping.bytes_by_node().unwrap();
        assert_eq!(bytes.iter().map(|(_, bytes)| bytes).sum::<u64>(), 40_960);
        assert_eq!(mapping.huge_page_bytes().unwrap(), 0);
    }
}
