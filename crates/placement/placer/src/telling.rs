//! What a subject tells: turns plans and outcomes into reports, each thing once.

use std::time::Duration;

use albacore_mapping::{Rank, Slot, WorkerIndex};
use albacore_os::{Micros, Pid};
use albacore_plan::{Cause, Linted, Note, Placement, Plan, StepKind, Target, ThreadId, plan_hash};

use crate::PlacerError;
use crate::execute::{Done, Outcome};
use crate::report::{BirthKind, Report};
use crate::state::SubjectState;
use crate::subject::{Subject, Surroundings};
use crate::table::{Row, RowState};

/// A thread that is born this long after its process was not born with it.
const BORN_TOGETHER_MICROS: u64 = 1_000_000;

impl Subject {
    pub(crate) fn tell_planned(&self, took: Duration, around: &mut Surroundings<'_>) {
        around.figures.solves += 1;
        let Some(solution) = self.solved.solution() else {
            return;
        };
        (around.report)(&Report::Planned {
            subject: self.id,
            cpuset: self.cpuset.cpus.clone(),
            objective: solution.certificate.objective,
            bound: solution.certificate.bound,
            optimal: solution.certificate.optimal,
            relaxed: solution.certificate.relaxed.clone(),
            solve_micros: took.as_micros() as u64,
            mapping: solution.mapping.clone(),
        });
    }

    /// Tells of workers, drifts and notes that are new with this plan.
    pub(crate) fn tell_found(
        &mut self,
        plan: &Plan<Linted>,
        around: &mut Surroundings<'_>,
    ) -> Result<(), PlacerError> {
        self.tell_workers(plan, around);
        for drift in &plan.drifts {
            let masks = (drift.planned.clone(), drift.actual.clone());
            if self.told.get(&drift.thread) == Some(&masks) {
                continue;
            }
            around.figures.drifts += 1;
            *self.drifts.entry(drift.cause).or_insert(0) += 1;
            let is_lost = matches!(drift.cause, Cause::CpusetChange | Cause::Hotplug);
            if is_lost && drift.actual == self.cpuset.cpus {
                self.widened += 1;
                around.figures.widened += 1;
            }
            self.verified_at.remove(&drift.thread);
            self.told.insert(drift.thread, masks);
            (around.report)(&Report::Drift {
                subject: self.id,
                slot: drift.slot,
                pid: drift.process.pid,
                tid: drift.thread.tid,
                planned: drift.planned.clone(),
                actual: drift.actual.clone(),
                cause: drift.cause,
            });
        }
        let mut notes = plan.notes.clone();
        notes.extend(self.around_notes());
        for note in notes.iter().filter(|note| !self.notes.contains(note)) {
            self.tell_note(note, around);
        }
        self.notes = notes;
        Ok(())
    }

    /// Tells what is odd.
    pub(crate) fn tell_note(&self, note: &Note, around: &mut Surroundings<'_>) {
        let report = match note {
            Note::BackedOff {
                thread,
                slot,
                back_off,
            } => Report::BackedOff {
                subject: self.id,
                slot: *slot,
                tid: thread.tid,
                back_off: *back_off,
            },
            note => Report::Note {
                subject: self.id,
                note: note.clone(),
            },
        };
        (around.report)(&report);
    }

    fn tell_workers(&mut self, plan: &Plan<Linted>, around: &mut Surroundings<'_>) {
        let live: Vec<(WorkerIndex, Pid)> = plan
            .ledger()
            .workers()
            .map(|(worker, id)| (worker, id.pid))
            .collect();
        let subject = self.id;
        for (worker, pid) in live.iter().copied() {
            let before = self.workers.insert(worker, pid);
            if before == Some(pid) {
                continue;
            }
            if let Some(pid) = before {
                (around.report)(&Report::WorkerGone {
                    subject,
                    worker,
                    pid,
                });
            }
            let is_first = !self.respawns.contains_key(&worker);
            let respawns = self.respawns.entry(worker).or_insert(0);
            if !is_first {
                *respawns += 1;
                around.figures.respawns += 1;
            }
            let respawns = *respawns;
            (around.report)(&Report::WorkerBorn {
                subject,
                worker,
                pid,
                respawns,
            });
        }
        let gone: Vec<WorkerIndex> = self
            .workers
            .keys()
            .copied()
            .filter(|w| !live.iter().any(|(l, _)| l == w))
            .collect();
        for worker in gone {
            if let Some(pid) = self.workers.remove(&worker) {
                (around.report)(&Report::WorkerGone {
                    subject,
                    worker,
                    pid,
                });
            }
        }
    }

