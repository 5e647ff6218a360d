//! The loop: waits for what can change a mask, looks at what changed, and lets each subject
//! converge.
//!
//! What wakes it: the end of a process (pidfd), a write to a cpuset file (inotify), a cpu that
//! comes or goes (uevent), an order, and periods for what nothing announces. Births are found by
//! reading one counter, the last id given to any process or thread of the machine: while it stands
//! still nobody was born, and nothing else has to be read.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use albacore_os::{
    CpusetWatch, Key, LastPid, Micros, Pid, Poll, SchedExt, Tid, UeventSocket, Wake, read_online,
    read_sched_ext, read_sysfs,
};
use albacore_plan::Policy;
use albacore_topology::{Topology, parse_sysfs};

use crate::limits::{
    AROUND_PERIOD, COALESCING_TIME, CONTROLS_MAX, CPUSET_LOOKS_PER_SEARCH, CPUSET_PERIOD,
    ERROR_PAUSE_MAX, ERROR_PAUSE_MIN, TREE_PAUSE_RATIO, TREE_PERIOD, TREE_PERIOD_MAX, WAIT_MAX,
};
use crate::process::{Quiet, Reader};
use crate::report::{Figures, Report, Restored};
use crate::subject::{Subject, Surroundings};
use crate::together::Together;
use crate::{Config, Control, Handle, PlacerError, Row, SubjectConfig, SubjectId, SubjectState};
use births::Births;
use sweep::{Budget, Sweep};

const CONTROL_KEY: Key = Key(u64::MAX);
const CPUSET_KEY: Key = Key(u64::MAX - 1);
const UEVENT_KEY: Key = Key(u64::MAX - 2);
const CONNECTOR_KEY: Key = Key(u64::MAX - 3);

/// The key of a process: its subject above, its pid below.
fn process_key(subject: SubjectId, pid: Pid) -> Key {
    Key(u64::from(subject.0) << 32 | u64::from(pid.0.unsigned_abs()))
}

/// Whether the loop goes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Progress {
    /// Call [`Placer::step`] again.
    Running,
    /// An order to stop arrived.
    Stopped,
}

/// When what is due next.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    births: Micros,
    sweep: Micros,
    cpusets: Micros,
    tree: Micros,
    tree_at_last: Micros,
    children: Micros,
    around: Micros,
}

/// Places the threads of its subjects and keeps them placed. Single-threaded; [`Handle`]s reach it
/// from elsewhere.
#[derive(Debug)]
pub struct Placer {
    config: Config,
    reader: Reader,
    poll: Poll,
    wake: Wake,
    orders: Receiver<Control>,
    handle: Handle,
    cpuset_watch: CpusetWatch,
    uevents: Option<UeventSocket>,
    births: Option<Births>,
    machine: Topology,
    scheduler: SchedExt,
    subjects: BTreeMap<SubjectId, Subject>,
    together: Together,
    next_id: u32,
    figures: Figures,
    due: Due,
    last_pid: i32,
    last_pid_file: LastPid,
    sweep: Sweep,
    budget: Budget,
    cpuset_looks: u32,
    /// Time that looks for expected births have taken: bounded by their own pauses and by how long
    /// births are expected.
    fast_micros: u64,
    last_pid_at: Micros,
    /// Nothing was born on the machine in this time.
    quiet: Quiet,
    /// Ids that were given out and of whom nothing was to be seen yet.
    unseen: Vec<(Tid, Micros)>,
    looked_at: Micros,
    tree_pid: i32,
    has_other_files: bool,
    is_stopped: bool,
}

