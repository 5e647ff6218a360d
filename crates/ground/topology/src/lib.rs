//! What a machine's cpus are and how far apart they lie. Pure: text in, values out; no file is ever
//! opened here.
#![forbid(unsafe_code)]

mod cpuset;
mod domains;
mod limits;
mod machine;
mod synthetic;
mod sysfs;

pub use cpuset::{CpuId, CpuSet, CpuSetError};
pub use machine::{CoreKind, Cpu, Distances, Topology, TopologyError};
pub use synthetic::{SyntheticError, parse_synthetic};
pub use sysfs::{SysfsError, SysfsText, parse_sysfs, sysfs_paths};
