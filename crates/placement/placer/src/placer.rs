//! Main loop: waits for events that can change a mask, reads the changes, and lets each subject
//! converge.
//!
//! The loop is woken by the exit of a process (pidfd), a write to a cpuset or quota (inotify), cpu
//! hotplug (uevent), a control message, and timers for unannounced changes. Spawns are detected by
//! reading one counter, the last pid or tid assigned on the machine: while it is unchanged, nothing
//! was spawned and nothing else has to be read.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use albacore_os::{
    FileWatch, Micros, OsError, Pid, Poll, PollKey, SchedExt, UeventSocket, Waker, read_online,
    read_sched_ext, read_topology,
};
use albacore_plan::SubjectPolicy;
use albacore_topology::Topology;
use albacore_values::sentence;

use crate::improvement::Improver;
use crate::joint_solve::JointSolver;
use crate::limits::{
    COALESCING_TIME, CONTAINER_CHECK_PERIOD, CONTROLS_MAX, CPUSET_PERIOD, CPUSET_READS_PER_SEARCH,
    ERROR_PAUSE_MAX, ERROR_PAUSE_MIN, TREE_PAUSE_RATIO, TREE_PERIOD, TREE_PERIOD_MAX, WAIT_MAX,
    WEIGHTS_CHECK_PERIOD,
};
use crate::measured_distances::MeasuredDistances;
use crate::process::ProcessReader;
use crate::report::{PlacerCounters, Report, RestoreSummary};
use crate::subject::{PassContext, Subject};
use crate::{
    ControlRequest, PlacerConfig, PlacerError, PlacerHandle, SlotRow, SubjectConfig, SubjectId,
    SubjectState,
};
use spawn_detection::SpawnDetector;
use spawn_events::SpawnEvents;
use sweep::{Budget, Sweep};

const CONTROL_KEY: PollKey = PollKey(u64::MAX);
const CPUSET_KEY: PollKey = PollKey(u64::MAX - 1);
const UEVENT_KEY: PollKey = PollKey(u64::MAX - 2);
const QUOTA_KEY: PollKey = PollKey(u64::MAX - 3);
/// The lowest of these keys.
const CONNECTOR_KEY: PollKey = PollKey(u64::MAX - 4);

/// The poll key of a process: subject id in the upper half, pid in the lower half.
fn process_key(subject: SubjectId, pid: Pid) -> PollKey {
    PollKey(u64::from(subject.0) << 32 | u64::from(pid.0.unsigned_abs()))
}

/// Whether the loop continues.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LoopStatus {
    /// Call [`Placer::step`] again.
    Running,
    /// [`PlacerHandle::stop`] was called.
    Stopped,
}

/// Next due times of the periodic tasks.
#[derive(Clone, Copy, Debug, Default)]
struct DueTimes {
    spawns: Micros,
    sweep: Micros,
    cpusets: Micros,
    tree: Micros,
    children: Micros,
    container: Micros,
    weights: Micros,
    /// When the trees were last read, and the last pid at that time.
    tree_read_at: Micros,
    tree_pid: i32,
    /// Number of cpuset readings.
    cpuset_reads: u32,
}

/// Sources of events for the loop.
#[derive(Debug)]
struct EventSources {
    poll: Poll,
    cpuset_watch: FileWatch,
    quota_watch: FileWatch,
    uevents: Option<UeventSocket>,
    spawn_events: Option<SpawnEvents>,
}

impl EventSources {
    fn new() -> Result<Self, OsError> {
        let poll = Poll::new()?;
        let cpuset_watch = FileWatch::new()?;
        poll.add(&cpuset_watch, CPUSET_KEY)?;
        let quota_watch = FileWatch::new()?;
        poll.add(&quota_watch, QUOTA_KEY)?;
        // Forbidden in some sandboxes; the online cpus are polled as well.
        let uevents = UeventSocket::open().ok();
        if let Some(socket) = &uevents {
            poll.add(socket, UEVENT_KEY)?;
        }
        Ok(Self {
            poll,
            cpuset_watch,
            quota_watch,
            uevents,
            spawn_events: None,
        })
    }
}

/// Queue of control messages, and the handle for sending them.
#[derive(Debug)]
struct ControlQueue {
    receiver: Receiver<ControlRequest>,
    handle: PlacerHandle,
}

impl ControlQueue {
    fn new(poll: &Poll) -> Result<Self, OsError> {
        let wake = Waker::new()?;
        poll.add(&wake, CONTROL_KEY)?;
        let (sender, receiver) = sync_channel(CONTROLS_MAX);
        let handle = PlacerHandle { sender, wake };
        Ok(Self { receiver, handle })
    }
}

