//! What a machine's cpus are and how far apart they lie. Pure: text in, values out; no file is ever opened here.
#![forbid(unsafe_code)]

mod cpuset;
mod machine;

pub use cpuset::{CpuId, CpuSet, CpuSetError};
pub use machine::{CoreKind, Cpu, Distances, Topology, TopologyError};