impl Placer {
    /// A placer without subjects.
    ///
    /// # Errors
    /// The machine cannot be read or understood, or file descriptors run out.
    pub fn new(config: Config) -> Result<Self, PlacerError> {
        let reader = Reader::new(config.host.clone())?;
        let machine = read_machine(&reader)?;
        let last_pid_file = LastPid::open(&config.host)?;
        let poll = Poll::new()?;
        let wake = Wake::new()?;
        poll.add(&wake, CONTROL_KEY)?;
        let cpuset_watch = CpusetWatch::new()?;
        poll.add(&cpuset_watch, CPUSET_KEY)?;
        // Forbidden in some sandboxes: the online cpus are polled as well.
        let uevents = UeventSocket::open().ok();
        if let Some(socket) = &uevents {
            poll.add(socket, UEVENT_KEY)?;
        }
        let (sender, orders) = sync_channel(CONTROLS_MAX);
        let handle = Handle {
            sender,
            wake: wake.clone(),
        };
        Ok(Self {
            config,
            reader,
            poll,
            wake,
            orders,
            handle,
            cpuset_watch,
            uevents,
            births: None,
            machine,
            scheduler: SchedExt::Disabled,
            subjects: BTreeMap::new(),
            together: Together::default(),
            next_id: 0,
            figures: Figures::default(),
            due: Due::default(),
            last_pid: 0,
            last_pid_file,
            sweep: Sweep::default(),
            budget: Budget::default(),
            cpuset_looks: 0,
            fast_micros: 0,
            last_pid_at: Micros(0),
            quiet: Quiet::default(),
            unseen: Vec::new(),
            looked_at: Micros(0),
            tree_pid: 0,
            has_other_files: false,
            is_stopped: false,
        })
    }

    /// A handle to give orders with, from any thread.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Adds a process tree. The first [`Placer::step`] after this places it.
    ///
    /// # Errors
    /// The root is gone, its cgroup is not known, or its cpuset has no cpu.
    pub fn add_subject(&mut self, config: &SubjectConfig) -> Result<SubjectId, PlacerError> {
        let id = SubjectId(self.next_id);
        let mut subject = Subject::new(id, config, &self.reader, self.config.limit.clone())?;
        subject.adopt_found(&self.reader, &self.machine)?;
        self.next_id += 1;
        self.subjects.insert(id, subject);
        self.due = Due::default();
        self.sweep_soon();
        self.watch_files();
        Ok(id)
    }

    /// Sets the policy of a subject; the next [`Placer::step`] acts on it.
    ///
    /// # Errors
    /// There is no such subject.
    pub fn set_policy(&mut self, id: SubjectId, policy: Policy) -> Result<(), PlacerError> {
        let subject = self
            .subjects
            .get_mut(&id)
            .ok_or(PlacerError::UnknownSubject(id))?;
        subject.set_policy(policy);
        self.due = Due::default();
        self.sweep_soon();
        Ok(())
    }

    /// Writes the masks of a subject again that are left as they are because somebody else changed
    /// them. Nothing, if there is no such subject.
    pub fn retry_now(&mut self, id: SubjectId) {
        if let Some(subject) = self.subjects.get_mut(&id) {
            subject.retry_now();
            self.due = Due::default();
        }
    }

    /// The state of every slot of every subject.
    ///
    /// # Errors
    /// The kernel refuses to tell the time.
    pub fn table(&self) -> Result<Vec<Row>, PlacerError> {
        let now = self.reader.clock.now()?;
        Ok(self
            .subjects
            .values()
            .flat_map(|subject| subject.rows(now))
            .collect())
    }

    /// Counters and distributions since the start.
    pub fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The online cpus of the machine, as last read.
    pub fn machine(&self) -> &Topology {
        &self.machine
    }

    /// How every subject stands as a whole.
    pub fn states(&self) -> Vec<SubjectState> {
        let topology_hash = self.machine.hash64();
        let subjects = self.subjects.values();
        subjects.map(|s| s.state(topology_hash)).collect()
    }

    /// Runs until an order to stop, then gives every mask back. What fails is told once and tried
    /// again, ever more slowly: one subject that cannot be placed, or a moment without file
    /// descriptors, ends nothing.
    pub fn run(&mut self, report: &mut dyn FnMut(&Report)) -> Restored {
        let (mut told, mut pause) = (String::new(), ERROR_PAUSE_MIN);
        // bound: one wait per turn, and a pause after an error; ends with an order to stop
        while !self.is_stopped {
            match self.step(WAIT_MAX, report) {
                Ok(_) => (told, pause) = (String::new(), ERROR_PAUSE_MIN),
                Err(error) => {
                    let (category, reason) = (error.category(), error.to_string());
                    if told != reason {
                        told.clone_from(&reason);
                        report(&Report::Failed { category, reason });
                    }
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(ERROR_PAUSE_MAX);
                }
            }
        }
        self.restore(report)
    }

