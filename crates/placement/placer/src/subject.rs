//! One process tree: brings its masks to the state requested by the policy, in passes.

use albacore_os::{CgroupSubtree, HostRoot, MaskError, Micros, Pid};
use albacore_plan::limits::NON_FORKING_AGE_MICROS;
use albacore_plan::{
    LintInput, Linted, Observation, PlacementMethod, PlacementWarning, Plan, PlanHistory,
    ServerKind, ServerShape, SubjectPolicy, lint, plan,
};
use albacore_topology::{CpuSet, Topology};

use crate::cpuset::CpusetView;
use crate::execute::{ExecutedStep, Guard, StepOutcome, execute};
use crate::limits::{CGROUPS_MAX, PASSES_MAX};
use crate::move_hysteresis::is_warm;
use crate::process::{ProcessReader, unless_gone};
use crate::process_tree::ProcessTree;
use crate::report::{PlacerCounters, Report};
use crate::subject_solver::{SolveOutcome, SubjectSolver};
use crate::{PlacerError, SubjectConfig, SubjectId};

mod adopt_masks;
mod container_checks;
mod policy_state;
mod reports;
mod restore;
mod schedule;
mod verification;
mod weights;
mod worker_history;

use container_checks::ContainerState;
use policy_state::PolicyState;
use schedule::PassSchedule;
use verification::Verification;
use weights::WeightState;
use worker_history::WorkerHistory;

/// Context of a pass.
pub(crate) struct PassContext<'a> {
    pub(crate) reader: &'a ProcessReader,
    pub(crate) machine: &'a Topology,
    /// False while another scheduler is active: everything except writing is done.
    pub(crate) may_write: bool,
    pub(crate) figures: &'a mut PlacerCounters,
    pub(crate) report: &'a mut dyn FnMut(&Report),
}

/// A process tree that is placed.
#[derive(Debug)]
pub(crate) struct Subject {
    id: SubjectId,
    server_kind: ServerKind,
    /// The cgroup of its container: threads outside of it are never modified.
    subtree: Option<CgroupSubtree>,
    added_at: Micros,
    pub(crate) tree: ProcessTree,
    pub(crate) cpuset: CpusetView,
    pub(crate) solver: SubjectSolver,
    pub(crate) schedule: PassSchedule,
    policy: PolicyState,
    container: ContainerState,
    history: PlanHistory,
    weights: WeightState,
    verification: Verification,
    workers: WorkerHistory,
    /// Warnings of the last plan.
    warnings: Vec<PlacementWarning>,
    /// Shape in the last plan.
    shape: Option<ServerShape>,
    /// The policy's distances are ignored, because members of a joint problem request different
    /// ones.
    pub(crate) are_distances_ignored: bool,
}

impl Subject {
    pub(crate) fn new(
        id: SubjectId,
        config: &SubjectConfig,
        reader: &ProcessReader,
        limit: Option<CpuSet>,
    ) -> Result<Self, PlacerError> {
        let subtree = find_subtree(config, reader)?;
        let mut tree = ProcessTree::new(
            reader.clone(),
            config.root,
            config.server_kind,
            subtree.clone(),
        );
        tree.read_all()?;
        if !tree.has_root() {
            return Err(PlacerError::RootGone { pid: config.root.0 });
        }
        let cpuset = CpusetView::read(
            &reader.host,
            config.root,
            subtree.clone(),
            limit,
            reader.descriptors,
        )?;
        // A container waits for cpus: its kubelet is changing the cpuset, or a cpu is offline.
        if cpuset.cpus.is_empty() && subtree.is_none() {
            let source_file = cpuset.source.display().to_string();
            return Err(PlacerError::EmptyCpuset {
                pid: config.root.0,
                source_file,
            });
        }
        let added_at = reader.clock.now()?;
        Ok(Self {
            id,
            server_kind: config.server_kind,
            subtree,
            added_at,
            tree,
            cpuset,
            solver: SubjectSolver::default(),
            schedule: PassSchedule::new(),
            policy: PolicyState::new(config.policy.clone()),
            container: ContainerState::default(),
            history: PlanHistory::default(),
            weights: WeightState::default(),
            verification: Verification::default(),
            workers: WorkerHistory::default(),
            warnings: Vec::new(),
            shape: None,
            are_distances_ignored: false,
        })
    }

