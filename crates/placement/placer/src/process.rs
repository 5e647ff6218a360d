//! One live process of a subject, with its threads as last read.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd};

use albacore_os::{
    Clock, HostRoot, MaskError, Micros, OsError, Pid, PidFd, TaskDirectory, Tid, read_cmdline,
    read_descriptor_limit, read_mask, read_stat, read_task_comm, read_task_demand, read_task_stat,
    read_tasks,
};
use albacore_plan::limits::BUSY_TICKS;
use albacore_plan::{
    ObservedThread, Process, ProcessId, ThreadId, parse_front_thread_name, parse_thread_name,
};
use albacore_solver::Slot;
use albacore_topology::CpuSet;

use crate::limits::{DESCRIPTORS_SPARED, EXEC_TIME_MAX, LOAD_PERIOD, THREADS_MAX};
use crate::thread_load::ThreadLoad;

/// An interval in which nothing was spawned on the whole machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NoSpawnInterval {
    pub(crate) since: Micros,
    pub(crate) until: Micros,
}

/// A live thread, as last read.
#[derive(Clone, Debug)]
pub(crate) struct CachedThread {
    pub(crate) id: ThreadId,
    pub(crate) comm: String,
    pub(crate) mask: CpuSet,
    pub(crate) cpu_ticks: u64,
    /// Lower bound of its start time.
    pub(crate) not_before: Micros,
    /// When the mask was last read.
    pub(crate) read_at: Micros,
    pub(crate) load: ThreadLoad,
}

/// A live process, as last read.
#[derive(Debug)]
pub(crate) struct LiveProcess {
    pub(crate) id: ProcessId,
    pub(crate) parent: Pid,
    cmdline: String,
    pub(crate) threads: BTreeMap<Tid, CachedThread>,
    /// Signals the exit; `None` on recordings and when descriptors are exhausted: then exits are
    /// found by scans.
    pub(crate) pidfd: Option<PidFd>,
    /// True once the pidfd was added to the poll set.
    pub(crate) is_watched: bool,
    directory: Option<TaskDirectory>,
    /// A thread may still change its name.
    may_rename: bool,
    count: u64,
    listed_at: Micros,
    pub(crate) not_before: Micros,
    /// When the loads of its threads were last read.
    loads_read_at: Micros,
}

/// Context for reading processes.
#[derive(Clone, Debug)]
pub(crate) struct ProcessReader {
    pub(crate) host: HostRoot,
    pub(crate) clock: Clock,
    /// Descriptors with this number or above are not kept open, which reserves the rest for reading
    /// and for other code.
    pub(crate) descriptors: i32,
}

impl ProcessReader {
    /// Creates a reader for a root, within the descriptor limit of this process.
    pub(crate) fn new(host: HostRoot) -> Result<Self, OsError> {
        let limit = read_descriptor_limit()?;
        let spare = DESCRIPTORS_SPARED.min(limit / 2);
        Ok(Self {
            host,
            clock: Clock::new()?,
            descriptors: i32::try_from(limit - spare).unwrap_or(i32::MAX),
        })
    }

    /// Keeps a descriptor open, unless few are left: its information is then obtained by polling.
    fn keep<F: AsFd>(&self, opened: Result<F, OsError>) -> Option<F> {
        // The kernel assigns the lowest free descriptor, so a high number means that few are left.
        let few = |fd: &F| fd.as_fd().as_raw_fd() >= self.descriptors;
        opened.ok().filter(|fd| !few(fd))
    }
}

/// True if a process that started at or after `not_before` may still exec.
pub(crate) fn is_young(not_before: Micros, now: Micros) -> bool {
    now.0.saturating_sub(not_before.0) < EXEC_TIME_MAX.as_micros() as u64
}

impl LiveProcess {
    /// Reads a process for the first time; `None` if it has already exited. `not_before` is a lower
    /// bound of its start time.
    pub(crate) fn read(
        reader: &ProcessReader,
        pid: Pid,
        not_before: Micros,
    ) -> Result<Option<Self>, OsError> {
        let host = &reader.host;
        // The pidfd is opened first: data read afterwards belongs to the process of the pidfd, or
        // its exit will be reported.
        let pidfd = if host.is_live() {
            reader.keep(PidFd::open(pid))
        } else {
            None
        };
        let stat = unless_gone(read_stat(host, pid))?.filter(|stat| !stat.is_dead());
        let Some(stat) = stat else { return Ok(None) };
        let id = ProcessId {
            start_ticks: stat.start_ticks,
            pid,
        };
        let mut process = Self {
            id,
            parent: Pid(stat.parent),
            cmdline: String::new(),
            threads: BTreeMap::new(),
            pidfd,
            is_watched: false,
            may_rename: true,
            directory: if host.is_live() {
                reader.keep(TaskDirectory::open(host, pid))
            } else {
                None
            },
            count: 0,
            listed_at: not_before,
            not_before: not_before.max(reader.clock.ticks_to_micros(stat.start_ticks)),
            loads_read_at: Micros(0),
        };
        process.read_cmdline(reader)?;
        let is_alive = process.read_threads(reader, NoSpawnInterval::default())?;
        Ok(is_alive.then_some(process))
    }