/// Places the threads of its subjects and keeps them placed. Single-threaded; other threads use a
/// [`PlacerHandle`].
#[derive(Debug)]
pub struct Placer {
    config: PlacerConfig,
    reader: ProcessReader,
    machine: Topology,
    distances: MeasuredDistances,
    improver: Improver,
    scheduler: SchedExt,
    subjects: BTreeMap<SubjectId, Subject>,
    next_id: u32,
    joint: JointSolver,
    events: EventSources,
    controls: ControlQueue,
    spawns: SpawnDetector,
    due: DueTimes,
    sweep: Sweep,
    budget: Budget,
    figures: PlacerCounters,
    /// A subject has cgroups whose files are not watched yet.
    has_unwatched_files: bool,
    is_stopped: bool,
}

impl Placer {
    /// Creates a placer without subjects.
    ///
    /// # Errors
    /// The topology cannot be read or parsed, or file descriptors are exhausted.
    pub fn new(config: PlacerConfig) -> Result<Self, PlacerError> {
        let reader = ProcessReader::new(config.host.clone())?;
        let events = EventSources::new()?;
        let mut distances = MeasuredDistances::new(config.distances.clone());
        Ok(Self {
            machine: distances.apply(read_machine(&reader)?),
            distances,
            improver: Improver::default(),
            reader,
            scheduler: SchedExt::Disabled,
            subjects: BTreeMap::new(),
            next_id: 0,
            joint: JointSolver::default(),
            controls: ControlQueue::new(&events.poll)?,
            events,
            spawns: SpawnDetector::open(&config.host)?,
            due: DueTimes::default(),
            sweep: Sweep::default(),
            budget: Budget::default(),
            figures: PlacerCounters::default(),
            has_unwatched_files: false,
            is_stopped: false,
            config,
        })
    }

    /// Returns a handle that sends control messages from any thread.
    pub fn handle(&self) -> PlacerHandle {
        self.controls.handle.clone()
    }

    /// Adds a process tree, which is placed by the next [`Placer::step`].
    ///
    /// # Errors
    /// The root process has exited, its cgroup is unknown, or its cpuset is empty.
    pub fn add_subject(&mut self, config: &SubjectConfig) -> Result<SubjectId, PlacerError> {
        let id = SubjectId(self.next_id);
        let mut subject = Subject::new(id, config, &self.reader, self.config.limit.clone())?;
        subject.adopt_masks(&self.reader, &self.machine)?;
        self.next_id += 1;
        self.subjects.insert(id, subject);
        self.due = DueTimes::default();
        self.sweep_soon();
        self.watch_files();
        Ok(id)
    }

    /// Sets the policy of a subject, applied by the next [`Placer::step`].
    ///
    /// # Errors
    /// The subject does not exist.
    pub fn set_policy(&mut self, id: SubjectId, policy: SubjectPolicy) -> Result<(), PlacerError> {
        let subject = self
            .subjects
            .get_mut(&id)
            .ok_or(PlacerError::UnknownSubject(id))?;
        subject.set_policy(policy);
        self.due = DueTimes::default();
        self.sweep_soon();
        Ok(())
    }

    /// Ends the back-offs of a subject: masks that another program keeps changing are written
    /// again. No effect if the subject does not exist.
    pub fn retry_now(&mut self, id: SubjectId) {
        if let Some(subject) = self.subjects.get_mut(&id) {
            subject.retry_now();
            self.due = DueTimes::default();
        }
    }

    /// The state of every slot of every subject.
    ///
    /// # Errors
    /// The clock cannot be read.
    pub fn table(&self) -> Result<Vec<SlotRow>, PlacerError> {
        let now = self.reader.clock.now()?;
        Ok(self
            .subjects
            .values()
            .flat_map(|subject| subject.rows(now))
            .collect())
    }

    /// Counters and histograms since the start.
    pub fn counters(&self) -> &PlacerCounters {
        &self.figures
    }

    /// The online cpus of the machine, as last read.
    pub fn machine(&self) -> &Topology {
        &self.machine
    }

    /// The overall state of every subject.
    pub fn states(&self) -> Vec<SubjectState> {
        let topology_hash = self.machine.hash64();
        let subjects = self.subjects.values();
        subjects.map(|s| s.state(topology_hash)).collect()
    }

