//! What is known of the node and of each pod at one moment: what status, events and params are made
//! of.

use albacore_api::{Isolation, counted};
use albacore_placer::{Row, RowState, SubjectState};
use albacore_plan::{Enforcement, Note};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::journal::{BIRTH_ENDS_MS, Story};
use crate::locate::Absence;
use crate::wish::{Aim, Wish};

/// What cpu time a container was refused.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Strain {
    /// Cpus that its quota allows at once; `None` without a quota.
    pub(crate) quota: Option<f64>,
    /// Share of the last period in which it was held back.
    pub(crate) throttled: f64,
    /// Whether it shares its cpus.
    pub(crate) isolation: Isolation,
}

/// What is known of one pod.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PodFacts {
    /// What is wished for it.
    pub(crate) wish: Wish,
    /// Whether the placer has it.
    pub(crate) is_present: bool,
    /// Why the placer has not what is wished for.
    pub(crate) absence: Option<Absence>,
    /// What the placer told of it.
    pub(crate) story: Story,
    /// How the placer says that it stands.
    pub(crate) state: Option<SubjectState>,
    pub(crate) rows: Vec<Row>,
    pub(crate) strain: Strain,
    /// Why its plan was withdrawn, if a trial did that.
    pub(crate) withdrawn: Option<String>,
    /// How far its trial is.
    pub(crate) trial: Option<String>,
    /// Whether that trial has no figures to go by.
    pub(crate) is_trial_blind: bool,
}

/// What holds for the whole node.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Health {
    /// Why no mask is written on this node: a stable word and a sentence; `None` while they are
    /// written.
    pub(crate) idle: Option<(&'static str, String)>,
    /// What does not work: stable words and sentences.
    pub(crate) ills: Vec<(&'static str, String)>,
    /// What the kernel does to masks when cpusets change: `True`, `False` or `Unknown`, a stable
    /// word and a sentence.
    pub(crate) memory: Option<(&'static str, &'static str, String)>,
}

/// Everything that is known at one moment.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Facts {
    /// The pods that opted in, in the order of their names.
    pub(crate) pods: Vec<PodFacts>,
    /// Hash of the machine.
    pub(crate) topology: u64,
    /// Threads by birth-to-verified time.
    pub(crate) births: [u64; BIRTH_ENDS_MS.len() + 1],
    /// Masks that were lost.
    pub(crate) drifts: u64,
    pub(crate) health: Health,
    /// When all masks were last read back.
    pub(crate) verified_at: Option<Time>,
}

/// What the slots of a pod come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) workers: usize,
    /// Workers with every thread as planned.
    pub(crate) workers_verified: usize,
    /// Threads with a planned cpu.
    pub(crate) planned: usize,
    /// Threads read back as planned.
    pub(crate) verified: usize,
    /// Threads that are there.
    pub(crate) alive: usize,
    /// Threads that are left as somebody else pinned them.
    pub(crate) backed_off: usize,
    /// All slots: W x T.
    pub(crate) slots: usize,
}

impl PodFacts {
    /// W and T, if the pod is to be placed.
    pub(crate) fn shape(&self) -> Option<(u16, u16)> {
        match &self.wish.aim {
            Aim::Place { policy, .. } => Some((policy.workers, policy.threads)),
            Aim::Keep { .. } | Aim::Leave { .. } => None,
        }
    }

    /// Whether masks of this pod are written as far as its deployment and the node's rules say.
    pub(crate) fn is_enforced(&self) -> bool {
        matches!(&self.wish.aim, Aim::Place { policy, .. } if policy.enforcement == Enforcement::Enforce)
    }