    pub(crate) fn pid(&self) -> Pid {
        self.id.pid
    }

    /// Reads the command line again, because an exec changes it.
    pub(crate) fn read_cmdline(&mut self, reader: &ProcessReader) -> Result<bool, OsError> {
        let read = unless_gone(read_cmdline(&reader.host, self.pid()))?;
        let Some(cmdline) = read.filter(|cmdline| *cmdline != self.cmdline) else {
            return Ok(false);
        };
        self.cmdline = cmdline;
        Ok(true)
    }

    /// True if the process is young enough that an exec may be expected.
    pub(crate) fn may_exec(&self, now: Micros) -> bool {
        is_young(self.not_before, now)
    }

    /// True if the number of threads may differ from the last listing.
    pub(crate) fn has_other_count(&self) -> bool {
        match &self.directory {
            Some(directory) => directory.thread_count().ok() != Some(self.count),
            None => true,
        }
    }

    /// Lists the threads and reads new ones; false if the process has exited.
    pub(crate) fn read_threads(
        &mut self,
        reader: &ProcessReader,
        no_spawns: NoSpawnInterval,
    ) -> Result<bool, OsError> {
        let host = &reader.host;
        let now = reader.clock.now()?;
        let Some(tids) = unless_gone(read_tasks(host, self.pid()))? else {
            return Ok(false);
        };
        let horizon = if self.listed_at >= no_spawns.since {
            self.listed_at.max(no_spawns.until)
        } else {
            self.listed_at
        };
        self.count = tids.len() as u64;
        self.listed_at = now;
        self.threads
            .retain(|tid, _| tids.binary_search(tid).is_ok());
        for tid in tids.into_iter().take(THREADS_MAX) {
            // If the tid has been reused since it was listed, the step for the old thread detects
            // it.
            if self.threads.contains_key(&tid) {
                continue;
            }
            if let Some(known) = read_thread(reader, self.id, tid, horizon)? {
                self.threads.insert(tid, known);
                self.may_rename = true;
            }
        }
        Ok(true)
    }

    /// Records the start time of a thread, which is now known more precisely than from its start
    /// ticks.
    pub(crate) fn record_spawn(&mut self, tid: Tid, at: Micros) {
        if tid.0 == self.id.pid.0 {
            self.not_before = self.not_before.max(at);
        }
        if let Some(known) = self.threads.get_mut(&tid) {
            known.not_before = known.not_before.max(at);
        }
    }

    /// Removes a thread that has exited, so that the next listing checks its tid again.
    pub(crate) fn forget_thread(&mut self, tid: Tid) {
        self.threads.remove(&tid);
        self.count = u64::MAX;
    }

    /// Reads the masks of all threads again; true if one has changed, or a thread has exited.
    pub(crate) fn read_masks(&mut self, reader: &ProcessReader) -> Result<bool, OsError> {
        let now = reader.clock.now()?;
        let mut differs = false;
        let mut gone = Vec::new();
        for (&tid, known) in &mut self.threads {
            match read_mask(&reader.host, tid) {
                Ok(mask) => {
                    if mask != known.mask {
                        differs = true;
                        known.mask = mask;
                    }
                    known.read_at = now;
                }
                Err(MaskError::Gone { .. }) => gone.push(tid),
                // If a mask cannot be read, the previous one is kept; `read_at` shows its age.
                Err(_) => {}
            }
        }
        for &tid in &gone {
            // If the thread was replaced at the same time, the thread count is unchanged.
            self.forget_thread(tid);
        }
        Ok(differs || !gone.is_empty())
    }

    /// Reads the CPU times of all threads again, to distinguish compute threads from idle ones;
    /// true if there is a new compute thread.
    pub(crate) fn read_cpu_times(&mut self, reader: &ProcessReader) -> bool {
        let mut is_new = false;
        for (&tid, known) in &mut self.threads {
            // A thread that has exited keeps its last time until the next listing.
            if let Ok(stat) = read_task_stat(&reader.host, self.id.pid, tid) {
                is_new |= known.cpu_ticks < BUSY_TICKS && stat.cpu_ticks >= BUSY_TICKS;
                known.cpu_ticks = stat.cpu_ticks;
            }
        }
        is_new
    }

