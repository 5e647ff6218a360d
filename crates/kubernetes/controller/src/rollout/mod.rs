//! Limits the rate of pod restarts that are not caused by an edit of the deployment: the operator
//! was upgraded, or the server image of the namespace was changed.
//!
//! The pod template is compared with the last applied one by digests in annotations of the
//! Deployment ([`RolloutAnnotations`]), so no other state has to be stored. An edit of the
//! deployment's own fields is applied immediately. Any other change of the template waits for a
//! slot ([`RolloutSlots`]); until then only the number of pods of the Deployment is changed.

mod annotations;
mod condition;
mod slots;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use albacore_cluster::ObjectKey;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::child_action::{Ownership, ownership};
use crate::children::{ChildKind, ChildObject};
use crate::limits::{ROLLOUT_PAUSE, ROLLOUT_STUCK_AFTER};
use crate::observed::{LiveObject, Workload};
use crate::validate::ValidDeployment;

pub(crate) use annotations::RolloutAnnotations;
pub(crate) use condition::{STUCK, UPGRADE_PENDING, upgrade_pending};
pub(crate) use slots::RolloutSlots;

/// The state of a deployment's roll-out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RolloutState {
    /// The pods have the desired template, or are being updated to it.
    Current,
    /// The desired template waits for these roll-outs.
    Waiting(Vec<ObjectKey>),
    /// The desired template was applied, and there has been no progress since this time, for at
    /// least [`ROLLOUT_STUCK_AFTER`].
    Stuck(Timestamp),
}

/// The decision about a deployment's roll-out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RolloutDecision {
    pub(crate) state: RolloutState,
    /// Whether the live Deployment must not be written, because its template has to wait and its
    /// number of pods is already the desired one.
    pub(crate) is_held: bool,
    /// Image of the server container in the desired template.
    pub(crate) image: Option<String>,
    /// When to decide again.
    pub(crate) pause: Option<Duration>,
}

/// The progress of the last template change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RolloutProgress {
    /// There was no change, or all pods became available with the new template.
    Settled,
    /// In progress; counts as stuck from this time on unless there is progress before.
    Rolling(Timestamp),
    /// No progress since this time.
    Stuck(Timestamp),
}

/// The progress of the roll-out of `live` at `now`.
pub(crate) fn progress(live: &LiveObject, workload: &Workload, now: Timestamp) -> RolloutProgress {
    let Some(rolled_at) = RolloutAnnotations::of_live(live).rolled_at else {
        return RolloutProgress::Settled;
    };
    if workload.is_rolled_out() && workload.is_fully_available() {
        return RolloutProgress::Settled;
    }
    let last = last_progress(live).map_or(rolled_at, |time| time.max(rolled_at));
    let until = last.saturating_add(ROLLOUT_STUCK_AFTER).unwrap_or(last);
    match now < until {
        true => RolloutProgress::Rolling(until),
        // Pods that were lost after the roll-out do not make it stuck.
        false if workload.is_rolled_out() => RolloutProgress::Settled,
        false => RolloutProgress::Stuck(last),
    }
}

/// When the Deployment controller last reported progress.
fn last_progress(live: &LiveObject) -> Option<Timestamp> {
    let conditions = live.body["status"]["conditions"].as_array()?;
    let progressing = conditions.iter().find(|c| c["type"] == "Progressing")?;
    progressing["lastUpdateTime"].as_str()?.parse().ok()
}

/// The image of the container `server` of a Deployment.
pub(crate) fn image_of(deployment: &Value) -> Option<&str> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array()?;
    let server = containers
        .iter()
        .find(|c| c["name"] == crate::names::SERVER)?;
    server["image"].as_str()
}

/// The inputs of a decision.
pub(crate) struct RolloutInputs<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) valid: &'a ValidDeployment,
    /// Its Deployment; `None` before it is created.
    pub(crate) live: Option<(&'a LiveObject, &'a Workload)>,
    /// Whether its spec is newer than its status; used only for Deployments written by controllers
    /// that did not set the annotations yet.
    pub(crate) is_edited: bool,
}

/// The roll-outs of all deployments.
#[derive(Debug)]
pub(crate) struct Rollouts {
    slots: Mutex<RolloutSlots>,
}

impl Rollouts {
    /// Allows at most `max` concurrent roll-outs.
    pub(crate) fn new(max: NonZeroU32) -> Self {
        Self {
            slots: Mutex::new(RolloutSlots::new(max)),
        }
    }

    fn slots(&self) -> MutexGuard<'_, RolloutSlots> {
        // Consistent at any time.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces all slots by the roll-outs that are in progress in the cluster.
    pub(crate) fn rebuild(
        &self,
        live: impl Iterator<Item = (ObjectKey, LiveObject)>,
        now: Timestamp,
    ) {
        let mut slots = self.slots();
        slots.clear();
        for (key, live) in live {
            if let RolloutProgress::Rolling(until) = progress(&live, &Workload::of(&live), now) {
                slots.keep(&key, until);
            }
        }
    }