    /// Waits until something is to be done, at most `timeout`, and does it.
    ///
    /// # Errors
    /// Placing cannot go on as it is. The state stays consistent: a caller may go on with `step` (a
    /// subject that the kernel refused is then only observed) or end with `restore`.
    pub fn step(
        &mut self,
        timeout: Duration,
        report: &mut dyn FnMut(&Report),
    ) -> Result<Progress, PlacerError> {
        let begun = self.reader.clock.thread_cpu()?;
        let progress = self.turn(timeout, report);
        let ended = self.reader.clock.thread_cpu()?;
        self.figures.cpu_micros += ended.0.saturating_sub(begun.0);
        progress
    }

    fn turn(
        &mut self,
        timeout: Duration,
        report: &mut dyn FnMut(&Report),
    ) -> Result<Progress, PlacerError> {
        let now = self.reader.clock.now()?;
        let wait = Duration::from_micros(self.next_due().0.saturating_sub(now.0)).min(timeout);
        let mut keys = self.poll.wait(wait)?;
        let is_hint = |key: &Key| [CPUSET_KEY, UEVENT_KEY].contains(key);
        if keys.iter().any(is_hint) {
            // Writers of cpusets write several files; what comes now is answered together.
            std::thread::sleep(COALESCING_TIME);
            keys.extend(self.poll.wait(Duration::ZERO)?);
            self.due.cpusets = Micros(0);
        }
        self.take_orders(&keys, report);
        if self.is_stopped {
            return Ok(Progress::Stopped);
        }
        self.take_hints(&keys)?;
        self.take_ends(&keys)?;
        let is_hearing_again = self.hears_again_at().is_some_and(|at| now >= at);
        if keys.contains(&CONNECTOR_KEY) || is_hearing_again {
            self.take_births()?;
        }
        self.look(report)?;
        let mut result = self.together.update(
            &mut self.subjects,
            &mut Surroundings {
                reader: &self.reader,
                machine: &self.machine,
                may_write: true,
                figures: &mut self.figures,
                report,
            },
        );
        for id in self.subjects.keys().copied().collect::<Vec<_>>() {
            result = result.and(self.converge(id, report));
        }
        self.bury(report);
        result?;
        Ok(Progress::Running)
    }

    /// Gives every mask of every subject back, continuing past every error.
    pub fn restore(&mut self, report: &mut dyn FnMut(&Report)) -> Restored {
        let mut all = Restored::default();
        for id in self.subjects.keys().copied().collect::<Vec<_>>() {
            all.add(self.restore_one(id, report));
        }
        report(&Report::Restored(all.clone()));
        all
    }

    fn restore_one(&mut self, id: SubjectId, report: &mut dyn FnMut(&Report)) -> Restored {
        let Some(mut subject) = self.subjects.remove(&id) else {
            return Restored::default();
        };
        let restored = subject.restore(&mut Surroundings {
            reader: &self.reader,
            machine: &self.machine,
            may_write: true,
            figures: &mut self.figures,
            report,
        });
        self.subjects.insert(id, subject);
        restored
    }

    fn next_due(&self) -> Micros {
        // What has no hurry is done when births are looked for, which is soon: each wake-up costs
        // as much as a look.
        let births = self.due.births;
        let retries = self
            .subjects
            .values()
            .filter_map(|subject| subject.retry_at);
        let dirty = self
            .subjects
            .values()
            .filter(|s| s.is_dirty)
            .map(|_| Micros(0));
        std::iter::once(births)
            .chain(retries)
            .chain(dirty)
            .chain(self.hears_again_at())
            .min()
            .unwrap_or_default()
    }

    /// Looks at everything that is due.
    fn look(&mut self, report: &mut dyn FnMut(&Report)) -> Result<(), PlacerError> {
        let now = self.reader.clock.now()?;
        if now >= self.due.cpusets {
            self.cpuset_looks = self.cpuset_looks.wrapping_add(1);
            let searches = self.cpuset_looks.is_multiple_of(CPUSET_LOOKS_PER_SEARCH);
            self.look_at_cpusets(searches, report)?;
            self.due.cpusets = after(now, CPUSET_PERIOD);
        }
        if now >= self.due.births {
            self.look_for_births(now)?;
        }
        if now >= self.due.sweep && self.sweep(now)? {
            // A cpuset moves masks before it is announced: whether one did decides whom to blame.
            self.hear_cpusets()?;
            self.look_at_cpusets(true, report)?;
        }
        if now >= self.due.tree {
            let is_old = now.0 >= after(self.due.tree_at_last, TREE_PERIOD_MAX).0;
            if is_old || self.tree_pid != self.last_pid {
                self.look_at_trees()?;
                self.due.tree_at_last = now;
                self.tree_pid = self.last_pid;
            }
            let took = self.reader.clock.now()?.0.saturating_sub(now.0);
            let pause = Duration::from_micros(took) * TREE_PAUSE_RATIO;
            self.due.tree = after(now, pause.clamp(TREE_PERIOD, TREE_PERIOD_MAX));
        }
        if now >= self.due.around {
            for subject in self.subjects.values_mut() {
                subject.is_dirty |= subject.look_around(&self.reader)?;
            }
            self.due.around = after(now, AROUND_PERIOD);
        }
        for subject in self.subjects.values_mut() {
            subject.is_dirty |= subject.retry_at.is_some_and(|at| now >= at);
        }
        self.watch_processes()?;
        self.keep_budget(now)
    }

