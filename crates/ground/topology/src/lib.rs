//! What a machine's cpus are and how far apart they lie. Pure: text in, values out; no file is ever
//! opened here.
#![forbid(unsafe_code)]

mod capacities;
mod cpuset;
mod distances;
mod distances_file;
mod domains;
mod level;
mod limits;
mod machine;
mod synthetic;
mod sysfs;

pub use capacities::CAPACITY_MAX;
pub use cpuset::{CpuId, CpuSet, CpuSetError};
pub use distances::{DistanceOverrides, Distances, DistancesError};
pub use distances_file::{DistanceMatrix, DistancesFile, DistancesFileError};
pub use level::Level;
pub use machine::{Cpu, Topology, TopologyError};
pub use synthetic::{SyntheticError, parse_synthetic};
pub use sysfs::{SysfsError, SysfsText, parse_sysfs, sysfs_paths};
