//! One process tree: brings its masks to what the policy asks, pass by pass.

use std::collections::{BTreeMap, BTreeSet};

use albacore_mapping::WorkerIndex;
use albacore_os::{Enclosure, HostRoot, Micros, Pid};
use albacore_plan::limits::LONER_AGE_MICROS;
use albacore_plan::{
    Cause, Enforcement, Ledger, LintInput, Linted, Note, Observation, Placement, Plan, Policy,
    Source, Target, ThreadId, lint, plan,
};
use albacore_topology::{CpuSet, Topology};

use crate::around::Around;
use crate::cache::Tree;
use crate::cpuset::CpusetView;
use crate::execute::{Done, Guard, Outcome, execute};
use crate::limits::{CGROUPS_MAX, PASSES_MAX, RESTORE_ERRORS_MAX, RESTORE_PASSES_MAX};
use crate::process::Reader;
use crate::report::{Figures, Report, Restored};
use crate::solving::{Solved, Solving};
use crate::staying::is_warm;
use crate::{PlacerError, SubjectConfig, SubjectId};

/// What a subject needs of the loop that drives it.
pub(crate) struct Surroundings<'a> {
    pub(crate) reader: &'a Reader,
    pub(crate) machine: &'a Topology,
    /// False while another scheduler runs: everything is done but writing.
    pub(crate) may_write: bool,
    pub(crate) figures: &'a mut Figures,
    pub(crate) report: &'a mut dyn FnMut(&Report),
}

/// A process tree that is placed.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) id: SubjectId,
    /// What the user asked.
    pub(crate) asked: Policy,
    /// What of it can be done.
    pub(crate) policy: Policy,
    source: Source,
    pub(crate) tree: Tree,
    pub(crate) cpuset: CpusetView,
    /// Where its threads are; no other is ever written.
    pub(crate) enclosure: Option<Enclosure>,
    pub(crate) around: Around,
    pub(crate) solved: Solved,
    pub(crate) ledger: Ledger,
    pub(crate) targets: BTreeMap<ThreadId, Target>,
    /// When each target was last found as planned.
    pub(crate) verified_at: BTreeMap<ThreadId, Micros>,
    pub(crate) workers: BTreeMap<WorkerIndex, Pid>,
    pub(crate) respawns: BTreeMap<WorkerIndex, u32>,
    pub(crate) notes: Vec<Note>,
    /// Drifts that were told and not yet repaired: planned and actual mask.
    pub(crate) told: BTreeMap<ThreadId, (CpuSet, CpuSet)>,
    /// Drifts since it was added, and threads that were found on the whole cpuset for no reason of
    /// theirs.
    pub(crate) drifts: BTreeMap<Cause, u64>,
    pub(crate) widened: u64,
    /// Threads whose first mask was verified.
    pub(crate) settled: BTreeSet<ThreadId>,
    pub(crate) added_at: Micros,
    /// A birth is expected until then.
    pub(crate) fast_until: Micros,
    /// Something is to be done at this time although nothing happens until then.
    pub(crate) retry_at: Option<Micros>,
    retries: u32,
    /// The kernel forbade a write: no more are tried before the policy is set anew.
    pub(crate) is_refused: bool,
    /// Masks are to be given back once: its policy asked to enforce before and asks to observe now.
    is_releasing: bool,
    pub(crate) is_dirty: bool,
    /// Something was born on the machine since the children were last listed.
    pub(crate) has_unseen_children: bool,
}

impl Subject {
    pub(crate) fn new(
        id: SubjectId,
        config: &SubjectConfig,
        reader: &Reader,
        limit: Option<CpuSet>,
    ) -> Result<Self, PlacerError> {
        let enclosure = enclose(config, reader)?;
        let mut tree = Tree::new(
            reader.clone(),
            config.root,
            config.source,
            enclosure.clone(),
        );
        tree.read_all()?;
        if !tree.has_root() {
            return Err(PlacerError::RootGone { pid: config.root.0 });
        }
        let cpuset = CpusetView::read(
            &reader.host,
            config.root,
            enclosure.clone(),
            limit,
            reader.descriptors,
        )?;
        // A container waits for cpus: its kubelet is writing, or a cpu is away.
        if cpuset.cpus.is_empty() && enclosure.is_none() {
            let source_file = cpuset.source.display().to_string();
            return Err(PlacerError::EmptyCpuset {
                pid: config.root.0,
                source_file,
            });
        }
        let added_at = reader.clock.now()?;
        Ok(Self {
            id,
            asked: config.policy.clone(),
            policy: config.policy.clone(),
            around: Around::default(),
            drifts: BTreeMap::new(),
            widened: 0,
            source: config.source,
            tree,
            cpuset,
            enclosure,
            solved: Solved::default(),
            ledger: Ledger::default(),
            targets: BTreeMap::new(),
            verified_at: BTreeMap::new(),
            workers: BTreeMap::new(),
            respawns: BTreeMap::new(),
            notes: Vec::new(),
            told: BTreeMap::new(),
            settled: BTreeSet::new(),
            added_at,
            fast_until: Micros(0),
            retry_at: None,
            retries: 0,
            is_refused: false,
            is_releasing: false,
            is_dirty: true,
            has_unseen_children: true,
        })
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        let enforced = self.policy.enforcement == Enforcement::Enforce || self.is_releasing;
        self.is_releasing = enforced && policy.enforcement == Enforcement::Observe;
        self.asked = policy.clone();
        self.policy = policy;
        self.policy.threads = self.threads_within_quota();
        self.is_refused = false;
        self.retries = 0;
        self.is_dirty = true;
    }