    /// Runs until [`PlacerHandle::stop`], then restores all masks. An error is reported once and
    /// the step is retried with exponential backoff: neither a subject that cannot be placed nor a
    /// shortage of file descriptors ends the loop.
    pub fn run(&mut self, report: &mut dyn FnMut(&Report)) -> RestoreSummary {
        let (mut reported, mut pause) = (String::new(), ERROR_PAUSE_MIN);
        // bound: one wait per iteration, and a pause after an error; ends with `stop`
        while !self.is_stopped {
            match self.step(WAIT_MAX, report) {
                Ok(_) => (reported, pause) = (String::new(), ERROR_PAUSE_MIN),
                Err(error) => {
                    let (category, reason) = (error.category(), sentence(&error));
                    if reported != reason {
                        reported.clone_from(&reason);
                        report(&Report::Failed { category, reason });
                    }
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(ERROR_PAUSE_MAX);
                }
            }
        }
        self.restore(report)
    }

    /// Waits at most `timeout` for work, and does it.
    ///
    /// # Errors
    /// A task failed. The state stays consistent: call `step` again (a subject for which the kernel
    /// denied a write is then only observed), or finish with `restore`.
    pub fn step(
        &mut self,
        timeout: Duration,
        report: &mut dyn FnMut(&Report),
    ) -> Result<LoopStatus, PlacerError> {
        let begun = self.reader.clock.thread_cpu()?;
        let status = self.run_once(timeout, report);
        let ended = self.reader.clock.thread_cpu()?;
        self.figures.cpu_micros += ended.0.saturating_sub(begun.0);
        status
    }

