//! Looks for births where nothing announces them: by the last id that the machine gave to a process
//! or thread.
//!
//! **Problem.** A server of hundreds of processes is looked at fifty times a second, and on a busy
//! machine something is born between any two looks. **Approach.** Ids are given out in order, so
//! those between the counter's last two values are all that were born: a few are asked whose they
//! are, many cost more than asking each process for its number of threads. **Limits.** An id is
//! given out a moment before its thread can be seen, so who is not there is asked for once more; an
//! id that somebody chose (a restored checkpoint) is found when the tree is read.

use std::time::Duration;

use albacore_os::{Family, Micros, OsError, Tid, read_family};

use super::{Placer, after};
use crate::PlacerError;
use crate::limits::{
    CHILDREN_PAUSE_MAX, CHILDREN_PAUSE_RATIO, FAST_PAUSE_MAX, FAST_PAUSE_RATIO, FAST_PERIOD,
    IDLE_PERIOD, LOOKS_PER_BIRTH, SCAN_PAUSE_MAX, SCAN_PAUSE_RATIO,
};
use crate::process::Quiet;

/// A birth, and a time before which it cannot have been.
struct Newborn {
    family: Family,
    thread: Tid,
    not_before: Micros,
}

/// Who was born since the last look.
enum Born {
    Nobody,
    These(Vec<Newborn>),
    Anybody,
}

impl Placer {
    pub(super) fn look_for_births(&mut self, now: Micros) -> Result<(), PlacerError> {
        let born = self.who_was_born(now)?;
        let mut is_fast = false;
        let mut children_took = Duration::ZERO;
        for subject in self.subjects.values_mut() {
            let expects = subject.expects_birth(now);
            subject.is_dirty |= subject.tree.read_execs(now)?;
            match &born {
                Born::Nobody => {}
                Born::These(births) => {
                    subject.tree.note_quiet(self.quiet);
                    for birth in births {
                        subject.is_dirty |= subject.tree.take_birth(
                            birth.family,
                            birth.thread,
                            birth.not_before,
                        )?;
                    }
                }
                Born::Anybody => {
                    subject.tree.note_quiet(self.quiet);
                    subject.has_unseen_children = true;
                    subject.is_dirty |= subject.tree.read_births()?;
                }
            }
            // A worker that nobody waits for may be found later than a thread: asking for children
            // costs more.
            if subject.has_unseen_children && (expects || now >= self.due.children) {
                let start = self.reader.clock.now()?;
                let parents = subject.parents();
                subject.is_dirty |= subject.tree.read_children(&parents)?;
                subject.has_unseen_children = false;
                let end = self.reader.clock.now()?;
                children_took += Duration::from_micros(end.0.saturating_sub(start.0));
            }
            subject.is_dirty |= subject.tree.read_names(now);
            is_fast |= expects || subject.tree.awaits_names(now);
        }
        if !children_took.is_zero() {
            let pause = (children_took * CHILDREN_PAUSE_RATIO).min(CHILDREN_PAUSE_MAX);
            self.due.children = after(now, pause);
        }
        let took = Duration::from_micros(self.reader.clock.now()?.0.saturating_sub(now.0));
        let pause = if is_fast {
            self.fast_micros += took.as_micros() as u64;
            (took * FAST_PAUSE_RATIO).clamp(FAST_PERIOD, FAST_PAUSE_MAX)
        } else {
            let pause = (took * SCAN_PAUSE_RATIO).max(IDLE_PERIOD) * self.slowdown();
            pause.min(SCAN_PAUSE_MAX)
        };
        self.due.births = after(now, pause);
        Ok(())
    }

    fn who_was_born(&mut self, now: Micros) -> Result<Born, OsError> {
        let last = self.last_pid_file.read()?;
        let before = std::mem::replace(&mut self.last_pid, last);
        let looked_at = std::mem::replace(&mut self.looked_at, now);
        if last == before && self.unseen.is_empty() {
            self.quiet = Quiet {
                since: self.last_pid_at,
                until: now,
            };
            return Ok(Born::Nobody);
        }
        self.last_pid_at = now;
        let mut asked = std::mem::take(&mut self.unseen);
        let again = asked.len();
        // The first look, lost announcements, and ids that begin anew.
        let is_known = before > 0 && last >= before && self.reader.host.is_live();
        let count = again + usize::try_from(last.saturating_sub(before)).unwrap_or(0);
        let processes: usize = self.subjects.values().map(|s| s.tree.len()).sum();
        if !is_known || count > (processes / LOOKS_PER_BIRTH).max(LOOKS_PER_BIRTH) {
            return Ok(Born::Anybody);
        }
        asked.extend((before + 1..=last).map(|id| (Tid(id), looked_at)));
        let mut births = Vec::new();
        for (at, (thread, not_before)) in asked.into_iter().enumerate() {
            match read_family(&self.reader.host, thread) {
                Ok(Some(family)) => births.push(Newborn {
                    family,
                    thread,
                    not_before,
                }),
                // Ended by now, most of them.
                Ok(None) if at < again => {}
                Ok(None) => self.unseen.push((thread, not_before)),
                Err(error) => {
                    self.last_pid = -1;
                    return Err(error);
                }
            }
        }
        Ok(Born::These(births))
    }
}