    pub(crate) fn id(&self) -> SubjectId {
        self.id
    }

    /// The effective policy.
    pub(crate) fn policy(&self) -> &SubjectPolicy {
        self.policy.in_force()
    }

    /// True if only the threads of one container are placed.
    pub(crate) fn is_in_cgroup(&self) -> bool {
        self.subtree.is_some()
    }

    pub(crate) fn set_policy(&mut self, policy: SubjectPolicy) {
        self.policy.set(policy);
        let threads = self.threads_within_quota();
        self.policy.set_threads(threads);
        self.schedule.reset_back_off();
        self.schedule.request();
    }

    /// True if a worker has exited and its replacement was not found yet.
    pub(crate) fn expects_spawn(&self, now: Micros) -> bool {
        // Until the next pass, the history contains the slots from before the exit.
        let is_missing = self.schedule.is_requested() || !self.is_complete();
        self.schedule.expects_spawn(now) && is_missing
    }

    /// True if every slot is filled.
    fn is_complete(&self) -> bool {
        let policy = self.policy();
        let slots = match self.server_kind {
            ServerKind::Named => usize::from(policy.threads),
            // Other servers spawn their peer threads at the first request, at an unknown time.
            ServerKind::PreFork => 1,
        };
        let workers = usize::from(policy.workers);
        self.workers.count() >= workers && self.history.slot_count() >= workers * slots
    }

    /// The processes whose children may be workers: from the root down to the arbiter.
    pub(crate) fn parents(&self) -> Vec<Pid> {
        let root = self.tree.root();
        let mut parents = vec![root];
        let mut at = self.history.arbiter().map(|id| id.pid);
        // bound: the depth of the tree
        while let Some(pid) = at.filter(|&pid| pid != root) {
            parents.push(pid);
            let parent = self.tree.get(pid).map(|process| process.parent);
            at = parent.filter(|parent| !parents.contains(parent));
        }
        parents
    }

    /// Looks up the cgroups of the root and of some workers; true if they changed. A change of
    /// cgroup counts as a change of cpuset even if the cpus are the same, because old kernels
    /// overwrite masks in that case.
    pub(crate) fn find_cgroups(&mut self, host: &HostRoot) -> Result<bool, PlacerError> {
        let workers = self.workers.pids().take(CGROUPS_MAX);
        let pids: Vec<Pid> = std::iter::once(self.tree.root()).chain(workers).collect();
        Ok(self.cpuset.find(host, &pids)?)
    }

    fn observe(
        &self,
        reader: &ProcessReader,
        machine: &Topology,
    ) -> Result<Observation, PlacerError> {
        Ok(Observation {
            at: reader.clock.now()?,
            machine: machine.clone(),
            cpuset: self.cpuset.cpus.clone(),
            cpuset_changes: self.cpuset.changes,
            server_kind: self.server_kind,
            processes: self.tree.observed(),
        })
    }

    /// True if it is placed by the solver and its masks are written.
    pub(crate) fn is_solved(&self) -> bool {
        self.policy.is_solved() && self.tree.has_root()
    }

    /// True if it has had time to touch its memory.
    pub(crate) fn is_warm(&self, now: Micros) -> bool {
        let root = self.tree.get(self.tree.root());
        root.is_some_and(|root| is_warm(root.not_before, now))
    }

