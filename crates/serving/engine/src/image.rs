//! Compiled images in sealed memory, and their placement on NUMA nodes.
//!
//! Pages are allocated on the node of the thread that first writes them, so an image is written by
//! a thread that moves to the target node. The placement is read from the kernel, not assumed. On a
//! machine with one node no thread is started and nothing is read.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use albacore_os::{
    CgroupError, HostRoot, MaskError, MemoryNodes, NodeId, OsError, Pid, ReadMapping, SharedMemory,
};
use albacore_values::sentence;

use crate::limits::{COPY_MEMORY_FACTOR, IMAGE_NODE_PERCENT, MEASURED_BYTES_MIN};

/// Name of threads that write images.
pub(super) const COPY_THREAD: &str = "albf.copy";

/// The nodes of this machine, read once.
pub(super) fn memory_nodes() -> &'static MemoryNodes {
    static NODES: OnceLock<MemoryNodes> = OnceLock::new();
    NODES.get_or_init(|| {
        MemoryNodes::read(&HostRoot::live()).unwrap_or_else(|error| {
            let cause = sentence(&error);
            tracing::warn!(%cause, "NUMA nodes cannot be read: models are not copied to them");
            MemoryNodes::default()
        })
    })
}

/// An immutable image.
#[derive(Debug)]
pub(super) struct PlacedImage {
    memory: SharedMemory,
    /// The node of nearly all of its pages; `None`: several, or unknown.
    node: Option<NodeId>,
    /// Bytes in huge pages when it was written.
    huge_bytes: u64,
}

/// Reason why an image was not copied to a node.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    #[error("no thread can run on the node")]
    Mask(#[from] MaskError),
    #[error(transparent)]
    Memory(#[from] OsError),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(
        "the memory limit leaves {left} bytes, {needed} are needed: raise the limit of the container"
    )]
    MemoryLimit { left: u64, needed: u64 },
    #[error(
        "its pages are on another node: this node has no free memory, or the cpuset excludes its \
         memory"
    )]
    Elsewhere,
    #[error("the thread that copies cannot be started")]
    Thread(#[source] std::io::Error),
}

impl PlacedImage {
    /// Writes the image of a new model to the node on which the calling thread runs, if the writing
    /// thread can be pinned there.
    pub(super) fn write(bytes: &[u8]) -> Result<Self, OsError> {
        let nodes = memory_nodes();
        if !nodes.has_multiple_nodes() {
            return Self::from_bytes(bytes);
        }
        let writer = || {
            // Without pinning, the image may be spread over several nodes; this is measured.
            let moved = nodes.current().map(|node| nodes.migrate_to(node));
            if let Some(Err(error)) = moved {
                tracing::debug!(%error, "an image is written on whatever node");
            }
            Self::from_bytes(bytes)
        };
        // A separate thread, because the mask of the caller must not change; it is named so that it
        // is not mistaken for an event loop.
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name(COPY_THREAD.to_owned());
            let started = thread.spawn_scoped(scope, writer);
            let started = started.map_err(|source| OsError::Call {
                call: "clone",
                source,
            })?;
            match started.join() {
                Ok(written) => written,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Copies the image to another node. The calling thread stays pinned to that node.
    pub(super) fn copy_to(&self, node: NodeId) -> Result<Self, CopyError> {
        check_memory_limit(self.bytes())?;
        memory_nodes().migrate_to(node)?;
        let source = self.memory.map_read()?;
        let copy = Self::from_bytes(source.as_slice())?;
        match copy.node == Some(node) {
            true => Ok(copy),
            false => Err(CopyError::Elsewhere),
        }
    }

    /// Opens an image written by another front; returns it with a mapping.
    pub(super) fn open(image: OwnedFd) -> Result<(Self, ReadMapping), OsError> {
        let memory = SharedMemory::open(image)?;
        let mapping = memory.map_read()?;
        let placed = Self::from_memory(memory, &mapping);
        Ok((placed, mapping))
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, OsError> {
        let memory = SharedMemory::create_sealed("albacore-model", bytes)?;
        let mapping = memory.map_read()?;
        Ok(Self::from_memory(memory, &mapping))
    }

    fn from_memory(memory: SharedMemory, mapping: &ReadMapping) -> Self {
        let huge_bytes = match memory.bytes() {
            ..MEASURED_BYTES_MIN => Ok(0),
            _ => mapping.huge_page_bytes(),
        };
        let node = match memory_nodes() {
            nodes if nodes.has_multiple_nodes() => mapping.bytes_by_node().map(|by| main_node(&by)),
            nodes => Ok(nodes.single_node()),
        };
        let unknown = |error: OsError| {
            let cause = sentence(&error);
            tracing::warn!(
                %cause,
                "the kernel does not report the NUMA nodes of the pages of an image"
            );
        };
        Self {
            memory,
            node: node.map_err(unknown).unwrap_or_default(),
            huge_bytes: huge_bytes.map_err(unknown).unwrap_or_default(),
        }
    }

    pub(super) fn node(&self) -> Option<NodeId> {
        self.node
    }

    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes() as u64
    }

    pub(super) fn huge_page_bytes(&self) -> u64 {
        self.huge_bytes
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// An image that claims to be on a node; it contains the name of the node.
    #[cfg(test)]
    pub(super) fn on(node: Option<NodeId>) -> Self {
        Self {
            memory: SharedMemory::create_sealed("test", format!("{node:?}").as_bytes()).unwrap(),
            node,
            huge_bytes: 0,
        }
    }
}

/// The node of nearly all bytes.
fn main_node(bytes: &[(NodeId, u64)]) -> Option<NodeId> {
    let all: u64 = bytes.iter().map(|(_, bytes)| bytes).sum();
    let &(node, most) = bytes.iter().max_by_key(|(_, bytes)| bytes)?;
    (most * 100 >= all * IMAGE_NODE_PERCENT).then_some(node)
}

/// A copy beyond the memory limit of the cgroup would not fail: the kernel would kill a process.
fn check_memory_limit(bytes: u64) -> Result<(), CopyError> {
    // infallible: process ids are positive numbers of an i32.
    let pid = Pid(std::process::id() as i32);
    let host = HostRoot::live();
    let cgroup = albacore_os::find_cgroup(&host, pid)?;
    let needed = bytes.saturating_mul(COPY_MEMORY_FACTOR);
    match albacore_os::read_available_memory(&host, &cgroup)? {
        Some(left) if left < needed => Err(CopyError::MemoryLimit { left, needed }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_of_an_image_is_that_of_nearly_all_of_its_pages() {
        let of = |zero, one| main_node(&[(NodeId(0), zero), (NodeId(1), one)]);
        assert_eq!(of(99, 1), Some(NodeId(0)));
        assert_eq!(of(1, 99), Some(NodeId(1)));
        assert_eq!(of(50, 50), None);
        assert_eq!(main_node(&[]), None);
    }

    #[test]
    fn an_image_is_written_read_again_and_its_place_is_that_of_the_machine() {
        let written = PlacedImage::write(&[7; 5000]).unwrap();
        let fd = written.fd().try_clone_to_owned().unwrap();
        let (opened, mapping) = PlacedImage::open(fd).unwrap();
        assert_eq!(mapping.as_slice(), [7; 5000]);
        assert_eq!((opened.bytes(), opened.huge_page_bytes()), (5000, 0));
        if let Some(only) = memory_nodes().single_node() {
            assert_eq!((written.node(), opened.node()), (Some(only), Some(only)));
        }
    }
}
