//! Converts plans and outcomes to reports, each fact once.

use std::time::Duration;

use albacore_os::Micros;
use albacore_plan::{
    Linted, PlacementMethod, PlacementWarning, Plan, StepKind, Target, ThreadId, plan_hash,
};
use albacore_solver::Slot;

use crate::execute::{ExecutedStep, StepOutcome};
use crate::report::{Report, SpawnKind};
use crate::state::SubjectState;
use crate::table::{FrontRow, SlotRow, SlotState};

use super::worker_history::WorkerChange;
use super::{PassContext, Subject};

/// A thread spawned later than this after its process does not count as spawned with it.
const SPAWNED_TOGETHER_MICROS: u64 = 1_000_000;

impl Subject {
    pub(crate) fn report_planned(&self, took: Duration, context: &mut PassContext<'_>) {
        context.figures.solves += 1;
        let Some(solution) = self.solver.solution() else {
            return;
        };
        (context.report)(&Report::Planned {
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

    /// Reports workers, drifts and warnings that are new in this plan.
    pub(super) fn report_found(&mut self, plan: &Plan<Linted>, context: &mut PassContext<'_>) {
        self.report_workers(plan, context);
        for drift in &plan.drifts {
            let Some(new) = self.verification.add_drift(drift, &self.cpuset.cpus) else {
                continue;
            };
            context.figures.drifts += 1;
            context.figures.widened += u64::from(new.is_widened);
            (context.report)(&Report::Drift {
                subject: self.id,
                slot: drift.slot,
                front: front_of(plan, drift.thread),
                pid: drift.process.pid,
                tid: drift.thread.tid,
                planned: drift.planned.clone(),
                actual: drift.actual.clone(),
                cause: drift.cause,
            });
        }
        let mut warnings = plan.warnings.clone();
        warnings.extend(self.container_warnings());
        for warning in warnings
            .iter()
            .filter(|warning| !self.warnings.contains(warning))
        {
            self.report_warning(warning, context);
        }
        self.warnings = warnings;
        self.shape = plan.shape;
    }

    pub(super) fn report_warning(&self, warning: &PlacementWarning, context: &mut PassContext<'_>) {
        let report = match warning {
            PlacementWarning::BackedOff {
                thread,
                slot,
                back_off,
            } => Report::BackedOff {
                subject: self.id,
                slot: *slot,
                tid: thread.tid,
                back_off: *back_off,
            },
            warning => Report::Warning {
                subject: self.id,
                warning: warning.clone(),
            },
        };
        (context.report)(&report);
    }

    fn report_workers(&mut self, plan: &Plan<Linted>, context: &mut PassContext<'_>) {
        let workers = plan.history().workers();
        let live = workers.map(|(worker, id)| (worker, id.pid)).collect();
        let subject = self.id;
        for change in self.workers.update(&live) {
            let report = match change {
                WorkerChange::Exited { worker, pid } => Report::WorkerExited {
                    subject,
                    worker,
                    pid,
                },
                WorkerChange::Spawned {
                    worker,
                    pid,
                    respawns,
                } => {
                    context.figures.respawns += u64::from(respawns > 0);
                    Report::WorkerSpawned {
                        subject,
                        worker,
                        pid,
                        respawns,
                    }
                }
            };
            (context.report)(&report);
        }
    }

    /// Reports masks that were written and verified, and records when each target was last found as
    /// planned.
    pub(super) fn report_verified(
        &mut self,
        plan: &Plan<Linted>,
        executed: &[ExecutedStep],
        context: &mut PassContext<'_>,
    ) {
        self.verification.retain(&plan.targets);
        for (&thread, target) in &plan.targets {
            let (pid, tid) = (target.process.pid, thread.tid);
            let Some(cached) = self.tree.thread(pid, tid).filter(|t| t.mask == target.mask) else {
                continue;
            };
            let (read_at, not_before) = (cached.read_at, cached.not_before);
            self.verification.verify(thread, read_at);
            self.verification.end_drift(thread);
            let kind = self.spawn_kind(target, not_before);
            let is_first =
                target.role.slot().is_some() && self.verification.is_first_placement(thread);
            let latency = (is_first && not_before > self.added_at)
                .then(|| read_at.0.saturating_sub(not_before.0));
            match (kind, latency) {
                (SpawnKind::Respawn, Some(micros)) => context.figures.respawn_micros.record(micros),
                (SpawnKind::NewThread, Some(micros)) => {
                    context.figures.new_thread_micros.record(micros);
                }
                _ => {}
            }
            let is_pin =
                |one: &&ExecutedStep| one.step.thread == thread && one.step.kind == StepKind::Pin;
            if let Some(ExecutedStep {
                step,
                outcome: StepOutcome::Verified,
            }) = executed.iter().find(is_pin)
            {
                (context.report)(&Report::Pinned {
                    subject: self.id,
                    slot: target.role.slot(),
                    front: target.role.front(),
                    pid,
                    tid,
                    mask: step.mask.clone(),
                    cause: step.cause,
                    spawn_to_verified_micros: latency,
                    kind,
                });
            }
        }
    }

    fn spawn_kind(&self, target: &Target, not_before: Micros) -> SpawnKind {
        let process = self.tree.get(target.process.pid);
        let born = process.map_or(Micros(0), |process| process.not_before);
        let is_young = not_before.0.saturating_sub(born.0) < SPAWNED_TOGETHER_MICROS;
        let worker = target.role.worker();
        let is_respawn = worker.is_some_and(|worker| self.workers.respawns(worker) > 0);
        match (is_young, is_respawn) {
            (true, true) => SpawnKind::Respawn,
            (true, false) => SpawnKind::Start,
            (false, _) if not_before <= self.added_at => SpawnKind::Start,
            (false, _) => SpawnKind::NewThread,
        }
    }

    /// Marks all targets whose masks were read as planned as verified now.
    pub(crate) fn record_verified(&mut self) {
        let mut verified = Vec::new();
        for (&thread, target) in self.verification.targets() {
            if let Some(cached) = self.tree.thread(target.process.pid, thread.tid)
                && cached.mask == target.mask
            {
                verified.push((thread, cached.read_at));
            }
        }
        for (thread, at) in verified {
            self.verification.verify(thread, at);
        }
    }

    /// The overall state of the subject.
    pub(crate) fn state(&self, topology_hash: u64) -> SubjectState {
        let pair = self.solver.pair();
        SubjectState {
            subject: self.id,
            cpuset: self.cpuset.cpus.clone(),
            policy: self.policy().clone(),
            threads_requested: self.policy.requested().threads,
            workers_found: self.workers.count(),
            shape: self.shape,
            warnings: self.warnings.clone(),
            drifts: self.verification.drifts().clone(),
            widened: self.verification.widened(),
            respawns: self.workers.total_respawns(),
            foreign_processes: self.container.foreign_processes,
            quota: self.container.quota,
            is_throttled: self.container.is_throttled,
            is_refused: self.policy.is_refused(),
            front: self.front_rows(),
            plan_hash: pair.map(|(problem, mapping)| plan_hash(problem, mapping)),
            mapping: pair.map(|(_, mapping)| mapping.clone()),
            is_solved: self.is_solved(),
            obstacle_cpus: self.obstacle_cpus(),
            hot_threads: self.hot_threads(),
            topology_hash,
        }
    }

    /// One row per slot.
    pub(crate) fn rows(&self, now: Micros) -> Vec<SlotRow> {
        let slots = Slot::all(self.policy().workers, self.policy().threads);
        slots.map(|slot| self.row(slot, now)).collect()
    }

    /// One row per event loop of the front end, by process and index.
    fn front_rows(&self) -> Vec<FrontRow> {
        let targets = self.verification.targets().iter();
        let mut rows: Vec<FrontRow> = targets
            .filter_map(|(thread, target)| self.front_row(*thread, target))
            .collect();
        rows.sort_by_key(|row| (row.pid, row.index));
        rows
    }

    fn front_row(&self, thread: ThreadId, target: &Target) -> Option<FrontRow> {
        let index = target.role.front()?;
        let pid = target.process.pid;
        let known = self.tree.thread(pid, thread.tid)?;
        Some(FrontRow {
            index,
            pid,
            tid: thread.tid,
            planned: target.mask.clone(),
            actual: known.mask.clone(),
        })
    }

    fn row(&self, slot: Slot, now: Micros) -> SlotRow {
        let thread = self.history.thread_at(slot);
        let pid = self.workers.pid(slot.worker);
        let known = thread
            .zip(pid)
            .and_then(|(t, pid)| self.tree.thread(pid, t.tid));
        let known = known.filter(|known| Some(known.id) == thread);
        let target = thread.and_then(|thread| self.verification.targets().get(&thread));
        let planned = target.map(|target| target.mask.clone()).or_else(|| {
            let cpu = self.solver.solution().and_then(|s| s.mapping.cpu(slot))?;
            Some([cpu].into_iter().collect())
        });
        let verified = thread.and_then(|thread| self.verification.verified_at(thread));
        let actual = known.map(|known| known.mask.clone());
        let state = match (thread, &actual) {
            _ if self.policy().placement == PlacementMethod::None => SlotState::Unplaced,
            (_, None) | (None, _) => SlotState::Missing,
            (_, actual) if *actual == planned => SlotState::Verified,
            (Some(thread), _) if self.history.back_off(thread, now).is_some() => {
                SlotState::BackedOff
            }
            _ => SlotState::Drifted,
        };
        SlotRow {
            subject: self.id,
            slot,
            pid,
            tid: known.map(|known| known.id.tid),
            planned: planned.filter(|_| self.policy().placement != PlacementMethod::None),
            actual,
            verified_micros_ago: verified.map(|at| now.0.saturating_sub(at.0)),
            load: self.load_class(slot),
            respawns: self.workers.respawns(slot.worker),
            state,
        }
    }
}

fn front_of(plan: &Plan<Linted>, thread: ThreadId) -> Option<u16> {
    plan.targets.get(&thread)?.role.front()
}
