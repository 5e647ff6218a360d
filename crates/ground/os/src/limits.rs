//! Bounds of every read and loop in this crate, each with its reason.

/// Bytes read of one small file of /proc, /sys or a cgroup. A `cmdline` may be 2 MiB, of which the
/// start says who it is; a cpu list of 8192 cpus, every second one set, is 20 KiB; `children` of a
/// process with 8,000 children is 64 KiB.
pub(crate) const FILE_BYTES_MAX: usize = 256 << 10;

/// Tasks listed of one process: the kernel's pid_max can be 4 Mi, a serving worker has tens of
/// threads.
pub(crate) const TASKS_MAX: usize = 1 << 16;

/// Levels of cgroups walked upwards: Kubernetes uses about 6, the kernel's own limit is a path of
/// 4096 bytes.
pub(crate) const CGROUP_DEPTH_MAX: usize = 64;

/// Bytes of a thread's mask as the kernel copies it: 8192 cpus, the largest NR_CPUS of a
/// distribution.
pub(crate) const MASK_BYTES: usize = 8192 / 8;

/// Events taken from one wait: more stay in the kernel for the next.
pub(crate) const EVENTS_MAX: usize = 64;

/// Bytes of one uevent datagram: the kernel's own buffer is 2 KiB.
pub(crate) const UEVENT_BYTES_MAX: usize = 8 << 10;

/// Datagrams taken from the uevent socket at once: a reading of `online` follows, so dropping the
/// rest loses nothing.
pub(crate) const UEVENTS_AT_ONCE_MAX: usize = 1024;

/// Orphans reaped at once: more stay for the next call.
pub(crate) const ORPHANS_AT_ONCE_MAX: usize = 256;

/// Bytes of one message between two processes: orders for a worker name 500 models at most.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Descriptors of one message between two processes: the kernel's own bound.
pub(crate) const MESSAGE_FDS_MAX: usize = 253;

/// Levels below the mount on which a kubelet's directory is looked for: kind in a container is on
/// the fourth.
pub(crate) const KUBEPODS_DEPTH_MAX: usize = 6;

/// Directories looked at in one walk over cgroups: a node runs some hundred pods of a few
/// containers.
pub(crate) const CGROUPS_MAX: usize = 1 << 14;

/// Bytes of a container's id or a pod's uid: today's have 64 and 36.
pub(crate) const CONTAINER_ID_BYTES_MAX: usize = 128;

/// Bytes of one process event: headers and the longest event have 100.
pub(crate) const SPAWN_BYTES_MAX: usize = 256;

/// Spawn events read at once: further ones stay in the buffer until the next read.
pub(crate) const SPAWNS_AT_ONCE_MAX: usize = 4096;

/// Buffer of process events that is asked for; the kernel gives a fifth of it without a privilege.
pub(crate) const CONNECTOR_BUFFER_BYTES: usize = 1 << 20;

/// Round trips of one batch between two cpus: some 50 us, so that reading the clock twice does not
/// count and most batches are not preempted.
pub(crate) const LATENCY_BATCH: u64 = 256;

/// Lines between two cpus that take turns: some caches are divided among the cores by address, and
/// the parts are not equally far.
pub(crate) const LATENCY_LINES: usize = 8;

/// Steps of the chain that gives the length of a clock cycle: some 10 us.
pub(crate) const CHAIN_STEPS: u32 = 1 << 14;

/// How long a cpu may take to answer another beyond the time of the measurement: more than the
/// scheduler lets a thread wait on a busy machine, and many periods of a cpu quota (100 ms each).
pub(crate) const ANSWER_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Loads of a line between looks at the clock: some 10 us, beyond any latency.
pub(crate) const SPINS: u32 = 10_000;

/// The smallest page of the supported processors: one byte of each is read to have all mapped.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Contents of fewer bytes are in no huge page: the size of one on the supported processors.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes read of a list of this process's mappings: up to 1 KiB for each of 64 Ki mappings, more
/// than the kernel allows by default.
pub(crate) const MAPS_BYTES_MAX: u64 = 64 << 20;