    /// Tells of masks that were written and verified, and notes when each target was last found as
    /// planned.
    pub(crate) fn tell_verified(
        &mut self,
        plan: &Plan<Linted>,
        done: &[Done],
        around: &mut Surroundings<'_>,
    ) {
        let live = |thread: &ThreadId| plan.targets.contains_key(thread);
        self.settled.retain(live);
        self.told.retain(|thread, _| live(thread));
        self.verified_at.retain(|thread, _| live(thread));
        for (&thread, target) in &plan.targets {
            let (pid, tid) = (target.process.pid, thread.tid);
            let Some(known) = self.tree.thread(pid, tid).filter(|k| k.mask == target.mask) else {
                continue;
            };
            let (read_at, not_before) = (known.read_at, known.not_before);
            self.verified_at.insert(thread, read_at);
            self.told.remove(&thread);
            let kind = self.kind(target, not_before);
            let is_first = target.slot.is_some() && self.settled.insert(thread);
            let birth = (is_first && not_before > self.added_at)
                .then(|| read_at.0.saturating_sub(not_before.0));
            match (kind, birth) {
                (BirthKind::Respawn, Some(micros)) => around.figures.respawn_micros.record(micros),
                (BirthKind::NewThread, Some(micros)) => {
                    around.figures.new_thread_micros.record(micros);
                }
                _ => {}
            }
            let is_written = |d: &&Done| d.step.thread == thread && d.step.kind == StepKind::Pin;
            let Some(Done {
                step,
                outcome: Outcome::Verified,
            }) = done.iter().find(is_written)
            else {
                continue;
            };
            (around.report)(&Report::Pinned {
                subject: self.id,
                slot: target.slot,
                pid,
                tid,
                mask: step.mask.clone(),
                cause: step.cause,
                birth_to_verified_micros: birth,
                kind,
            });
        }
    }

    fn kind(&self, target: &Target, not_before: Micros) -> BirthKind {
        let process = self.tree.get(target.process.pid);
        let born = process.map_or(Micros(0), |process| process.not_before);
        let is_young = not_before.0.saturating_sub(born.0) < BORN_TOGETHER_MICROS;
        let is_respawn = self.respawns.get(&target.worker).is_some_and(|&n| n > 0);
        match (is_young, is_respawn) {
            (true, true) => BirthKind::Respawn,
            (true, false) => BirthKind::Start,
            (false, _) if not_before <= self.added_at => BirthKind::Start,
            (false, _) => BirthKind::NewThread,
        }
    }

    /// Notes that all targets whose masks were read as planned are verified as of now.
    pub(crate) fn note_verified(&mut self) {
        for (thread, target) in &self.targets {
            let (pid, tid) = (target.process.pid, thread.tid);
            if let Some(known) = self.tree.thread(pid, tid)
                && known.mask == target.mask
            {
                self.verified_at.insert(*thread, known.read_at);
            }
        }
    }

    /// How it stands as a whole.
    pub(crate) fn state(&self, topology_hash: u64) -> SubjectState {
        let pair = self.solved.pair();
        SubjectState {
            subject: self.id,
            cpuset: self.cpuset.cpus.clone(),
            policy: self.policy.clone(),
            threads_asked: self.asked.threads,
            workers_found: self.workers.len(),
            notes: self.notes.clone(),
            drifts: self.drifts.clone(),
            widened: self.widened,
            respawns: self.respawns.values().map(|&n| u64::from(n)).sum(),
            entered: self.around.entered,
            quota: self.around.quota,
            is_throttled: self.around.is_throttled,
            is_refused: self.is_refused,
            plan_hash: pair.map(|(problem, mapping)| plan_hash(problem, mapping)),
            topology_hash,
        }
    }

    /// One row per slot.
    pub(crate) fn rows(&self, now: Micros) -> Vec<Row> {
        let slots = (0..self.policy.workers).flat_map(|worker| {
            (0..self.policy.threads).map(move |rank| Slot {
                worker: WorkerIndex(worker),
                rank: Rank(rank),
            })
        });
        slots.map(|slot| self.row(slot, now)).collect()
    }

    fn row(&self, slot: Slot, now: Micros) -> Row {
        let thread = self.ledger.thread_in(slot);
        let pid = self.workers.get(&slot.worker).copied();
        let known = thread
            .zip(pid)
            .and_then(|(t, pid)| self.tree.thread(pid, t.tid));
        let known = known.filter(|known| Some(known.id) == thread);
        let target = thread.and_then(|thread| self.targets.get(&thread));
        let planned = target.map(|target| target.mask.clone()).or_else(|| {
            let cpu = self.solved.solution().and_then(|s| s.mapping.cpu(slot))?;
            Some([cpu].into_iter().collect())
        });
        let verified = thread.and_then(|thread| self.verified_at.get(&thread));
        let actual = known.map(|known| known.mask.clone());
        let state = match (thread, &actual) {
            _ if self.policy.placement == Placement::None => RowState::Unplaced,
            (_, None) | (None, _) => RowState::Missing,
            (_, actual) if *actual == planned => RowState::Verified,
            (Some(thread), _) if self.ledger.back_off(thread, now).is_some() => RowState::BackedOff,
            _ => RowState::Drifted,
        };
        Row {
            subject: self.id,
            slot,
            pid,
            tid: known.map(|known| known.id.tid),
            planned: planned.filter(|_| self.policy.placement != Placement::None),
            actual,
            verified_micros_ago: verified.map(|at| now.0.saturating_sub(at.0)),
            respawns: self.respawns.get(&slot.worker).copied().unwrap_or(0),
            state,
        }
    }
}
