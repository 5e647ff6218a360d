//! Every bound of this crate, with its reason.

/// Most cpus of a synthetic machine: as many as there are cpu ids ([`crate::CpuSet::MAX_ID`] + 1).
pub(crate) const SYNTHETIC_CPUS_MAX: u64 = 8192;

/// Longest synthetic text in bytes: an `indexes=` list of every cpu id needs about 40 KiB.
pub(crate) const SYNTHETIC_BYTES_MAX: usize = 64 * 1024;

/// Cache directories `index0`..`index15` are looked at; today's kernels write at most five per cpu.
pub(crate) const CACHE_INDEXES_MAX: u32 = 16;

/// Largest distance in clock cycles, some 300 us: no memory is that far, and sums over the pairs
/// of 16,384 threads stay far from overflow.
pub(crate) const DISTANCE_MAX: u32 = 1_000_000;

/// Longest text of a topology, in bytes: machines of regular numbering take less than 100, and 732
/// one of 128 cpus whose numbers have no pattern at all. A node publishes it in an object that etcd
/// stores every 30 s.
pub const TOPOLOGY_TEXT_BYTES_MAX: usize = 1024;

/// Most numbers of a level in such a text: as many as there are cpu ids.
pub(crate) const TOPOLOGY_TEXT_CPUS_MAX: usize = crate::CpuSet::MAX_ID as usize + 1;