    /// Reads the load of the threads, once per period; true if it was read.
    pub(crate) fn read_loads(&mut self, reader: &ProcessReader, now: Micros) -> bool {
        if now.0.saturating_sub(self.loads_read_at.0) < LOAD_PERIOD.as_micros() as u64 {
            return false;
        }
        self.loads_read_at = now;
        for (&tid, known) in &mut self.threads {
            // A thread that has exited is removed by the next listing.
            if let Ok(demand) = read_demand(reader, self.id.pid, tid) {
                known.load.record(demand, now);
            }
        }
        true
    }

    /// Reads the names of threads spawned after `since` whose names do not identify their function
    /// yet; true if one does now.
    pub(crate) fn read_names(&mut self, reader: &ProcessReader, since: Micros) -> bool {
        let mut is_named = false;
        for tid in self.unnamed(since) {
            // A thread that has exited has no name and is removed by the next listing.
            if let Ok(comm) = read_task_comm(&reader.host, self.id.pid, tid)
                && let Some(known) = self.threads.get_mut(&tid)
                && comm != known.comm
            {
                is_named |= claim(&comm).is_some();
                known.comm = comm;
            }
        }
        is_named
    }

    /// True if the name of a thread spawned after `since` does not identify its function yet.
    pub(crate) fn awaits_names(&mut self, since: Micros) -> bool {
        if self.may_rename {
            self.may_rename = !self.unnamed(since).is_empty();
        }
        self.may_rename
    }

    /// True if a thread is named as an event loop of the front end.
    pub(crate) fn is_front(&self) -> bool {
        let mut names = self.threads.values().map(|known| &known.comm);
        names.any(|comm| parse_front_thread_name(comm).is_some())
    }

    /// Threads spawned after `since` whose names are unknown or equal to that of an older thread,
    /// because a new thread has the name of its parent thread until it sets its own.
    fn unnamed(&self, since: Micros) -> Vec<Tid> {
        let mut taken = BTreeSet::new();
        let mut by_birth: Vec<&CachedThread> = self.threads.values().collect();
        by_birth.sort_by_key(|known| known.id);
        by_birth.retain(|known| {
            let is_named = claim(&known.comm).is_some_and(|claim| taken.insert(claim));
            !is_named && known.not_before >= since
        });
        by_birth.iter().map(|known| known.id.tid).collect()
    }

    /// Converts the process to a value.
    pub(crate) fn observed(&self) -> Process {
        let thread = |known: &CachedThread| ObservedThread {
            id: known.id,
            comm: known.comm.clone(),
            mask: known.mask.clone(),
            cpu_ticks: known.cpu_ticks,
        };
        Process {
            id: self.id,
            not_before: self.not_before,
            parent: self.parent,
            cmdline: self.cmdline.clone(),
            threads: self.threads.values().map(thread).collect(),
        }
    }
}

/// The function that a thread name claims: a slot or an event loop.
fn claim(comm: &str) -> Option<Result<Slot, u16>> {
    let slot = parse_thread_name(comm).map(Ok);
    slot.or_else(|| parse_front_thread_name(comm).map(Err))
}

/// Maps an error to `None` if the process or thread no longer exists.
pub(crate) fn unless_gone<T>(read: Result<T, OsError>) -> Result<Option<T>, OsError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.is_gone() => Ok(None),
        Err(e) => Err(e),
    }
}

/// Time for which a thread was running or waiting in a run queue; only the running time if waiting
/// is not measured.
fn read_demand(reader: &ProcessReader, pid: Pid, tid: Tid) -> Result<Micros, OsError> {
    if let Some(demand) = read_task_demand(&reader.host, pid, tid)? {
        return Ok(demand);
    }
    let stat = read_task_stat(&reader.host, pid, tid)?;
    Ok(reader.clock.ticks_to_micros(stat.cpu_ticks))
}

fn read_thread(
    reader: &ProcessReader,
    process: ProcessId,
    tid: Tid,
    horizon: Micros,
) -> Result<Option<CachedThread>, OsError> {
    let pid = process.pid;
    let stat = unless_gone(read_task_stat(&reader.host, pid, tid))?;
    let Some(stat) = stat.filter(|stat| !stat.is_dead()) else {
        return Ok(None);
    };
    // The thread has exited meanwhile, or its mask is not readable: the next listing tries again.
    let Ok(mask) = read_mask(&reader.host, tid) else {
        return Ok(None);
    };
    let id = ThreadId {
        start_ticks: stat.start_ticks,
        tid,
    };
    Ok(Some(CachedThread {
        id,
        comm: String::from_utf8_lossy(&stat.comm).into_owned(),
        mask,
        cpu_ticks: stat.cpu_ticks,
        not_before: horizon.max(reader.clock.ticks_to_micros(stat.start_ticks)),
        read_at: reader.clock.now()?,
        load: ThreadLoad::default(),
    }))
}
