//! Detects new processes and threads by polling the kernel's last assigned pid.
//!
//! **Problem.** A server with hundreds of processes is checked fifty times per second, and on a
//! busy machine some process is spawned between any two checks. **Approach.** Pids and tids are
//! assigned in ascending order, so the ids between the last two values of the counter are all new
//! ones. If they are few, each is looked up; looking up many costs more than reading the thread
//! count of each process. **Limits.** An id is assigned shortly before its thread becomes visible,
//! so an id that is not visible is looked up once more. An id chosen by a program (a restored
//! checkpoint) is found when the tree is read.

use std::time::Duration;

use albacore_os::{HostRoot, LastPid, Micros, OsError, ThreadOwner, Tid, read_thread_owner};

use super::{Placer, after};
use crate::PlacerError;
use crate::limits::{
    CHILDREN_PAUSE_MAX, CHILDREN_PAUSE_RATIO, FAST_PAUSE_MAX, FAST_PAUSE_RATIO, FAST_PERIOD,
    IDLE_PERIOD, LOOKUPS_PER_SPAWN, SCAN_PAUSE_MAX, SCAN_PAUSE_RATIO,
};
use crate::process::NoSpawnInterval;
use crate::subject::Subject;

/// A new process or thread, and a lower bound of its start time.
struct DetectedSpawn {
    owner: ThreadOwner,
    thread: Tid,
    not_before: Micros,
}

/// Processes and threads spawned on the machine since the last check.
enum Spawns {
    None,
    Found(Vec<DetectedSpawn>),
    /// Too many to look up, or the counter was reset.
    Unknown,
}

/// Reads the counter of process and thread ids.
#[derive(Debug)]
pub(super) struct SpawnDetector {
    last_pid_file: LastPid,
    /// The last value of the counter; negative if events were lost since.
    last_pid: i32,
    last_pid_at: Micros,
    checked_at: Micros,
    /// The last interval in which nothing was spawned on the machine.
    no_spawns: NoSpawnInterval,
    /// Assigned ids whose threads were not visible yet.
    not_yet_visible: Vec<(Tid, Micros)>,
    /// CPU time of checks for expected spawns, which is bounded by their own pauses and by the time
    /// for which spawns are expected.
    expected_micros: u64,
}

impl SpawnDetector {
    pub(super) fn open(host: &HostRoot) -> Result<Self, OsError> {
        Ok(Self {
            last_pid_file: LastPid::open(host)?,
            last_pid: 0,
            last_pid_at: Micros(0),
            checked_at: Micros(0),
            no_spawns: NoSpawnInterval::default(),
            not_yet_visible: Vec::new(),
            expected_micros: 0,
        })
    }

    pub(super) fn last_pid(&self) -> i32 {
        self.last_pid
    }

    pub(super) fn expected_micros(&self) -> u64 {
        self.expected_micros
    }

    /// Discards the state after lost events: the next check scans everything.
    pub(super) fn invalidate(&mut self) {
        self.last_pid = -1;
    }

    /// Spawns since the last call; `processes` is the number of processes of all subjects.
    fn check(&mut self, host: &HostRoot, processes: usize, now: Micros) -> Result<Spawns, OsError> {
        let last = self.last_pid_file.read()?;
        let before = std::mem::replace(&mut self.last_pid, last);
        let checked_at = std::mem::replace(&mut self.checked_at, now);
        if last == before && self.not_yet_visible.is_empty() {
            self.no_spawns = NoSpawnInterval {
                since: self.last_pid_at,
                until: now,
            };
            return Ok(Spawns::None);
        }
        self.last_pid_at = now;
        let mut ids = std::mem::take(&mut self.not_yet_visible);
        let repeated = ids.len();
        // False at the first check, after lost events, and when ids wrap around.
        let is_continuous = before > 0 && last >= before && host.is_live();
        let count = repeated + usize::try_from(last.saturating_sub(before)).unwrap_or(0);
        let lookups_max = (processes / LOOKUPS_PER_SPAWN).max(LOOKUPS_PER_SPAWN);
        if !is_continuous || count > lookups_max {
            return Ok(Spawns::Unknown);
        }
        ids.extend((before + 1..=last).map(|id| (Tid(id), checked_at)));
        let mut spawns = Vec::new();
        for (at, (thread, not_before)) in ids.into_iter().enumerate() {
            match read_thread_owner(host, thread) {
                Ok(Some(owner)) => spawns.push(DetectedSpawn {
                    owner,
                    thread,
                    not_before,
                }),
                // Most of these have exited by now.
                Ok(None) if at < repeated => {}
                Ok(None) => self.not_yet_visible.push((thread, not_before)),
                Err(error) => {
                    self.invalidate();
                    return Err(error);
                }
            }
        }
        Ok(Spawns::Found(spawns))
    }
}

/// Reads the new processes and threads of a subject.
fn read_spawns(
    subject: &mut Subject,
    spawns: &Spawns,
    no_spawns: NoSpawnInterval,
) -> Result<(), OsError> {
    match spawns {
        Spawns::None => {}
        Spawns::Found(spawns) => {
            subject.tree.record_no_spawns(no_spawns);
            for spawn in spawns {
                let (owner, thread) = (spawn.owner, spawn.thread);
                let changed = subject.tree.handle_spawn(owner, thread, spawn.not_before)?;
                subject.schedule.request_if(changed);
            }
        }
        Spawns::Unknown => {
            subject.tree.record_no_spawns(no_spawns);
            subject.schedule.set_unlisted_children(true);
            let changed = subject.tree.read_new_threads()?;
            subject.schedule.request_if(changed);
        }
    }
    Ok(())
}

impl Placer {
    pub(super) fn detect_spawns(&mut self, now: Micros) -> Result<(), PlacerError> {
        let processes = self.subjects.values().map(|s| s.tree.len()).sum();
        let spawns = self.spawns.check(&self.reader.host, processes, now)?;
        let mut is_fast = false;
        let mut children_took = Duration::ZERO;
        for subject in self.subjects.values_mut() {
            let expects = subject.expects_spawn(now);
            subject.schedule.request_if(subject.tree.read_execs(now)?);
            read_spawns(subject, &spawns, self.spawns.no_spawns)?;
            // Listing children costs more than detecting threads, so unexpected workers may be
            // found later.
            if subject.schedule.has_unlisted_children() && (expects || now >= self.due.children) {
                let start = self.reader.clock.now()?;
                let parents = subject.parents();
                subject
                    .schedule
                    .request_if(subject.tree.read_children(&parents)?);
                subject.schedule.set_unlisted_children(false);
                let end = self.reader.clock.now()?;
                children_took += Duration::from_micros(end.0.saturating_sub(start.0));
            }
            subject.schedule.request_if(subject.tree.read_names(now));
            is_fast |= expects || subject.tree.awaits_names(now);
        }
        if !children_took.is_zero() {
            let pause = (children_took * CHILDREN_PAUSE_RATIO).min(CHILDREN_PAUSE_MAX);
            self.due.children = after(now, pause);
        }
        let took = Duration::from_micros(self.reader.clock.now()?.0.saturating_sub(now.0));
        let pause = if is_fast {
            self.spawns.expected_micros += took.as_micros() as u64;
            (took * FAST_PAUSE_RATIO).clamp(FAST_PERIOD, FAST_PAUSE_MAX)
        } else {
            let pause = (took * SCAN_PAUSE_RATIO).max(IDLE_PERIOD) * self.slowdown();
            pause.min(SCAN_PAUSE_MAX)
        };
        self.due.spawns = after(now, pause);
        Ok(())
    }
}
