//! Topology of a machine's cpus and the distances between them. Pure: parses text and opens no
//! files.
#![forbid(unsafe_code)]

mod capacities;
mod cpuset;
mod distances;
mod distances_file;
mod domains;
mod level;
pub mod limits;
mod machine;
mod run_length;
mod synthetic;
mod sysfs;
mod topology_text;

pub use capacities::CAPACITY_MAX;
pub use cpuset::{CpuId, CpuSelectionError, CpuSet, CpuSetError};
pub use distances::{DistanceOverrides, Distances, DistancesError};
pub use distances_file::{DistanceMatrix, DistancesFile, DistancesFileError};
pub use level::Level;
pub use machine::{Cpu, Topology, TopologyError};
pub use run_length::{RunLengthError, decode_run_length, encode_run_length};
pub use synthetic::{SyntheticError, parse_synthetic};
pub use sysfs::{SysfsError, SysfsFiles, parse_sysfs, sysfs_paths};
pub use topology_text::{TopologyTextError, parse_topology_text, topology_text};