    /// Releases the slot of a deployment that has no roll-out: it was deleted, is invalid, or its
    /// Deployment was rejected.
    pub(crate) fn release(&self, key: &ObjectKey) {
        self.slots().release(key);
    }

    /// Waiting deployments that may get a slot now.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<ObjectKey> {
        self.slots().due(now)
    }

    /// Decides whether the desired Deployment among `children` may be applied at `now`. If not,
    /// replaces it by the live Deployment with the desired number of pods.
    pub(crate) fn decide(
        &self,
        inputs: &RolloutInputs<'_>,
        children: &mut [ChildObject],
        now: Timestamp,
    ) -> RolloutDecision {
        let desired = children
            .iter_mut()
            .find(|c| c.kind == ChildKind::Deployment);
        let Some(desired) = desired else {
            self.release(inputs.key);
            return RolloutDecision::current(None);
        };
        let image = image_of(&desired.body).map(str::to_owned);
        let mut annotations = RolloutAnnotations::of_desired(inputs.valid, desired);
        let controlled = inputs.live.filter(|(live, _)| {
            ownership(live, &inputs.valid.uid, desired.owner()) == Ownership::Ours
        });
        let Some((live, workload)) = controlled else {
            // The creation of pods does not restart any.
            annotations.write(desired);
            self.release(inputs.key);
            return RolloutDecision::current(image);
        };
        let before = RolloutAnnotations::of_live(live);
        let is_same = before.template == annotations.template;
        let is_edited = match &before.fields {
            Some(_) => before.fields != annotations.fields,
            None => inputs.is_edited,
        };
        let until = now.saturating_add(ROLLOUT_STUCK_AFTER).unwrap_or(now);
        if is_same {
            annotations.rolled_at = before.rolled_at;
            annotations.write(desired);
            return self.continue_rollout(inputs.key, progress(live, workload, now), image, now);
        }
        let mut slots = self.slots();
        match progress(live, workload, now) {
            RolloutProgress::Rolling(until) => slots.keep(inputs.key, until),
            // The watch may not have reported the last apply yet.
            RolloutProgress::Settled | RolloutProgress::Stuck(_) if !workload.is_observed => {}
            RolloutProgress::Settled | RolloutProgress::Stuck(_) => {
                slots.end(inputs.key, before.rolled_at)
            }
        }
        let response = match is_edited || workload.desired == 0 {
            true => {
                slots.begin(inputs.key, now, until);
                Ok(())
            }
            false => slots.request(inputs.key, now, until),
        };
        drop(slots);
        match response {
            Ok(()) => {
                annotations.rolled_at = Some(now);
                annotations.write(desired);
                RolloutDecision::current(image)
            }
            Err(others) => {
                let is_held = keep_live_template(desired, live, &before);
                RolloutDecision {
                    state: RolloutState::Waiting(others),
                    is_held,
                    image,
                    pause: Some(ROLLOUT_PAUSE),
                }
            }
        }
    }

    /// Handles a desired template that equals the last applied one.
    fn continue_rollout(
        &self,
        key: &ObjectKey,
        progress: RolloutProgress,
        image: Option<String>,
        now: Timestamp,
    ) -> RolloutDecision {
        let mut slots = self.slots();
        let mut decision = RolloutDecision::current(image);
        match progress {
            RolloutProgress::Settled => slots.release(key),
            RolloutProgress::Rolling(until) => {
                slots.keep(key, until);
                decision.pause = Duration::try_from(until.duration_since(now)).ok();
            }
            RolloutProgress::Stuck(since) => {
                slots.release(key);
                decision.state = RolloutState::Stuck(since);
            }
        }
        decision
    }
}

impl RolloutDecision {
    fn current(image: Option<String>) -> Self {
        Self {
            state: RolloutState::Current,
            is_held: false,
            image,
            pause: None,
        }
    }
}

/// Replaces `desired` by the live Deployment with the desired number of pods; returns whether they
/// are equal. The live template also contains defaults and fields of other managers: the controller
/// owns these too until the next template is applied, after which they keep their values.
fn keep_live_template(
    desired: &mut ChildObject,
    live: &LiveObject,
    annotations: &RolloutAnnotations,
) -> bool {
    let replicas = desired.body["spec"]["replicas"].clone();
    let is_held = replicas.is_null() || replicas == live.body["spec"]["replicas"];
    let mut metadata = desired.body["metadata"].take();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("annotations");
    }
    let mut spec = desired.body["spec"].take();
    spec["template"] = live.body["spec"]["template"].clone();
    *desired = ChildObject::new(desired.kind, metadata, serde_json::json!({ "spec": spec }));
    annotations.write(desired);
    // The API server rejects the write if another client changed the template meanwhile.
    desired.body["metadata"]["resourceVersion"] = live.resource_version.as_str().into();
    is_held
}

/// The distinct names of the deployments.
pub(crate) fn names(keys: &[ObjectKey]) -> BTreeSet<String> {
    keys.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