    fn guard(&self) -> Guard<'_> {
        Guard {
            subtree: self.subtree.as_ref(),
            is_limited: self.cpuset.is_limited(),
        }
    }

    /// Ends all back-offs: masks that another program keeps changing are written again.
    pub(crate) fn retry_now(&mut self) {
        self.history.clear_changes();
        self.schedule.request();
    }

    /// Brings masks to the requested state, and schedules the next attempt.
    pub(crate) fn converge(&mut self, context: &mut PassContext<'_>) -> Result<(), PlacerError> {
        self.schedule.begin();
        if self.policy.take_release() {
            let (subject, restored) = (self.id, self.restore(context));
            (context.report)(&Report::Released { subject, restored });
        }
        self.run_passes(context)?;
        let now = context.reader.clock.now()?;
        self.schedule.retry_by(self.history.next_retry(now));
        Ok(())
    }

    /// Observes, plans, lints, pins, verifies and reports until there is nothing left to do.
    fn run_passes(&mut self, context: &mut PassContext<'_>) -> Result<(), PlacerError> {
        for _ in 0..PASSES_MAX {
            self.cpuset.count_ongoing_change();
            let observation = self.observe(context.reader, context.machine)?;
            if !self.update_mapping(&observation, context)? {
                return Ok(());
            }
            let mut linted = self.plan_and_lint(&observation)?;
            self.report_found(&linted, context);
            let executed = self.write_masks(&linted, context);
            let refusal = self.record_outcomes(&mut linted, &executed, context)?;
            self.history = linted.into_history();
            if let Some(error) = refusal {
                self.policy.refuse();
                return Err(PlacerError::NotPermitted(error));
            }
            if executed.is_empty() {
                return self.finish_passes(context);
            }
            self.read_changes(context)?;
        }
        self.schedule.back_off(context.reader.clock.now()?);
        Ok(())
    }

    /// Solves the problem for the observation if it changed; false if solving has to wait.
    fn update_mapping(
        &mut self,
        observation: &Observation,
        context: &mut PassContext<'_>,
    ) -> Result<bool, PlacerError> {
        match self.solver.update(self.policy.in_force(), observation)? {
            SolveOutcome::NotNeeded | SolveOutcome::Unchanged => {}
            SolveOutcome::Solved(took) => self.report_planned(took, context),
            SolveOutcome::Deferred(wait) => {
                let now = context.reader.clock.now()?;
                self.schedule.retry_after(Micros(now.0 + 1), wait);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn plan_and_lint(&self, observation: &Observation) -> Result<Plan<Linted>, PlacerError> {
        let policy = self.policy();
        let is_placed = policy.placement != PlacementMethod::None;
        let solved = self.solver.pair().filter(|_| is_placed);
        let mapping = solved.map(|(_, mapping)| mapping);
        let proposed = plan(policy, observation, mapping, &self.history);
        let input = LintInput {
            policy,
            observation,
            history: &self.history,
            solved,
        };
        Ok(lint(proposed, &input)?)
    }

    fn write_masks(
        &self,
        linted: &Plan<Linted>,
        context: &mut PassContext<'_>,
    ) -> Vec<ExecutedStep> {
        if !context.may_write || !self.policy.may_write() {
            return Vec::new();
        }
        let calls = &mut context.figures.setaffinity_calls;
        execute(context.reader, linted, &self.guard(), calls)
    }

    /// Ends the passes after nothing was left to write.
    fn finish_passes(&mut self, context: &PassContext<'_>) -> Result<(), PlacerError> {
        self.schedule.reset_back_off();
        let may_not_fork = self.policy().workers == 1 && self.workers.count() == 0;
        if self.server_kind == ServerKind::PreFork && may_not_fork {
            // A non-forking server is considered its own worker based on age only.
            let pause = std::time::Duration::from_micros(NON_FORKING_AGE_MICROS / 6);
            self.schedule
                .retry_after(context.reader.clock.now()?, pause);
        }
        Ok(())
    }

    /// Records the results of the steps; returns the first permission error, if any.
    fn record_outcomes(
        &mut self,
        linted: &mut Plan<Linted>,
        executed: &[ExecutedStep],
        context: &mut PassContext<'_>,
    ) -> Result<Option<MaskError>, PlacerError> {
        let now = context.reader.clock.now()?;
        let mut refusal = None;
        for one in executed {
            if let Some(mask) = self.record_outcome(linted, one, context) {
                let (pid, tid) = (one.step.process.pid, one.step.thread.tid);
                if let Some(thread) = self.tree.thread_mut(pid, tid) {
                    thread.mask = mask;
                    thread.read_at = now;
                }
            }
            if let StepOutcome::NotPermitted(MaskError::NotPermitted { tid }) = one.outcome {
                refusal.get_or_insert(MaskError::NotPermitted { tid });
            }
        }
        self.verification.set_targets(linted.targets.clone());
        self.report_verified(linted, executed, context);
        Ok(refusal)
    }

    /// Records the result of one step; returns the mask that was read back.
    fn record_outcome(
        &mut self,
        linted: &mut Plan<Linted>,
        executed: &ExecutedStep,
        context: &mut PassContext<'_>,
    ) -> Option<CpuSet> {
        let ExecutedStep { step, outcome } = executed;
        let (pid, tid) = (step.process.pid, step.thread.tid);
        match outcome {
            StepOutcome::Verified => {
                linted.confirm(step);
                return Some(step.mask.clone());
            }
            StepOutcome::Differs { actual } => {
                if let Some(warning) = linted.record_overwritten(step) {
                    self.report_warning(&warning, context);
                }
                return Some(actual.clone());
            }
            StepOutcome::Gone => self.tree.forget_thread(pid, tid),
            StepOutcome::Outside => drop(self.tree.remove(pid)),
            StepOutcome::Stale | StepOutcome::NotPermitted(_) => {}
            StepOutcome::Failed(reason) => (context.report)(&Report::StepFailed {
                subject: self.id,
                tid,
                reason: reason.clone(),
            }),
        }
        None
    }

    /// Reads again what may have changed during the steps: threads spawned by threads that were not
    /// pinned yet, or the cpuset. Masks are read first: an old kernel overwrites them with every
    /// cpuset change, and a mask read after the cpuset would be mistaken for a change by the server
    /// itself.
    fn read_changes(&mut self, context: &mut PassContext<'_>) -> Result<(), PlacerError> {
        let parents = self.parents();
        self.tree.read_children(&parents)?;
        self.tree.read_new_threads()?;
        self.tree.read_masks()?;
        self.find_cgroups(&context.reader.host)?;
        if self.cpuset.update(&context.reader.host)? {
            let cpuset = self.cpuset.cpus.clone();
            (context.report)(&Report::CpusetChanged {
                subject: self.id,
                cpuset,
            });
        }
        Ok(())
    }
}

/// The cgroup subtree of a subject, if it has a cgroup. Its root must be a process that may be
/// placed.
fn find_subtree(
    config: &SubjectConfig,
    reader: &ProcessReader,
) -> Result<Option<CgroupSubtree>, PlacerError> {
    let (host, pid) = (&reader.host, config.root.0);
    let stat = unless_gone(albacore_os::read_stat(host, config.root))?;
    let stat = stat.ok_or(PlacerError::RootGone { pid })?;
    if pid <= 1 || stat.is_kernel {
        let what = if stat.is_kernel {
            "a kernel thread"
        } else {
            "the init process"
        };
        return Err(PlacerError::Forbidden { pid, what });
    }
    let Some(cgroup) = &config.cgroup else {
        return Ok(None);
    };
    let cgroup = cgroup.clone();
    match unless_gone(CgroupSubtree::of(host, &cgroup, config.root))? {
        Some(Some(subtree)) => Ok(Some(subtree)),
        Some(None) => Err(PlacerError::OutsideCgroup {
            pid,
            cgroup: cgroup.directory,
        }),
        None => Err(PlacerError::RootGone { pid }),
    }
}