    fn run_once(
        &mut self,
        timeout: Duration,
        report: &mut dyn FnMut(&Report),
    ) -> Result<LoopStatus, PlacerError> {
        let now = self.reader.clock.now()?;
        let wait = Duration::from_micros(self.next_due().0.saturating_sub(now.0)).min(timeout);
        let mut keys = self.events.poll.wait(wait)?;
        let is_file_event = |key: &PollKey| [CPUSET_KEY, QUOTA_KEY, UEVENT_KEY].contains(key);
        if keys.iter().any(is_file_event) {
            // Programs that change cpusets write several files: their events are handled together.
            std::thread::sleep(COALESCING_TIME);
            keys.extend(self.events.poll.wait(Duration::ZERO)?);
            self.due.cpusets = Micros(0);
        }
        self.handle_controls(&keys, report);
        if self.is_stopped {
            return Ok(LoopStatus::Stopped);
        }
        self.handle_file_events(&keys)?;
        self.handle_exits(&keys)?;
        let resumes_spawn_events = self.spawn_events_resume_at().is_some_and(|at| now >= at);
        if keys.contains(&CONNECTOR_KEY) || resumes_spawn_events {
            self.handle_spawn_events()?;
        }
        self.run_due(report)?;
        let mut result = self.joint.update(
            &mut self.subjects,
            &mut PassContext {
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
        self.remove_ended(report);
        self.improve(report)?;
        result?;
        Ok(LoopStatus::Running)
    }

    /// Restores all masks of all subjects, continuing after errors.
    pub fn restore(&mut self, report: &mut dyn FnMut(&Report)) -> RestoreSummary {
        let mut all = RestoreSummary::default();
        for id in self.subjects.keys().copied().collect::<Vec<_>>() {
            all.add(self.restore_one(id, report));
        }
        report(&Report::Restored(all.clone()));
        all
    }

    fn restore_one(&mut self, id: SubjectId, report: &mut dyn FnMut(&Report)) -> RestoreSummary {
        let Some(mut subject) = self.subjects.remove(&id) else {
            return RestoreSummary::default();
        };
        let restored = subject.restore(&mut PassContext {
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
        // Tasks that are not urgent run with the next spawn check, which is soon, because each
        // wake-up costs as much as a check.
        let next_spawn_check = self.due.spawns;
        let retries = self
            .subjects
            .values()
            .filter_map(|subject| subject.schedule.retry_at());
        let dirty = self
            .subjects
            .values()
            .filter(|s| s.schedule.is_requested())
            .map(|_| Micros(0));
        std::iter::once(next_spawn_check)
            .chain(retries)
            .chain(dirty)
            .chain(self.spawn_events_resume_at())
            .min()
            .unwrap_or_default()
    }

    /// Runs all periodic tasks that are due.
    fn run_due(&mut self, report: &mut dyn FnMut(&Report)) -> Result<(), PlacerError> {
        let now = self.reader.clock.now()?;
        if now >= self.due.cpusets {
            self.due.cpuset_reads = self.due.cpuset_reads.wrapping_add(1);
            let searches = self
                .due
                .cpuset_reads
                .is_multiple_of(CPUSET_READS_PER_SEARCH);
            self.read_cpusets(searches, report)?;
            self.due.cpusets = after(now, CPUSET_PERIOD);
        }
        if now >= self.due.spawns {
            self.detect_spawns(now)?;
        }
        if now >= self.due.sweep && self.sweep(now)? {
            // A cpuset change affects masks before its event arrives, and determines the cause of a
            // drift.
            self.handle_cpuset_events()?;
            self.read_cpusets(true, report)?;
        }
        if now >= self.due.tree {
            let is_old = now.0 >= after(self.due.tree_read_at, TREE_PERIOD_MAX).0;
            if is_old || self.due.tree_pid != self.spawns.last_pid() {
                self.read_trees()?;
                self.due.tree_read_at = now;
                self.due.tree_pid = self.spawns.last_pid();
            }
            let took = self.reader.clock.now()?.0.saturating_sub(now.0);
            let pause = Duration::from_micros(took) * TREE_PAUSE_RATIO;
            self.due.tree = after(now, pause.clamp(TREE_PERIOD, TREE_PERIOD_MAX));
        }
        if now >= self.due.container {
            for subject in self.subjects.values_mut() {
                let changed = subject.check_container(&self.reader)?;
                subject.schedule.request_if(changed);
            }
            self.due.container = after(now, CONTAINER_CHECK_PERIOD);
        }
        if now >= self.due.weights {
            for subject in self.subjects.values_mut() {
                let changed = subject.update_weights(now);
                subject.schedule.request_if(changed);
            }
            self.due.weights = after(now, WEIGHTS_CHECK_PERIOD);
        }
        for subject in self.subjects.values_mut() {
            subject.schedule.check_retry(now);
        }
        self.watch_processes()?;
        self.keep_budget(now)
    }

    /// Reads the cpusets; if `searches`, also looks up the cgroups again.
    fn read_cpusets(
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
                .for_each(|subject| subject.schedule.request());
        }
        let online = read_online(host)?;
        let has_new_cpus = online != self.machine.cpuset();
        if has_new_cpus || self.distances.has_changed(&self.machine) {
            self.machine = self.distances.apply(read_machine(&self.reader)?);
            let online = self.machine.cpuset();
            if has_new_cpus {
                report(&Report::MachineChanged { online });
            }
            self.subjects
                .values_mut()
                .for_each(|subject| subject.schedule.request());
            self.sweep_soon();
        }
        if let Some(of_file) = self.distances.take_report() {
            report(&of_file);
        }
        let mut is_other = false;
        for subject in self.subjects.values_mut().filter(|s| s.tree.has_root()) {
            let moved = searches && subject.find_cgroups(&self.reader.host)?;
            if subject.cpuset.update_of(&self.reader.host, &online)? {
                let (subject_id, cpuset) = (subject.id(), subject.cpuset.cpus.clone());
                report(&Report::CpusetChanged {
                    subject: subject_id,
                    cpuset,
                });
                subject.schedule.request();
                is_other = true;
            }
            self.has_unwatched_files |= moved;
        }
        if is_other {
            self.sweep_soon();
        }
        if std::mem::take(&mut self.has_unwatched_files) {
            self.watch_files();
        }
        Ok(())
    }

    fn read_trees(&mut self) -> Result<(), PlacerError> {
        for subject in self.subjects.values_mut() {
            let is_changed = subject.tree.read_all()?;
            let threads = usize::from(subject.policy().threads);
            let is_new = subject.tree.read_cpu_times(threads);
            subject.schedule.request_if(is_changed || is_new);
        }
        Ok(())
    }

    fn converge(
        &mut self,
        id: SubjectId,
        report: &mut dyn FnMut(&Report),
    ) -> Result<(), PlacerError> {
        let Some(subject) = self
            .subjects
            .get_mut(&id)
            .filter(|s| s.schedule.is_requested())
        else {
            return Ok(());
        };
        if !subject.tree.has_root() {
            return Ok(());
        }
        subject.converge(&mut PassContext {
            reader: &self.reader,
            machine: &self.machine,
            may_write: self.scheduler == SchedExt::Disabled && self.reader.host.is_live(),
            figures: &mut self.figures,
            report,
        })
    }

    /// Removes subjects whose root has exited, after restoring the masks of processes that still
    /// run.
    fn remove_ended(&mut self, report: &mut dyn FnMut(&Report)) {
        let ended: Vec<SubjectId> = self
            .subjects
            .values()
            .filter(|s| !s.tree.has_root())
            .map(|s| s.id())
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

fn read_machine(reader: &ProcessReader) -> Result<Topology, PlacerError> {
    Ok(read_topology(&reader.host.sys.join("devices/system"))?)
}

mod control_messages;
mod improve;
mod spawn_detection;
mod spawn_events;
mod sweep;
#[cfg(test)]
mod tests;
mod watches;