    /// True if a death announced a birth that has not come yet.
    pub(crate) fn expects_birth(&self, now: Micros) -> bool {
        // While it is dirty, its slots are as they were before the death.
        now < self.fast_until && (self.is_dirty || !self.is_complete())
    }

    /// True if every slot is filled.
    fn is_complete(&self) -> bool {
        let slots = match self.source {
            Source::Named => usize::from(self.policy.threads),
            // The peers of other servers come with the first request, whenever that is.
            Source::PreFork => 1,
        };
        let workers = usize::from(self.policy.workers);
        self.workers.len() >= workers && self.ledger.slot_count() >= workers * slots
    }

    /// The processes whose children may be workers: from the root down to the arbiter.
    pub(crate) fn parents(&self) -> Vec<Pid> {
        let root = self.tree.root();
        let mut parents = vec![root];
        let mut at = self.ledger.arbiter().map(|id| id.pid);
        // bound: the depth of the tree
        while let Some(pid) = at.filter(|&pid| pid != root) {
            parents.push(pid);
            let parent = self.tree.get(pid).map(|process| process.parent);
            at = parent.filter(|parent| !parents.contains(parent));
        }
        parents
    }

    /// Finds the cgroups of the root and of some workers; true if they are others than before. A
    /// change of cgroup is a change of cpuset even where the cpus are the same: old kernels wipe
    /// masks then.
    pub(crate) fn find_cgroups(&mut self, host: &HostRoot) -> Result<bool, PlacerError> {
        let workers = self.workers.values().copied().take(CGROUPS_MAX);
        let pids: Vec<Pid> = std::iter::once(self.tree.root()).chain(workers).collect();
        Ok(self.cpuset.find(host, &pids)?)
    }

    fn observe(&self, around: &Surroundings<'_>) -> Result<Observation, PlacerError> {
        self.observe_with(around.reader, around.machine)
    }

    /// Looks what a former life left.
    pub(crate) fn adopt_found(
        &mut self,
        reader: &Reader,
        machine: &Topology,
    ) -> Result<(), PlacerError> {
        let observation = self.observe_with(reader, machine)?;
        self.adopt(&observation);
        Ok(())
    }

    fn observe_with(
        &self,
        reader: &Reader,
        machine: &Topology,
    ) -> Result<Observation, PlacerError> {
        Ok(Observation {
            at: reader.clock.now()?,
            machine: machine.clone(),
            cpuset: self.cpuset.cpus.clone(),
            cpuset_changes: self.cpuset.changes,
            source: self.source,
            processes: self.tree.observed(),
        })
    }

    /// Whether it is placed by the solver and its threads go where that says.
    pub(crate) fn is_placed(&self) -> bool {
        self.policy.placement == Placement::Tuna
            && self.policy.enforcement == Enforcement::Enforce
            && !self.is_refused
            && self.tree.has_root()
    }

    /// Whether it has had time to touch its memory.
    pub(crate) fn is_warm(&self, now: Micros) -> bool {
        let root = self.tree.get(self.tree.root());
        root.is_some_and(|root| is_warm(root.not_before, now))
    }

