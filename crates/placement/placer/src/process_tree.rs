//! The process tree of one subject as last read, with cheap incremental updates.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use albacore_os::{
    CgroupSubtree, Micros, OsError, Pid, SpawnEvent, ThreadOwner, Tid, read_children,
};
use albacore_plan::{Process, ServerKind};

use crate::limits::{FRONT_NAMING_TIME_MAX, NAMING_TIME_MAX, PROCESSES_MAX};
use crate::process::{
    CachedThread, LiveProcess, NoSpawnInterval, ProcessReader, is_young, unless_gone,
};

#[derive(Debug)]
pub(crate) struct ProcessTree {
    reader: ProcessReader,
    root: Pid,
    server_kind: ServerKind,
    /// Processes outside are not part of the tree, even if their parents are.
    subtree: Option<CgroupSubtree>,
    /// The root first, parents before children.
    order: Vec<Pid>,
    processes: BTreeMap<Pid, LiveProcess>,
    /// When the children of each process were last listed.
    listed_at: BTreeMap<Pid, Micros>,
    /// When children of any process were last listed.
    last_listed: Micros,
    /// The last interval in which nothing was spawned on the machine.
    pub(crate) no_spawns: NoSpawnInterval,
    /// Lower bound of the start time of the youngest process.
    youngest: Micros,
    /// A thread may still change its name.
    may_rename: bool,
    /// There may be a process whose exit is not watched yet.
    has_unwatched: bool,
}

impl ProcessTree {
    /// A tree that has not been read yet.
    pub(crate) fn new(
        reader: ProcessReader,
        root: Pid,
        server_kind: ServerKind,
        subtree: Option<CgroupSubtree>,
    ) -> Self {
        Self {
            reader,
            root,
            server_kind,
            subtree,
            order: Vec::new(),
            processes: BTreeMap::new(),
            listed_at: BTreeMap::new(),
            last_listed: Micros(0),
            no_spawns: NoSpawnInterval::default(),
            youngest: Micros(0),
            may_rename: true,
            has_unwatched: true,
        }
    }

    pub(crate) fn root(&self) -> Pid {
        self.root
    }

    pub(crate) fn has_root(&self) -> bool {
        self.processes.contains_key(&self.root)
    }

