//! The pods that are subjects of the placer, and the commands that reconcile them with the desired
//! state.
//!
//! [`commands`] is pure; [`PlacedPods`] sends them. A command that the placer does not accept is
//! sent again in the next iteration.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use albacore_api::PodPlacement;
use albacore_os::{Cgroup, HostRoot};
use albacore_placer::{
    ControlError, ControlReply, PlacerError, PlacerHandle, RestoreSummary, SubjectConfig, SubjectId,
};
use albacore_plan::{Enforcement, SubjectPolicy};

use crate::desired::{DesiredPod, PodAction};
use crate::limits::{ANSWER_TIME_MAX, COMMANDS_MAX, LOOKUP_PAUSE_MAX, LOOKUP_PAUSE_MIN};
use crate::locate::{NotPlaced, locate};

/// A pod that is a subject of the placer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PlacedPod {
    pub(crate) id: SubjectId,
    pub(crate) container: String,
    pub(crate) cgroup: Cgroup,
    /// The policy that was sent last.
    pub(crate) policy: SubjectPolicy,
    /// The generation of the deployment that was sent last.
    pub(crate) generation: i64,
}

/// Command to the placer for one pod, by uid.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum PlacerCommand {
    /// Give its masks back and remove the subject.
    Remove(String),
    /// Change its policy.
    SetPolicy(String, SubjectPolicy),
    /// The deployment was edited: threads in backoff are placed again at once.
    Retry(String, i64),
    /// Find its processes and place them.
    Add(String),
}

/// Returns the commands that turn `placed` into the desired state; those that free CPUs are first.
pub(crate) fn commands(
    desired: &[DesiredPod],
    placed: &BTreeMap<String, PlacedPod>,
) -> Vec<PlacerCommand> {
    let actions: BTreeMap<&str, &PodAction> = desired
        .iter()
        .map(|desired| (desired.pod.uid.as_str(), &desired.action))
        .collect();
    let mut commands = Vec::new();
    for (uid, pod) in placed {
        let stays = match actions.get(uid.as_str()) {
            Some(PodAction::Place { container, .. }) => *container == pod.container,
            Some(PodAction::Keep { .. }) => true,
            Some(PodAction::Release { .. } | PodAction::Refuse { .. }) | None => false,
        };
        if !stays {
            commands.push(PlacerCommand::Remove(uid.clone()));
        }
    }
    let mut adds = Vec::new();
    for (uid, action) in actions {
        let PodAction::Place {
            container,
            policy,
            generation,
            ..
        } = action
        else {
            continue;
        };
        match placed.get(uid) {
            Some(pod) if pod.container == *container => {
                if pod.policy != *policy {
                    commands.push(PlacerCommand::SetPolicy(uid.to_owned(), policy.clone()));
                }
                if pod.generation != *generation {
                    commands.push(PlacerCommand::Retry(uid.to_owned(), *generation));
                }
            }
            _ => adds.push(PlacerCommand::Add(uid.to_owned())),
        }
    }
    commands.extend(adds);
    commands
}

/// A failed attempt to place a container.
#[derive(Clone, Debug)]
struct FailedLookup {
    container: String,
    reason: NotPlaced,
    failures: u32,
    retry_at: Instant,
}

/// An `Add` that the placer accepted but has not answered yet.
#[derive(Debug)]
struct PendingAdd {
    uid: String,
    container: String,
    cgroup: Cgroup,
    policy: SubjectPolicy,
    generation: i64,
    answer: ControlReply<Result<SubjectId, PlacerError>>,
}

#[derive(Debug)]
pub(crate) struct PlacedPods {
    host: HostRoot,
    placed: BTreeMap<String, PlacedPod>,
    failed: BTreeMap<String, FailedLookup>,
    pending: Vec<PendingAdd>,
    /// Pods whose masks were written by the previous agent, until they are adopted.
    previous: Vec<PodPlacement>,
    needs_sync: bool,
}

impl PlacedPods {
    pub(crate) fn new(host: HostRoot) -> Self {
        Self {
            host,
            placed: BTreeMap::new(),
            failed: BTreeMap::new(),
            pending: Vec::new(),
            previous: Vec::new(),
            needs_sync: true,
        }
    }

    /// Sets the pods whose masks were written by the previous agent.
    pub(crate) fn adopt_previous(&mut self, previous: Vec<PodPlacement>) {
        self.previous = previous;
    }

