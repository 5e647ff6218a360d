//! The pods that the placer has, brought to those that are wished for.
//!
//! [`steps`] is pure; [`Fleet`] gives the orders. An order that the placer does not take is given
//! again at the next turn.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use albacore_api::PodPlacement;
use albacore_os::{Cgroup, HostRoot};
use albacore_placer::{
    ControlError, Handle, Pending, PlacerError, Restored, SubjectConfig, SubjectId,
};
use albacore_plan::{Enforcement, Policy};

use crate::limits::{ANSWER_TIME_MAX, LOOK_PAUSE_MAX, LOOK_PAUSE_MIN, ORDERS_MAX};
use crate::locate::{Absence, locate};
use crate::wish::{Aim, Wish};

/// A pod that the placer has.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Present {
    pub(crate) id: SubjectId,
    /// The container that is placed.
    pub(crate) container: String,
    pub(crate) cgroup: Cgroup,
    /// The policy that was ordered last.
    pub(crate) policy: Policy,
    /// The generation of the deployment that was acted on last.
    pub(crate) generation: i64,
}

/// What is to be done with one pod; by uid.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Step {
    /// Give its masks back and forget it.
    Remove(String),
    /// Place it in another way.
    SetPolicy(String, Policy),
    /// The deployment was edited: masks that are left as somebody else made them are written again.
    Retry(String, i64),
    /// Find its processes and place them.
    Add(String),
}

/// What has to be done so that the pods that the placer has are those wished for: first what frees
/// cpus.
pub(crate) fn steps(wishes: &[Wish], present: &BTreeMap<String, Present>) -> Vec<Step> {
    let wished: BTreeMap<&str, &Aim> = wishes
        .iter()
        .map(|wish| (wish.pod.uid.as_str(), &wish.aim))
        .collect();
    let mut steps = Vec::new();
    for (uid, has) in present {
        let stays = match wished.get(uid.as_str()) {
            Some(Aim::Place { container, .. }) => *container == has.container,
            Some(Aim::Keep { .. }) => true,
            Some(Aim::Leave { .. }) | None => false,
        };
        if !stays {
            steps.push(Step::Remove(uid.clone()));
        }
    }
    let mut adds = Vec::new();
    for (uid, aim) in wished {
        let Aim::Place {
            container,
            policy,
            generation,
            ..
        } = aim
        else {
            continue;
        };
        match present.get(uid) {
            Some(has) if has.container == *container => {
                if has.policy != *policy {
                    steps.push(Step::SetPolicy(uid.to_owned(), policy.clone()));
                }
                if has.generation != *generation {
                    steps.push(Step::Retry(uid.to_owned(), *generation));
                }
            }
            _ => adds.push(Step::Add(uid.to_owned())),
        }
    }
    steps.extend(adds);
    steps
}

/// A container whose processes were not found.
#[derive(Clone, Debug)]
struct Look {
    container: String,
    absence: Absence,
    failures: u32,
    not_before: Instant,
}

/// An order to place that was taken and not answered yet.
#[derive(Debug)]
struct Waiting {
    uid: String,
    container: String,
    cgroup: Cgroup,
    policy: Policy,
    generation: i64,
    answer: Pending<Result<SubjectId, PlacerError>>,
}

/// What a turn did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Turn {
    /// Masks given back, by uid.
    pub(crate) restored: Vec<(String, Restored)>,
    /// Whether something is left that has to be done soon.
    pub(crate) is_unfinished: bool,
}

/// The pods of the placer.
#[derive(Debug)]
pub(crate) struct Fleet {
    host: HostRoot,
    present: BTreeMap<String, Present>,
    looks: BTreeMap<String, Look>,
    waiting: Vec<Waiting>,
    /// Pods whose masks a former life had written.
    former: Vec<PodPlacement>,
}

