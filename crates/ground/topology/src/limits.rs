//! Every bound of this crate, with its reason.

/// Most cpus of a synthetic machine: as many as there are cpu ids ([`crate::CpuSet::MAX_ID`] + 1).
pub(crate) const SYNTHETIC_CPUS_MAX: u64 = 8192;

/// Longest synthetic text in bytes: an `indexes=` list of every cpu id needs about 40 KiB.
pub(crate) const SYNTHETIC_BYTES_MAX: usize = 64 * 1024;

/// Cache directories `index0`..`index15` are looked at; today's kernels write at most five per cpu.
pub(crate) const CACHE_INDEXES_MAX: u32 = 16;
