//! Handles events: exits of processes, writes to cpusets and quotas, cpu hotplug.

use albacore_os::{Micros, OsError, Pid, PollKey};

use super::{CONNECTOR_KEY, CPUSET_KEY, Placer, QUOTA_KEY, UEVENT_KEY, process_key};
use crate::limits::FAST_TIME_MAX;

impl Placer {
    pub(super) fn handle_file_events(&mut self, keys: &[PollKey]) -> Result<(), OsError> {
        if keys.contains(&CPUSET_KEY) {
            self.handle_cpuset_events()?;
        }
        if keys.contains(&QUOTA_KEY) && self.events.quota_watch.drain()? {
            self.due.container = Micros(0);
        }
        if keys.contains(&UEVENT_KEY)
            && let Some(socket) = &self.events.uevents
        {
            socket.drain()?;
        }
        Ok(())
    }

    /// Handles inotify events of cpuset files.
    pub(super) fn handle_cpuset_events(&mut self) -> Result<(), OsError> {
        if self.events.cpuset_watch.drain()? {
            for subject in self.subjects.values_mut() {
                // A cpuset that was changed and changed back looks the same, but masks may have
                // been overwritten: this counts as a change.
                subject.cpuset.changes += 1;
                subject.schedule.request();
            }
            self.sweep_soon();
        }
        Ok(())
    }

    /// Handles exits: after each, a replacement is expected.
    pub(super) fn handle_exits(&mut self, keys: &[PollKey]) -> Result<(), OsError> {
        let now = self.reader.clock.now()?;
        for subject in self.subjects.values_mut() {
            for &key in keys.iter().filter(|key| key.0 < CONNECTOR_KEY.0) {
                let pid = Pid((key.0 & u64::from(u32::MAX)) as i32);
                if process_key(subject.id(), pid) != key || subject.tree.remove(pid).is_none() {
                    continue;
                }
                subject.schedule.expect_spawn(now, FAST_TIME_MAX);
                self.due.spawns = Micros(0);
            }
        }
        Ok(())
    }

    pub(super) fn watch_files(&mut self) {
        let mut files: Vec<_> = self
            .subjects
            .values()
            .flat_map(|subject| subject.cpuset.watched_files())
            .collect();
        files.sort();
        files.dedup();
        // A file that cannot be watched is only polled; a watch merely triggers an early poll.
        let _ = self.events.cpuset_watch.set(&files);
        let subjects = self.subjects.values();
        let mut files: Vec<_> = subjects
            .flat_map(|subject| subject.quota_files(&self.reader.host))
            .collect();
        files.sort();
        files.dedup();
        let _ = self.events.quota_watch.set(&files);
    }

    pub(super) fn watch_processes(&mut self) -> Result<(), OsError> {
        for subject in self.subjects.values_mut() {
            let id = subject.id();
            for process in subject.tree.unwatched() {
                process.is_watched = true;
                if let Some(pidfd) = &process.pidfd {
                    self.events
                        .poll
                        .add(pidfd, process_key(id, process.pid()))?;
                }
            }
        }
        Ok(())
    }
}