impl Fleet {
    pub(crate) fn new(host: HostRoot) -> Self {
        Self {
            host,
            present: BTreeMap::new(),
            looks: BTreeMap::new(),
            waiting: Vec::new(),
            former: Vec::new(),
        }
    }

    /// Takes over from a former life, which had written the masks of these pods.
    pub(crate) fn follow_on(&mut self, former: Vec<PodPlacement>) {
        self.former = former;
    }

    /// The pods that the placer has, by uid.
    pub(crate) fn present(&self) -> &BTreeMap<String, Present> {
        &self.present
    }

    /// Why a pod is not placed although it is wished for.
    pub(crate) fn absence(&self, uid: &str) -> Option<&Absence> {
        self.looks.get(uid).map(|look| &look.absence)
    }

    /// When to look again for processes that were not found.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        self.looks.values().map(|look| look.not_before).min()
    }

    /// The placer is a new one: it has nothing.
    pub(crate) fn forget_all(&mut self) {
        self.present.clear();
        self.waiting.clear();
    }

    /// Subjects that ended by themselves: their containers are looked for again, if they are still
    /// wished for.
    pub(crate) fn forget(&mut self, gone: &[SubjectId]) {
        self.present.retain(|_, has| !gone.contains(&has.id));
    }

    /// Brings the placer to the wishes.
    pub(crate) fn follow(&mut self, wishes: &[Wish], handle: &Handle, now: Instant) -> Turn {
        let mut turn = Turn::default();
        self.take_answers(Duration::ZERO, now);
        // What is not looked for any more must not be due either.
        let is_wanted = |uid: &String, look: &mut Look| {
            let wish = wishes.iter().find(|wish| wish.pod.uid == *uid);
            let aim = wish.map(|wish| &wish.aim);
            matches!(aim, Some(Aim::Place { container, .. }) if *container == look.container)
        };
        self.looks.retain(is_wanted);
        let mut removals = Vec::new();
        for (count, step) in steps(wishes, &self.present).into_iter().enumerate() {
            let is_taken = count < ORDERS_MAX
                && match step {
                    Step::Remove(uid) => match self.remove(&uid, handle) {
                        Some(pending) => {
                            removals.push((uid, pending));
                            true
                        }
                        None => false,
                    },
                    Step::SetPolicy(uid, policy) => self.set_policy(&uid, policy, handle),
                    Step::Retry(uid, generation) => self.retry(&uid, generation, handle),
                    Step::Add(uid) => {
                        let wish = wishes.iter().find(|wish| wish.pod.uid == uid);
                        wish.is_none_or(|wish| self.add(wish, handle, now))
                    }
                };
            turn.is_unfinished |= !is_taken;
        }
        for (uid, pending) in removals {
            // A late answer is no failure: the order was taken.
            if let Ok(restored) = pending.wait(ANSWER_TIME_MAX) {
                turn.restored.push((uid, restored));
            }
        }
        self.take_answers(ANSWER_TIME_MAX, now);
        let is_other = |step| matches!(step, Step::SetPolicy(..));
        turn.is_unfinished |=
            !self.waiting.is_empty() || steps(wishes, &self.present).into_iter().any(is_other);
        turn
    }

    fn remove(&mut self, uid: &str, handle: &Handle) -> Option<Pending<Restored>> {
        let pending = handle.remove(self.present.get(uid)?.id).ok()?;
        self.present.remove(uid);
        Some(pending)
    }

    fn set_policy(&mut self, uid: &str, policy: Policy, handle: &Handle) -> bool {
        let Some(has) = self.present.get_mut(uid) else {
            return true;
        };
        let is_taken = handle.set_policy(has.id, policy.clone()).is_ok();
        if is_taken {
            has.policy = policy;
        }
        is_taken
    }

    fn retry(&mut self, uid: &str, generation: i64, handle: &Handle) -> bool {
        let Some(has) = self.present.get_mut(uid) else {
            return true;
        };
        let is_taken = handle.retry_now(has.id).is_ok();
        if is_taken {
            has.generation = generation;
        }
        is_taken
    }

    /// Orders a pod to be placed, once its processes are found; false if the order was not taken.
    fn add(&mut self, wish: &Wish, handle: &Handle, now: Instant) -> bool {
        if self
            .waiting
            .iter()
            .any(|waiting| waiting.uid == wish.pod.uid)
        {
            return true;
        }
        let Some((container, mut config)) = self.look(wish, now) else {
            return true;
        };
        let key = &wish.pod.key;
        let is_it = |pod: &PodPlacement| pod.is_of(&key.namespace, &key.name, &wish.pod.uid);
        if let Some(at) = self.former.iter().position(is_it) {
            // What is only to be observed now is taken over first: the change of its policy that
            // follows gives its masks back, as if the former life had seen it.
            self.former.swap_remove(at);
            config.policy.enforcement = Enforcement::Enforce;
        }
        let (policy, cgroup) = (config.policy.clone(), config.cgroup.clone());
        let Aim::Place { generation, .. } = wish.aim else {
            return true;
        };
        match (handle.add(config), cgroup) {
            (Ok(answer), Some(cgroup)) => {
                self.waiting.push(Waiting {
                    uid: wish.pod.uid.clone(),
                    container,
                    cgroup,
                    policy,
                    generation,
                    answer,
                });
                true
            }
            _ => false,
        }
    }

    /// Takes the answers that come within `time`; an order without an answer is not given again.
    fn take_answers(&mut self, time: Duration, now: Instant) {
        let until = Instant::now() + time;
        for waiting in std::mem::take(&mut self.waiting) {
            let left = until.saturating_duration_since(Instant::now());
            match waiting.answer.wait(left) {
                Ok(Ok(id)) => {
                    self.looks.remove(&waiting.uid);
                    let present = Present {
                        id,
                        container: waiting.container,
                        cgroup: waiting.cgroup,
                        policy: waiting.policy,
                        generation: waiting.generation,
                    };
                    self.present.insert(waiting.uid, present);
                }
                Ok(Err(error)) => {
                    let absence = Absence::of(&error);
                    self.note_absence(&waiting.uid, &waiting.container, absence, now);
                }
                Err(ControlError::Late) => self.waiting.push(waiting),
                // The placer has ended; a new one is asked.
                Err(_) => {}
            }
        }
    }

    /// Finds the processes of a wished container, if it is time to look.
    fn look(&mut self, wish: &Wish, now: Instant) -> Option<(String, SubjectConfig)> {
        let Aim::Place {
            container,
            source,
            policy,
            ..
        } = &wish.aim
        else {
            return None;
        };
        let uid = &wish.pod.uid;
        let known = self.looks.get(uid).filter(|l| l.container == *container);
        if known.is_some_and(|look| now < look.not_before) {
            return None;
        }
        match locate(&self.host, uid, container) {
            Ok(located) => {
                let config = SubjectConfig {
                    root: located.root,
                    source: *source,
                    policy: policy.clone(),
                    cgroup: Some(located.cgroup),
                };
                Some((container.clone(), config))
            }
            Err(absence) => {
                self.note_absence(uid, container, absence, now);
                None
            }
        }
    }

    fn note_absence(&mut self, uid: &str, container: &str, absence: Absence, now: Instant) {
        let known = self.looks.get(uid).filter(|l| l.container == container);
        let failures = known.map_or(0, |look| look.failures.saturating_add(1));
        let pause = match absence.is_lasting() {
            true => LOOK_PAUSE_MAX,
            false => LOOK_PAUSE_MIN
                .saturating_mul(1_u32 << failures.min(10))
                .min(LOOK_PAUSE_MAX),
        };
        let look = Look {
            container: container.to_owned(),
            absence,
            failures,
            not_before: now + pause.max(Duration::from_millis(1)),
        };
        self.looks.insert(uid.to_owned(), look);
    }
}

#[cfg(test)]
mod tests;