    /// All placed pods, by uid.
    pub(crate) fn all(&self) -> &BTreeMap<String, PlacedPod> {
        &self.placed
    }

    pub(crate) fn get(&self, uid: &str) -> Option<&PlacedPod> {
        self.placed.get(uid)
    }

    pub(crate) fn has(&self, id: SubjectId) -> bool {
        self.placed.values().any(|pod| pod.id == id)
    }

    /// Why a pod is not placed, although it should be.
    pub(crate) fn not_placed(&self, uid: &str) -> Option<&NotPlaced> {
        self.failed.get(uid).map(|failed| &failed.reason)
    }

    /// Time of the next lookup of processes that were not found.
    pub(crate) fn next_lookup(&self) -> Option<Instant> {
        self.failed.values().map(|failed| failed.retry_at).min()
    }

    /// Whether [`PlacedPods::sync`] has to be called again soon, even without a change.
    pub(crate) fn needs_sync(&self) -> bool {
        self.needs_sync
    }

    pub(crate) fn request_sync(&mut self) {
        self.needs_sync = true;
    }

    /// Removes all pods, because the placer was replaced by a new one without subjects.
    pub(crate) fn clear(&mut self) {
        self.placed.clear();
        self.pending.clear();
    }

    /// Removes subjects that ended by themselves. Their containers are looked up again if they are
    /// still desired.
    pub(crate) fn remove_ended(&mut self, ended: &[SubjectId]) {
        self.placed.retain(|_, pod| !ended.contains(&pod.id));
    }

    /// Reconciles the placer's subjects with the desired state; returns the masks that were given
    /// back, by uid.
    pub(crate) fn sync(
        &mut self,
        desired: &[DesiredPod],
        placer: &PlacerHandle,
        now: Instant,
    ) -> Vec<(String, RestoreSummary)> {
        self.needs_sync = false;
        self.poll_answers(Duration::ZERO, now);
        self.remove_undesired_lookups(desired);
        let removals = self.send_commands(desired, placer, now);
        let mut restored = Vec::new();
        for (uid, pending) in removals {
            // After a timeout the command still takes effect, because it was accepted.
            if let Ok(masks) = pending.wait(ANSWER_TIME_MAX) {
                restored.push((uid, masks));
            }
        }
        self.poll_answers(ANSWER_TIME_MAX, now);
        let is_set_policy = |command| matches!(command, PlacerCommand::SetPolicy(..));
        self.needs_sync |= !self.pending.is_empty()
            || commands(desired, &self.placed)
                .into_iter()
                .any(is_set_policy);
        restored
    }

    /// Removes failed lookups of containers that are no longer desired, so that they do not become
    /// due.
    fn remove_undesired_lookups(&mut self, desired: &[DesiredPod]) {
        self.failed.retain(|uid, failed| {
            let desired = desired.iter().find(|desired| desired.pod.uid == *uid);
            let action = desired.map(|desired| &desired.action);
            matches!(action, Some(PodAction::Place { container, .. }) if *container == failed.container)
        });
    }

    /// Sends the commands that are due, at most [`COMMANDS_MAX`]; returns the pending removals.
    fn send_commands(
        &mut self,
        desired: &[DesiredPod],
        placer: &PlacerHandle,
        now: Instant,
    ) -> Vec<(String, ControlReply<RestoreSummary>)> {
        let mut removals = Vec::new();
        for (count, command) in commands(desired, &self.placed).into_iter().enumerate() {
            let is_accepted = count < COMMANDS_MAX
                && match command {
                    PlacerCommand::Remove(uid) => {
                        let pending = self.remove(&uid, placer);
                        let is_accepted = pending.is_some();
                        removals.extend(pending.map(|pending| (uid, pending)));
                        is_accepted
                    }
                    PlacerCommand::SetPolicy(uid, policy) => self.set_policy(&uid, policy, placer),
                    PlacerCommand::Retry(uid, generation) => self.retry(&uid, generation, placer),
                    PlacerCommand::Add(uid) => {
                        let desired = desired.iter().find(|desired| desired.pod.uid == uid);
                        desired.is_none_or(|desired| self.add(desired, placer, now))
                    }
                };
            self.needs_sync |= !is_accepted;
        }
        removals
    }

    fn remove(&mut self, uid: &str, placer: &PlacerHandle) -> Option<ControlReply<RestoreSummary>> {
        let pending = placer.remove(self.placed.get(uid)?.id).ok()?;
        self.placed.remove(uid);
        Some(pending)
    }