    /// Reads the cpusets; also looks for the cgroups anew if it `searches`.
    fn look_at_cpusets(
        &mut self,
        searches: bool,
        report: &mut dyn FnMut(&Report),
    ) -> Result<(), PlacerError> {
        let host = &self.reader.host;
        let scheduler = read_sched_ext(host)?;
        if scheduler != self.scheduler {
            self.scheduler = scheduler;
            if scheduler == SchedExt::Enabled {
                report(&Report::ForeignScheduler);
            }
            self.subjects
                .values_mut()
                .for_each(|subject| subject.is_dirty = true);
        }
        let online = read_online(host)?;
        if online != self.machine.cpuset() {
            self.machine = read_machine(&self.reader)?;
            let online = self.machine.cpuset();
            report(&Report::MachineChanged { online });
            self.subjects
                .values_mut()
                .for_each(|subject| subject.is_dirty = true);
            self.sweep_soon();
        }
        let mut is_other = false;
        for subject in self.subjects.values_mut().filter(|s| s.tree.has_root()) {
            let moved = searches && subject.find_cgroups(&self.reader.host)?;
            if subject.cpuset.update_of(&self.reader.host, &online)? {
                let (subject_id, cpuset) = (subject.id, subject.cpuset.cpus.clone());
                report(&Report::CpusetChanged {
                    subject: subject_id,
                    cpuset,
                });
                subject.is_dirty = true;
                is_other = true;
            }
            self.has_other_files |= moved;
        }
        if is_other {
            self.sweep_soon();
        }
        if std::mem::take(&mut self.has_other_files) {
            self.watch_files();
        }
        Ok(())
    }

    fn look_at_trees(&mut self) -> Result<(), PlacerError> {
        for subject in self.subjects.values_mut() {
            subject.is_dirty |= subject.tree.read_all()?;
            subject
                .tree
                .read_cpu_times(usize::from(subject.policy.threads));
        }
        Ok(())
    }

    fn converge(
        &mut self,
        id: SubjectId,
        report: &mut dyn FnMut(&Report),
    ) -> Result<(), PlacerError> {
        let Some(subject) = self.subjects.get_mut(&id).filter(|s| s.is_dirty) else {
            return Ok(());
        };
        if !subject.tree.has_root() {
            return Ok(());
        }
        subject.converge(&mut Surroundings {
            reader: &self.reader,
            machine: &self.machine,
            may_write: self.scheduler == SchedExt::Disabled && self.reader.host.is_live(),
            figures: &mut self.figures,
            report,
        })
    }

    /// Forgets subjects whose root has ended; what lives of them gets its masks back first.
    fn bury(&mut self, report: &mut dyn FnMut(&Report)) {
        let ended: Vec<SubjectId> = self
            .subjects
            .values()
            .filter(|s| !s.tree.has_root())
            .map(|s| s.id)
            .collect();
        for subject in ended {
            self.restore_one(subject, report);
            self.subjects.remove(&subject);
            report(&Report::SubjectGone { subject });
        }
    }
}

fn after(now: Micros, period: Duration) -> Micros {
    Micros(now.0 + period.as_micros() as u64)
}

fn read_machine(reader: &Reader) -> Result<Topology, PlacerError> {
    Ok(parse_sysfs(&read_sysfs(
        &reader.host.sys.join("devices/system"),
    )?)?)
}

mod births;
mod looking;
mod orders;
mod sweep;
#[cfg(test)]
mod tests;
mod watching;