    fn guard(&self) -> Guard<'_> {
        Guard {
            enclosure: self.enclosure.as_ref(),
            is_limited: self.cpuset.is_limited(),
        }
    }

    fn writes(&self, around: &Surroundings<'_>) -> bool {
        around.may_write && self.policy.enforcement == Enforcement::Enforce && !self.is_refused
    }

    /// Writes all masks again that are left as they are because somebody else changed them.
    pub(crate) fn retry_now(&mut self) {
        self.ledger.forget_changes();
        self.is_dirty = true;
    }

    /// Brings masks to what is asked, and notes when that is to be tried again.
    pub(crate) fn converge(&mut self, around: &mut Surroundings<'_>) -> Result<(), PlacerError> {
        self.is_dirty = false;
        self.retry_at = None;
        if std::mem::take(&mut self.is_releasing) {
            let (subject, restored) = (self.id, self.restore(around));
            (around.report)(&Report::Released { subject, restored });
        }
        self.pass(around)?;
        let now = around.reader.clock.now()?;
        let retry = self.ledger.next_retry(now);
        self.retry_at = [self.retry_at, retry].into_iter().flatten().min();
        Ok(())
    }

    /// Observes, plans, lints, pins, verifies and reports until nothing is left to do.
    fn pass(&mut self, around: &mut Surroundings<'_>) -> Result<(), PlacerError> {
        for _ in 0..PASSES_MAX {
            self.cpuset.settle();
            let observation = self.observe(around)?;
            match self.solved.update(&self.policy, &observation)? {
                Solving::Nothing | Solving::Current => {}
                Solving::Fresh(took) => self.tell_planned(took, around),
                Solving::Later(wait) => {
                    let now = around.reader.clock.now()?;
                    self.retry_at = Some(Micros(now.0 + wait.as_micros() as u64 + 1));
                    return Ok(());
                }
            }
            let is_placed = self.policy.placement != Placement::None;
            let pair = self.solved.pair().filter(|_| is_placed);
            let mapping = pair.map(|(_, mapping)| mapping);
            let proposed = plan(&self.policy, &observation, mapping, &self.ledger);
            let input = LintInput {
                policy: &self.policy,
                observation: &observation,
                ledger: &self.ledger,
                solved: pair,
            };
            let mut linted = lint(proposed, &input)?;
            self.tell_found(&linted, around)?;
            let done = if self.writes(around) {
                let calls = &mut around.figures.setaffinity_calls;
                execute(around.reader, &linted, &self.guard(), calls)
            } else {
                Vec::new()
            };
            let refusal = self.settle(&mut linted, &done, around)?;
            self.ledger = linted.into_ledger();
            if let Some(error) = refusal {
                self.is_refused = true;
                return Err(PlacerError::NotPermitted(error));
            }
            if done.is_empty() {
                self.retries = 0;
                let may_not_fork = self.policy.workers == 1 && self.workers.is_empty();
                if self.source == Source::PreFork && may_not_fork {
                    // A server that does not fork becomes its own worker by age alone.
                    let now = around.reader.clock.now()?;
                    self.retry_at = Some(Micros(now.0 + LONER_AGE_MICROS / 6));
                }
                return Ok(());
            }
            self.look_again(around)?;
        }
        // Somebody writes faster than we do, or a step fails: later, and each time later.
        self.retries = (self.retries + 1).min(6);
        let now = around.reader.clock.now()?;
        self.retry_at = Some(Micros(now.0 + (20_000 << self.retries)));
        Ok(())
    }

    /// Takes over what the steps did; the first refusal of the kernel, if there was one.
    fn settle(
        &mut self,
        linted: &mut Plan<Linted>,
        done: &[Done],
        around: &mut Surroundings<'_>,
    ) -> Result<Option<albacore_os::MaskError>, PlacerError> {
        let now = around.reader.clock.now()?;
        let mut refusal = None;
        for Done { step, outcome } in done {
            let (pid, tid) = (step.process.pid, step.thread.tid);
            let mask = match outcome {
                Outcome::Verified => {
                    linted.confirm(step);
                    Some(&step.mask)
                }
                Outcome::Differs { actual } => {
                    if let Some(note) = linted.contradict(step) {
                        self.tell_note(&note, around);
                    }
                    Some(actual)
                }
                Outcome::Gone => {
                    self.tree.forget_thread(pid, tid);
                    None
                }
                Outcome::Outside => {
                    self.tree.remove(pid);
                    None
                }
                Outcome::Stale | Outcome::NotPermitted(_) => None,
                Outcome::Failed(reason) => {
                    let (subject, reason) = (self.id, reason.clone());
                    (around.report)(&Report::StepFailed {
                        subject,
                        tid,
                        reason,
                    });
                    None
                }
            };
            if let Some(mask) = mask
                && let Some(known) = self.tree.thread_mut(pid, tid)
            {
                known.mask = mask.clone();
                known.read_at = now;
            }
        }
        self.targets = linted.targets.clone();
        self.tell_verified(linted, done, around);
        for one in done {
            if let Outcome::NotPermitted(error) = &one.outcome
                && refusal.is_none()
            {
                let albacore_os::MaskError::NotPermitted { tid } = error else {
                    continue;
                };
                refusal = Some(albacore_os::MaskError::NotPermitted { tid: *tid });
            }
        }
        Ok(refusal)
    }

    /// Reads again what the steps may have met: threads born of threads that were not pinned yet,
    /// another cpuset. Masks come first: an old kernel wipes them with every change of a cpuset,
    /// and whoever reads them after the cpuset blames the server for a change that is not known
    /// yet.
    fn look_again(&mut self, around: &mut Surroundings<'_>) -> Result<(), PlacerError> {
        let parents = self.parents();
        self.tree.read_children(&parents)?;
        self.tree.read_births()?;
        self.tree.read_masks()?;
        self.find_cgroups(&around.reader.host)?;
        if self.cpuset.update(&around.reader.host)? {
            let cpuset = self.cpuset.cpus.clone();
            (around.report)(&Report::CpusetChanged {
                subject: self.id,
                cpuset,
            });
        }
        Ok(())
    }

    /// Gives every mask back, whatever fails, until a look at the tree finds nothing left to give
    /// back.
    pub(crate) fn restore(&mut self, around: &mut Surroundings<'_>) -> Restored {
        let mut restored = Restored::default();
        let mut given = BTreeSet::new();
        let policy = Policy {
            placement: Placement::None,
            ..self.policy.clone()
        };
        for _ in 0..RESTORE_PASSES_MAX {
            restored.errors.clear();
            restored.errors_total = 0;
            let mut fail = |reason: String| {
                restored.errors_total += 1;
                if restored.errors.len() < RESTORE_ERRORS_MAX {
                    restored.errors.push(reason);
                }
            };
            // Errors of reading leave what was read before: better than giving nothing back.
            if let Err(e) = self.refresh(around) {
                fail(e.to_string());
            }
            let linted = match self.plan_restore(&policy, around) {
                Ok(linted) => linted,
                Err(e) => {
                    fail(e.to_string());
                    break;
                }
            };
            let mut linted = linted;
            let calls = &mut around.figures.setaffinity_calls;
            let done = execute(around.reader, &linted, &self.guard(), calls);
            for Done { step, outcome } in &done {
                match outcome {
                    Outcome::Verified => {
                        linted.confirm(step);
                        given.insert(step.thread);
                    }
                    Outcome::Gone | Outcome::Outside => {}
                    Outcome::Differs { actual } => fail(format!(
                        "thread {} has {actual} instead of {}",
                        step.thread.tid.0, step.mask
                    )),
                    Outcome::Stale => {
                        fail(format!("thread {}: the cpuset changed", step.thread.tid.0))
                    }
                    Outcome::NotPermitted(e) => fail(e.to_string()),
                    Outcome::Failed(reason) => fail(reason.clone()),
                }
            }
            self.ledger = linted.into_ledger();
            self.targets.clear();
            if done.is_empty() {
                break;
            }
        }
        restored.count = given.len();
        restored
    }

    fn refresh(&mut self, around: &Surroundings<'_>) -> Result<(), PlacerError> {
        let host = &around.reader.host;
        self.cpuset.update(host)?;
        if albacore_os::read_stat(host, self.tree.root()).is_ok_and(|stat| !stat.is_dead()) {
            self.tree.read_all()?;
        }
        self.tree.read_masks()?;
        Ok(())
    }

    fn plan_restore(
        &self,
        policy: &Policy,
        around: &Surroundings<'_>,
    ) -> Result<Plan<Linted>, PlacerError> {
        let observation = self.observe(around)?;
        let proposed = plan(policy, &observation, None, &self.ledger);
        let input = LintInput {
            policy,
            observation: &observation,
            ledger: &self.ledger,
            solved: None,
        };
        Ok(lint(proposed, &input)?)
    }
}

/// Finds out where the threads of a subject are. Its root must be a process that may be placed.
fn enclose(config: &SubjectConfig, reader: &Reader) -> Result<Option<Enclosure>, PlacerError> {
    let (host, pid) = (&reader.host, config.root.0);
    let stat = match albacore_os::read_stat(host, config.root) {
        Ok(stat) => stat,
        Err(e) if e.is_gone() => return Err(PlacerError::RootGone { pid }),
        Err(e) => return Err(e.into()),
    };
    if pid <= 1 || stat.is_kernel {
        let what = if stat.is_kernel {
            "a thread of the kernel"
        } else {
            "the init process"
        };
        return Err(PlacerError::Forbidden { pid, what });
    }
    let Some(cgroup) = &config.cgroup else {
        return Ok(None);
    };
    let cgroup = cgroup.clone();
    match Enclosure::of(host, &cgroup, config.root) {
        Ok(Some(enclosure)) => Ok(Some(enclosure)),
        Ok(None) => Err(PlacerError::OutsideCgroup {
            pid,
            cgroup: cgroup.directory,
        }),
        Err(e) if e.is_gone() => Err(PlacerError::RootGone { pid }),
        Err(e) => Err(e.into()),
    }
}