    /// What its slots come to.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts {
            slots: self.rows.len(),
            ..Counts::default()
        };
        let mut workers: std::collections::BTreeMap<u16, (bool, bool)> = Default::default();
        for row in &self.rows {
            let is_verified = row.state == RowState::Verified;
            counts.planned += usize::from(row.planned.is_some());
            counts.verified += usize::from(is_verified);
            counts.alive += usize::from(row.tid.is_some());
            counts.backed_off += usize::from(row.state == RowState::BackedOff);
            let worker = workers.entry(row.slot.worker.0).or_insert((false, true));
            worker.0 |= row.pid.is_some();
            worker.1 &= is_verified;
        }
        counts.workers = workers.values().filter(|(lives, _)| *lives).count();
        counts.workers_verified = workers.values().filter(|(_, all)| *all).count();
        counts
    }

    /// The plan as a number: equal for the same cpus for the same slots on the same machine,
    /// whoever counts it.
    pub(crate) fn plan_hash(&self, topology: u64) -> Option<u32> {
        plan_hash(&self.rows, topology)
    }

    /// Why the pod or a part of it is not placed; `None` if it is.
    pub(crate) fn reason(&self) -> Option<String> {
        match &self.wish.aim {
            Aim::Leave { reason } => return Some(reason.clone()),
            Aim::Keep { reason } => return Some(format!("as it was before: {reason}")),
            Aim::Place { .. } => {}
        }
        if let Some(withdrawn) = &self.withdrawn {
            return Some(withdrawn.clone());
        }
        if !self.is_present {
            let text = self.absence.as_ref().map(|a| a.text().to_owned());
            return Some(text.unwrap_or_else(|| "its processes are being looked for".to_owned()));
        }
        let counts = self.counts();
        let (workers, threads) = self.shape()?;
        let mut parts: Vec<String> = self.trial.iter().cloned().collect();
        if self.is_cpuset_empty() {
            parts.push("its cpuset has no cpu that is online".to_owned());
        }
        if counts.workers != usize::from(workers) {
            parts.push(format!("found {} of {workers} workers", counts.workers));
        } else if counts.alive < counts.slots {
            let all = counts.slots;
            parts.push(format!(
                "found {} of {all} threads ({threads} in each worker)",
                counts.alive
            ));
        }
        if counts.backed_off > 0 {
            parts.push(self.left_alone(counts.backed_off));
        }
        if self.state.as_ref().is_some_and(|state| state.is_refused) {
            parts.push("the kernel forbids its masks to be written".to_owned());
        }
        if counts.verified < counts.alive && self.is_enforced() {
            parts.extend(self.story.failure.clone());
        }
        if let Some(state) = &self.state {
            let odd = state.notes.iter().filter_map(sentence);
            parts.extend(odd);
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Why threads are left as they are: what is known, when they are tried again, and what helps.
    fn left_alone(&self, threads: usize) -> String {
        let threads = counted(threads, "thread");
        let Some(left) = &self.story.back_off else {
            return format!("{threads}: masks changed by somebody else");
        };
        format!(
            "{threads}: mask changed {} times in {} s by somebody else; next try {}; stop what \
             sets it (OMP_PROC_BIND, taskset) or edit the deployment",
            left.changes,
            left.seconds,
            left.retry_at.strftime("%H:%M:%SZ")
        )
    }

    /// Threads of each worker that its quota of cpu time lets run at once, where that is fewer than
    /// asked.
    pub(crate) fn quota_threads(&self) -> Option<u16> {
        let state = self.state.as_ref()?;
        (state.policy.threads < state.threads_asked).then_some(state.policy.threads)
    }

    /// Whether the container has no cpu to run on.
    pub(crate) fn is_cpuset_empty(&self) -> bool {
        let notes = self.state.iter().flat_map(|state| &state.notes);
        if notes.into_iter().any(|note| *note == Note::EmptyCpuset) {
            return true;
        }
        let is_empty = |cpuset: &albacore_topology::CpuSet| cpuset.is_empty();
        self.story.cpuset.as_ref().is_some_and(is_empty)
            || matches!(self.absence, Some(Absence::EmptyCpuset(_)))
    }
}

/// A note that no table shows, in words.
fn sentence(note: &Note) -> Option<String> {
    match note {
        Note::NameTwice { worker, pid } => Some(format!(
            "process {} claims to be worker {} as well and is not placed",
            pid.0, worker.0
        )),
        Note::PoolSizeUnsafe { worker } => Some(format!(
            "PoolSizeUnsafe: the main thread of worker {} keeps its worker's cpus until its pool is \
             there",
            worker.0
        )),
        _ => None,
    }
}

/// See [`PodFacts::plan_hash`]; `None` where nothing is planned.
pub(crate) fn plan_hash(rows: &[Row], topology: u64) -> Option<u32> {
    let mut planned: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row.slot.worker.0, row.slot.rank.0, row.planned.as_ref()?)))
        .collect();
    planned.sort_by_key(|(worker, rank, _)| (*worker, *rank));
    if planned.is_empty() {
        return None;
    }
    // FNV-1a, as the topology's own hash.
    let mut hash = topology;
    let mut eat = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    };
    for (worker, rank, mask) in planned {
        eat(&worker.to_le_bytes());
        eat(&rank.to_le_bytes());
        eat(mask.to_string().as_bytes());
        eat(b";");
    }
    Some((hash >> 32) as u32 ^ hash as u32)
}
