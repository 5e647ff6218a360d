//! Limits of every read and loop in this crate, each with its reason.

/// Maximum bytes read from one small file of procfs, sysfs or a cgroup. A `cmdline` may have 2 MiB,
/// whose start identifies the process; a cpu list of 8192 cpus with every second one set has 20
/// KiB; `children` of a process with 8,000 children has 64 KiB.
pub(crate) const FILE_BYTES_MAX: usize = 256 << 10;

/// Maximum tasks listed per process: the kernel's pid_max can be 4 Mi; a serving worker has tens of
/// threads.
pub(crate) const TASKS_MAX: usize = 1 << 16;

/// Maximum levels of cgroups walked upwards: Kubernetes uses about 6; the kernel limits a path to
/// 4096 bytes.
pub(crate) const CGROUP_DEPTH_MAX: usize = 64;

/// Bytes of an affinity mask in system calls: 8192 cpus, the largest NR_CPUS of a distribution.
pub(crate) const MASK_BYTES: usize = 8192 / 8;

/// Events returned by one wait: the rest stays in the kernel for the next.
pub(crate) const EVENTS_MAX: usize = 64;

/// Maximum bytes of a uevent datagram: the kernel's own buffer is 2 KiB.
pub(crate) const UEVENT_BYTES_MAX: usize = 8 << 10;

/// Datagrams read from the uevent socket per call: `online` is read afterwards, so dropping the
/// rest loses nothing.
pub(crate) const UEVENTS_AT_ONCE_MAX: usize = 1024;

/// Orphans reaped per call: the rest is reaped by the next call.
pub(crate) const ORPHANS_AT_ONCE_MAX: usize = 256;

/// Maximum bytes of one message between two processes: a command for a worker lists at most 500
/// models.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Maximum descriptors per message: the kernel's own limit (SCM_MAX_FD).
pub(crate) const MESSAGE_FDS_MAX: usize = 253;

/// Levels below the mount point that are searched for a kubelet's directory: kind in a container
/// uses the fourth.
pub(crate) const KUBEPODS_DEPTH_MAX: usize = 6;

/// Directories visited per walk over cgroups: a node runs some hundred pods of a few containers.
pub(crate) const CGROUPS_MAX: usize = 1 << 14;

/// Maximum bytes of a container id or pod uid: today's have 64 and 36.
pub(crate) const CONTAINER_ID_BYTES_MAX: usize = 128;

/// Maximum bytes of one process event: headers and the longest event have 100.
pub(crate) const SPAWN_BYTES_MAX: usize = 256;

/// Spawn events read per call: the rest stays in the receive buffer.
pub(crate) const SPAWNS_AT_ONCE_MAX: usize = 4096;

/// Requested receive buffer for process events; without a privilege the kernel grants a fifth.
pub(crate) const CONNECTOR_BUFFER_BYTES: usize = 1 << 20;

/// Round trips per batch between two cpus: some 50 us, so that the overhead of two clock reads is
/// negligible and most batches are not preempted.
pub(crate) const LATENCY_BATCH: u64 = 256;

/// Cache lines used in turn between two cpus: some caches are sliced by address across the cores,
/// and the slices are at different distances.
pub(crate) const LATENCY_LINES: usize = 8;

/// Steps of the instruction chain that measures the duration of a clock cycle: some 10 us.
pub(crate) const CHAIN_STEPS: u32 = 1 << 14;

/// Maximum time for a reply of the other cpu beyond the measurement: longer than a thread waits in
/// the run queue of a busy machine, and many periods of a CPU quota (100 ms each).
pub(crate) const ANSWER_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Loads of a line between clock reads: some 10 us, longer than any latency.
pub(crate) const SPINS: u32 = 10_000;

/// Smallest page size of the supported processors: one byte of each page is read to fault in all of
/// them.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Content below this size uses no huge page: the size of one on the supported processors.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Maximum bytes read of this process's list of mappings: up to 1 KiB for each of 64 Ki mappings,
/// more than the default vm.max_map_count.
pub(crate) const MAPS_BYTES_MAX: u64 = 64 << 20;