    pub(crate) fn get(&self, pid: Pid) -> Option<&LiveProcess> {
        self.processes.get(&pid)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LiveProcess> {
        self.order.iter().filter_map(|pid| self.processes.get(pid))
    }

    /// A thread by its process and tid.
    pub(crate) fn thread(&self, pid: Pid, tid: Tid) -> Option<&CachedThread> {
        self.processes.get(&pid)?.threads.get(&tid)
    }

    pub(crate) fn thread_mut(&mut self, pid: Pid, tid: Tid) -> Option<&mut CachedThread> {
        self.processes.get_mut(&pid)?.threads.get_mut(&tid)
    }

    /// Removes a thread that has exited.
    pub(crate) fn forget_thread(&mut self, pid: Pid, tid: Tid) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.forget_thread(tid);
        }
    }

    /// Removes a process that has exited; its children are kept until the whole tree is read.
    pub(crate) fn remove(&mut self, pid: Pid) -> Option<LiveProcess> {
        self.order.retain(|&p| p != pid);
        self.listed_at.remove(&pid);
        self.processes.remove(&pid)
    }

    /// Reads the whole tree. True if a process or thread was added or removed.
    pub(crate) fn read_all(&mut self) -> Result<bool, OsError> {
        let mut changed = false;
        let mut found = vec![self.root];
        let mut listed_at = BTreeMap::new();
        let mut next = 0;
        // bound: PROCESSES_MAX
        while next < found.len() && found.len() <= PROCESSES_MAX {
            let pid = found[next];
            next += 1;
            changed |= self.read_process(pid)?;
            if !self.processes.contains_key(&pid) {
                continue;
            }
            listed_at.insert(pid, self.reader.clock.now()?);
            for child in self.children(pid)? {
                if !found.contains(&child) {
                    found.push(child);
                }
            }
        }
        found.truncate(PROCESSES_MAX);
        found.retain(|pid| self.processes.contains_key(pid));
        let gone: Vec<Pid> = self
            .processes
            .keys()
            .filter(|p| !found.contains(p))
            .copied()
            .collect();
        for pid in &gone {
            self.remove(*pid);
        }
        self.order = found;
        // Only now, because the processes found above are younger than the previous listing.
        self.listed_at = listed_at;
        self.last_listed = self.reader.clock.now()?;
        Ok(changed || !gone.is_empty())
    }

    /// Reads a known or new process; true if a process or thread was added or removed.
    fn read_process(&mut self, pid: Pid) -> Result<bool, OsError> {
        self.may_rename = true;
        let Some(known) = self.processes.get_mut(&pid) else {
            return self.add_process(pid);
        };
        let stat = albacore_os::read_stat(&self.reader.host, pid);
        if !stat.is_ok_and(|s| s.start_ticks == known.id.start_ticks && !s.is_dead()) {
            // The process has exited, or its pid was reused.
            self.remove(pid);
            self.add_process(pid)?;
            return Ok(true);
        }
        let before = known.threads.len();
        let execed = known.read_cmdline(&self.reader)?;
        let named = known.read_names(&self.reader, Micros(0));
        let others: Vec<_> = known.threads.values().map(|t| t.id).collect();
        if !known.read_threads(&self.reader, self.no_spawns)? {
            self.remove(pid);
            return Ok(true);
        }
        let same = known.threads.len() == before && known.threads.values().map(|t| t.id).eq(others);
        Ok(execed || named || !same)
    }

    /// Reads a new process; false if it has already exited.
    fn add_process(&mut self, pid: Pid) -> Result<bool, OsError> {
        if let Some(subtree) = &self.subtree
            && unless_gone(subtree.contains(&self.reader.host, pid, Tid(pid.0)))? != Some(true)
        {
            return Ok(false);
        }
        let parent = self.parent_listed_at(pid)?;
        match LiveProcess::read(&self.reader, pid, parent)? {
            Some(process) => {
                self.youngest = self.youngest.max(process.not_before);
                self.has_unwatched = true;
                self.may_rename = true;
                self.order.push(pid);
                self.processes.insert(pid, process);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Lower bound of the start time of a process: when the children of its parent were last
    /// listed.
    fn parent_listed_at(&self, pid: Pid) -> Result<Micros, OsError> {
        if pid == self.root {
            return Ok(Micros(0));
        }
        let stat = unless_gone(albacore_os::read_stat(&self.reader.host, pid))?;
        // Set by the listing *before* the one that found this child.
        let listed_at = stat.and_then(|stat| self.listed_at.get(&Pid(stat.parent)));
        Ok(listed_at.copied().unwrap_or_default())
    }

    /// The current children of a process; empty if it has exited.
    fn children(&self, pid: Pid) -> Result<Vec<Pid>, OsError> {
        Ok(unless_gone(read_children(&self.reader.host, pid))?.unwrap_or_default())
    }

    /// Searches for new children of `parents`; true if there are any.
    pub(crate) fn read_children(&mut self, parents: &[Pid]) -> Result<bool, OsError> {
        let mut changed = false;
        for &parent in parents {
            let now = self.reader.clock.now()?;
            for child in self.children(parent)? {
                if !self.processes.contains_key(&child) && self.order.len() < PROCESSES_MAX {
                    changed |= self.add_process(child)?;
                }
            }
            self.listed_at.insert(parent, now);
            self.last_listed = now;
        }
        Ok(changed)
    }

    /// Handles a spawn event; true if it is new in this tree.
    pub(crate) fn handle_event(&mut self, event: &SpawnEvent) -> Result<bool, OsError> {
        let owner = ThreadOwner {
            parent: event.parent,
            process: event.process,
        };
        self.handle_spawn(owner, event.thread, event.at)
    }

    /// Handles a spawn, given a lower bound of its time; true if it is new in this tree.
    pub(crate) fn handle_spawn(
        &mut self,
        owner: ThreadOwner,
        thread: Tid,
        not_before: Micros,
    ) -> Result<bool, OsError> {
        let ThreadOwner { parent, process } = owner;
        let is_child = thread.0 == process.0 && self.processes.contains_key(&parent);
        let changed = if self.processes.contains_key(&process) {
            self.read_process(process)?
        } else if is_child && self.order.len() < PROCESSES_MAX {
            self.add_process(process)?
        } else {
            return Ok(false);
        };
        if let Some(process) = self.processes.get_mut(&process) {
            process.record_spawn(thread, not_before);
        }
        Ok(changed)
    }

    /// Detects execs of young processes, for which there is no counter; true if there are any.
    pub(crate) fn read_execs(&mut self, now: Micros) -> Result<bool, OsError> {
        let mut changed = false;
        if !is_young(self.youngest, now) {
            return Ok(false);
        }
        for process in self.processes.values_mut().filter(|p| p.may_exec(now)) {
            changed |= process.read_cmdline(&self.reader)?;
        }
        Ok(changed)
    }

    /// Searches for new threads of known processes; true if there are any.
    pub(crate) fn read_new_threads(&mut self) -> Result<bool, OsError> {
        let mut changed = false;
        let other: Vec<Pid> = self
            .processes
            .values()
            .filter(|p| p.has_other_count())
            .map(LiveProcess::pid)
            .collect();
        for pid in other {
            changed |= self.read_process(pid)?;
        }
        Ok(changed)
    }

    /// Records that nothing was spawned until `no_spawns.until`: spawns found later are newer.
    pub(crate) fn record_no_spawns(&mut self, no_spawns: NoSpawnInterval) {
        self.no_spawns = no_spawns;
        if self.last_listed < no_spawns.since {
            return;
        }
        for at in self.listed_at.values_mut() {
            if *at >= no_spawns.since {
                *at = (*at).max(no_spawns.until);
            }
        }
    }

    /// Reads the masks of all threads; true if one has changed.
    pub(crate) fn read_masks(&mut self) -> Result<bool, OsError> {
        let mut changed = false;
        for process in self.processes.values_mut() {
            changed |= process.read_masks(&self.reader)?;
        }
        Ok(changed)
    }

    /// Reads the masks of the processes after `after`, and loads that are due, about `count` in
    /// total. Returns the position (`None` at the end of the tree), the number read, and whether a
    /// mask has changed.
    pub(crate) fn read_some_masks(
        &mut self,
        after: Option<Pid>,
        count: usize,
    ) -> Result<(Option<Pid>, usize, bool), OsError> {
        let (mut read, mut changed) = (0, false);
        let now = self.reader.clock.now()?;
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        for (&pid, process) in self.processes.range_mut((from, Bound::Unbounded)) {
            read += process.threads.len();
            changed |= process.read_masks(&self.reader)?;
            if process.read_loads(&self.reader, now) {
                read += process.threads.len();
            }
            if read >= count {
                return Ok((Some(pid), read, changed));
            }
        }
        Ok((None, read, changed))
    }

    /// Reads the names of young threads; true if a name now identifies the function of a thread.
    pub(crate) fn read_names(&mut self, now: Micros) -> bool {
        if self.server_kind != ServerKind::Named || !self.may_rename {
            return false;
        }
        let mut named = false;
        let root = self.root;
        for process in self.processes.values_mut() {
            let since = before(now, naming_time(process, root));
            if process.awaits_names(since) {
                named |= process.read_names(&self.reader, since);
            }
        }
        named
    }

    /// True if a young thread that may belong to a worker of a named server has no name yet.
    /// Threads of the front end and of the root, most of which are never named, are not urgent.
    pub(crate) fn awaits_names(&mut self, now: Micros) -> bool {
        if self.server_kind != ServerKind::Named || !self.may_rename {
            return false;
        }
        let root = self.root;
        let mut is_worker_awaited = false;
        self.may_rename = false;
        for process in self.processes.values_mut() {
            let time = naming_time(process, root);
            if process.awaits_names(before(now, time)) {
                self.may_rename = true;
                is_worker_awaited |= time == NAMING_TIME_MAX;
            }
        }
        is_worker_awaited
    }

    /// Reads the CPU times of processes with more than `threads` threads, if compute threads are
    /// identified by them; true if there is a new compute thread.
    pub(crate) fn read_cpu_times(&mut self, threads: usize) -> bool {
        let mut is_new = false;
        if self.server_kind == ServerKind::PreFork {
            let processes = self.processes.values_mut();
            for process in processes.filter(|process| process.threads.len() > threads) {
                is_new |= process.read_cpu_times(&self.reader);
            }
        }
        is_new
    }

    /// Processes whose exit is not watched yet.
    pub(crate) fn unwatched(&mut self) -> impl Iterator<Item = &mut LiveProcess> {
        let is_any = std::mem::take(&mut self.has_unwatched);
        let all = is_any.then(|| self.processes.values_mut());
        all.into_iter()
            .flatten()
            .filter(|process| !process.is_watched)
    }

    /// Number of processes.
    pub(crate) fn len(&self) -> usize {
        self.processes.len()
    }

    /// Converts the tree to values.
    pub(crate) fn observed(&self) -> Vec<Process> {
        self.iter().map(LiveProcess::observed).collect()
    }
}

/// How long a process may take to name its threads.
fn naming_time(process: &LiveProcess, root: Pid) -> Duration {
    match process.pid() == root || process.is_front() {
        true => FRONT_NAMING_TIME_MAX,
        false => NAMING_TIME_MAX,
    }
}

fn before(now: Micros, time: Duration) -> Micros {
    Micros(now.0.saturating_sub(time.as_micros() as u64))
}
