//! Access to the kernel: procfs, sysfs, cgroups, affinity masks, process events. The only crate
//! that makes system calls.
//!
//! Readers take a [`HostRoot`], so that they also run on recorded trees.

mod cgroup;
mod cgroup_subtree;
mod channel;
mod child;
mod clock;
mod connector;
mod core_latency;
mod cpus;
mod descriptors;
mod error;
mod existing_file;
mod fifo;
mod fifo_reader;
pub mod futex;
mod heap;
mod host;
mod inotify;
mod kubepods;
mod limits;
mod mask;
mod memory_limit;
mod memory_nodes;
mod permission;
mod pidfd;
mod poll;
mod priority;
mod probe;
mod process;
mod quota;
mod read;
mod receive_timestamps;
mod shared_memory;
mod signals;
mod spawn;
mod stat;
mod sysfs_tree;
mod terminal;
mod timer;
mod uevent;
mod usage;

pub use albacore_values::{Micros, Pid, Tid};

pub use cgroup::{
    Cgroup, CgroupError, CgroupVersion, EffectiveCpuset, EffectiveCpusetFile, find_cgroup,
};
pub use cgroup_subtree::CgroupSubtree;
pub use channel::{Channel, ReceivedMessage};
pub use child::{Child, ChildOutput, Exit, current_thread, inherited_fd, set_thread_name};
pub use clock::Clock;
pub use connector::{ConnectorError, ProcConnector, SpawnEvent};
pub use core_latency::{CoreLatency, CoreLatencyError, measure_latency};
pub use cpus::{SchedExt, read_online, read_sched_ext};
pub use descriptors::{raise_descriptor_limit, read_descriptor_limit};
pub use error::OsError;
pub use existing_file::open_existing;
pub use fifo::{LineFifo, WriteStatus};
pub use fifo_reader::FifoReader;
pub use heap::{collect_mimalloc, map_large_allocations, release_free_memory};
pub use host::HostRoot;
pub use inotify::FileWatch;
pub use kubepods::{
    Container, CpuIsolation, Kubepods, KubepodsError, Members, Neighbors, read_members,
};
pub use mask::{MaskError, read_mask, write_mask};
pub use memory_limit::read_available_memory;
pub use memory_nodes::{MemoryNodes, NodeId};
pub use permission::{Pinning, is_read_only, probe_pinning, read_hidepid};
pub use pidfd::PidFd;
pub use poll::{Poll, PollKey, Waker};
pub use priority::{
    PriorityChange, lower_thread_priority, raise_thread_priority, shorten_time_slice,
};
pub use probe::{MaskRestoration, probe_mask_restoration};
pub use process::{
    LastPid, TaskDirectory, ThreadOwner, read_children, read_cmdline, read_comm, read_stat,
    read_task_comm, read_task_stat, read_tasks, read_thread_owner,
};
pub use quota::{CpuQuota, quota_files, read_cpu_quota};
pub use receive_timestamps::{TimestampedRead, TimestampedReader, enable_receive_timestamps};
pub use shared_memory::{Extent, FUTEX_BYTES, ReadMapping, SharedMemory, Words};
pub use signals::Signals;
pub use spawn::{CommandSpec, SpawnOutput, become_subreaper, reap_orphans};
pub use stat::{Stat, StatError, parse_stat};
pub use sysfs_tree::{TopologyReadError, read_topology};
pub use terminal::terminal_lines;
pub use timer::Timer;
pub use uevent::UeventSocket;
pub use usage::{ProcessUsage, ThreadTimes, read_task_demand, read_thread_times, read_usage};
