//! Limits of this crate, each with its reason.

/// Maximum cpus of a synthetic machine: the number of cpu ids ([`crate::CpuSet::MAX_ID`] + 1).
pub(crate) const SYNTHETIC_CPUS_MAX: u64 = 8192;

/// Maximum length of a synthetic string in bytes: an `indexes=` list of every cpu id needs about 40
/// KiB.
pub(crate) const SYNTHETIC_BYTES_MAX: usize = 64 * 1024;

/// The cache directories `index0`..`index15` are read; current kernels create at most five per cpu.
pub(crate) const CACHE_INDEXES_MAX: u32 = 16;

/// Maximum distance in clock cycles, some 300 us: no memory is that slow, and sums over the pairs
/// of 16,384 threads cannot overflow.
pub(crate) const DISTANCE_MAX: u32 = 1_000_000;

/// Maximum length of a topology text in bytes: regularly numbered machines need less than 100, and
/// one with 128 cpus numbered without any pattern needs 732. A node publishes it in an object that
/// etcd stores every 30 s.
pub const TOPOLOGY_TEXT_BYTES_MAX: usize = 1024;

/// Maximum numbers per level in such a text: the number of cpu ids.
pub(crate) const TOPOLOGY_TEXT_CPUS_MAX: usize = crate::CpuSet::MAX_ID as usize + 1;