    fn set_policy(&mut self, uid: &str, policy: SubjectPolicy, placer: &PlacerHandle) -> bool {
        let Some(pod) = self.placed.get_mut(uid) else {
            return true;
        };
        let is_accepted = placer.set_policy(pod.id, policy.clone()).is_ok();
        if is_accepted {
            pod.policy = policy;
        }
        is_accepted
    }

    fn retry(&mut self, uid: &str, generation: i64, placer: &PlacerHandle) -> bool {
        let Some(pod) = self.placed.get_mut(uid) else {
            return true;
        };
        let is_accepted = placer.retry_now(pod.id).is_ok();
        if is_accepted {
            pod.generation = generation;
        }
        is_accepted
    }

    /// Sends a pod to the placer if its processes are found; returns false if the placer did not
    /// accept the command.
    fn add(&mut self, desired: &DesiredPod, placer: &PlacerHandle, now: Instant) -> bool {
        let uid = &desired.pod.uid;
        let PodAction::Place {
            container,
            server_kind,
            policy,
            generation,
            ..
        } = &desired.action
        else {
            return true;
        };
        let is_retried_later = self.failed.get(uid).is_some_and(|f| now < f.retry_at);
        if self.pending.iter().any(|pending| pending.uid == *uid) || is_retried_later {
            return true;
        }
        let located = match locate(&self.host, uid, container) {
            Ok(located) => located,
            Err(reason) => {
                self.record_failure(uid, container, reason, now);
                return true;
            }
        };
        let policy = match self.take_previous(desired) {
            // A pod that is now only observed is first adopted as enforced: the following change of
            // policy then gives its masks back, as the previous agent would have done.
            true => SubjectPolicy {
                enforcement: Enforcement::Enforce,
                ..policy.clone()
            },
            false => policy.clone(),
        };
        let config = SubjectConfig {
            root: located.root,
            server_kind: server_kind.unwrap_or(located.server_kind),
            policy: policy.clone(),
            cgroup: Some(located.cgroup.clone()),
        };
        let Ok(answer) = placer.add(config) else {
            return false;
        };
        self.pending.push(PendingAdd {
            uid: uid.clone(),
            container: container.clone(),
            cgroup: located.cgroup,
            policy,
            generation: *generation,
            answer,
        });
        true
    }

    /// Whether the previous agent had written masks of this pod; returns true once per pod.
    fn take_previous(&mut self, desired: &DesiredPod) -> bool {
        let (key, uid) = (&desired.pod.key, &desired.pod.uid);
        let is_it = |pod: &PodPlacement| pod.is_of(&key.namespace, &key.name, uid);
        let found = self.previous.iter().position(is_it);
        found.map(|at| self.previous.swap_remove(at)).is_some()
    }

    /// Receives the replies that arrive within `time`; a command without a reply is not repeated.
    fn poll_answers(&mut self, time: Duration, now: Instant) {
        let until = Instant::now() + time;
        for pending in std::mem::take(&mut self.pending) {
            let left = until.saturating_duration_since(Instant::now());
            match pending.answer.wait(left) {
                Ok(Ok(id)) => {
                    self.failed.remove(&pending.uid);
                    let pod = PlacedPod {
                        id,
                        container: pending.container,
                        cgroup: pending.cgroup,
                        policy: pending.policy,
                        generation: pending.generation,
                    };
                    self.placed.insert(pending.uid, pod);
                }
                Ok(Err(error)) => {
                    let reason = NotPlaced::of(&error);
                    self.record_failure(&pending.uid, &pending.container, reason, now);
                }
                Err(ControlError::Late) => self.pending.push(pending),
                // The placer has ended; the pod will be added to the next one.
                Err(_) => {}
            }
        }
    }

    fn record_failure(&mut self, uid: &str, container: &str, reason: NotPlaced, now: Instant) {
        let known = self.failed.get(uid).filter(|f| f.container == container);
        let failures = known.map_or(0, |failed| failed.failures.saturating_add(1));
        let pause = match reason.is_lasting() {
            true => LOOKUP_PAUSE_MAX,
            false => LOOKUP_PAUSE_MIN
                .saturating_mul(1_u32 << failures.min(10))
                .min(LOOKUP_PAUSE_MAX),
        };
        let failed = FailedLookup {
            container: container.to_owned(),
            reason,
            failures,
            retry_at: now + pause,
        };
        self.failed.insert(uid.to_owned(), failed);
    }
}

#[cfg(test)]
mod tests;
