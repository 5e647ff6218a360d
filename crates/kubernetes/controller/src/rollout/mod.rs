//! When pods are restarted for a change that nobody made to their deployment: the operator was
//! upgraded, or the namespace names another server image.
//!
//! The pod template is compared with the one applied last by digests that the Deployment itself
//! carries ([`Marks`]), so nothing has to be remembered. An edit of the deployment's own fields is
//! applied at once. Any other change of the template waits for a slot ([`Slots`]); until then the
//! Deployment stays as it is, but for the number of its pods.

mod condition;
mod marks;
mod slots;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use albacore_cluster::Key;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::children::{Child, ChildKind};
use crate::limits::{ROLLOUT_PAUSE, ROLLOUT_STUCK_AFTER};
use crate::observed::{Live, Workload};
use crate::step::{Ownership, ownership};
use crate::validate::Valid;

pub(crate) use condition::{happening, report};
pub(crate) use marks::Marks;
pub(crate) use slots::Slots;

/// How the roll-out of a deployment stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// The pods have the wanted template, or get it now.
    Current,
    /// The wanted template waits for these roll-outs.
    Waiting(Vec<Key>),
    /// The wanted template was applied and the roll-out has made no progress since then for
    /// [`ROLLOUT_STUCK_AFTER`].
    Stuck(Timestamp),
}

/// What a deployment's Deployment is told of its roll-out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Paced {
    /// How the roll-out stands.
    pub(crate) standing: Standing,
    /// Whether the live Deployment is left as it is: its template is not the wanted one, and its
    /// number of pods is.
    pub(crate) is_held: bool,
    /// Image of the wanted server container.
    pub(crate) image: Option<String>,
    /// When to look again.
    pub(crate) pause: Option<Duration>,
}

/// How far the last change of a template has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// There was none, or all pods have been available with it.
    Settled,
    /// It is under way, until then unless it makes progress.
    Rolling(Timestamp),
    /// It has made no progress since then.
    Stuck(Timestamp),
}

/// How far the roll-out of `live` has come at `now`.
pub(crate) fn progress(live: &Live, workload: &Workload, now: Timestamp) -> Progress {
    let Some(rolled) = Marks::of_live(live).rolled else {
        return Progress::Settled;
    };
    if workload.is_rolled_out() && workload.is_full() {
        return Progress::Settled;
    }
    let last = last_progress(live).map_or(rolled, |time| time.max(rolled));
    let until = last.saturating_add(ROLLOUT_STUCK_AFTER).unwrap_or(last);
    match now < until {
        true => Progress::Rolling(until),
        // Pods that were lost after the roll-out are no matter of the roll-out.
        false if workload.is_rolled_out() => Progress::Settled,
        false => Progress::Stuck(last),
    }
}

/// When the Deployment's controller saw progress last.
fn last_progress(live: &Live) -> Option<Timestamp> {
    let conditions = live.body["status"]["conditions"].as_array()?;
    let progressing = conditions.iter().find(|c| c["type"] == "Progressing")?;
    progressing["lastUpdateTime"].as_str()?.parse().ok()
}

/// Image of the container `server` of a Deployment.
pub(crate) fn image_of(deployment: &Value) -> Option<&str> {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array()?;
    let server = containers
        .iter()
        .find(|c| c["name"] == crate::names::SERVER)?;
    server["image"].as_str()
}

/// What is known of a deployment when its roll-out is decided.
pub(crate) struct Case<'a> {
    pub(crate) key: &'a Key,
    pub(crate) valid: &'a Valid,
    /// Its Deployment as the API server has it, and what that says; `None` before there is one.
    pub(crate) live: Option<(&'a Live, &'a Workload)>,
    /// Whether its spec is newer than its status: of use only for Deployments of a controller that
    /// wrote no marks.
    pub(crate) is_edited: bool,
}

/// The roll-outs of all deployments.
#[derive(Debug)]
pub(crate) struct Rollouts {
    slots: Mutex<Slots>,
}

impl Rollouts {
    /// At most `max` at once.
    pub(crate) fn new(max: NonZeroU32) -> Self {
        Self {
            slots: Mutex::new(Slots::new(max)),
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        // Whole at every moment.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything and takes over the roll-outs that are under way in the cluster.
    pub(crate) fn rebuild(&self, live: impl Iterator<Item = (Key, Live)>, now: Timestamp) {
        let mut slots = self.slots();
        slots.clear();
        for (key, live) in live {
            if let Progress::Rolling(until) = progress(&live, &Workload::of(&live), now) {
                slots.keep(&key, until);
            }
        }
    }

    /// `key` has nothing to roll out: it is gone, or its spec is not valid, or the API server
    /// refused its Deployment.
    pub(crate) fn release(&self, key: &Key) {
        self.slots().release(key);
    }

    /// Those that wait and may ask again.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<Key> {
        self.slots().due(now)
    }

    /// Decides whether the wanted Deployment among `children` may be applied at `now`. Where it may
    /// not, it is replaced by the live one with the wanted number of pods.
    pub(crate) fn pace(&self, case: &Case<'_>, children: &mut [Child], now: Timestamp) -> Paced {
        let wanted = children
            .iter_mut()
            .find(|c| c.kind == ChildKind::Deployment);
        let Some(wanted) = wanted else {
            self.release(case.key);
            return Paced::current(None);
        };
        let image = image_of(&wanted.body).map(str::to_owned);
        let mut marks = Marks::of_wanted(case.valid, wanted);
        let ours = case
            .live
            .filter(|(live, _)| ownership(live, &case.valid.uid, wanted.name()) == Ownership::Ours);
        let Some((live, workload)) = ours else {
            // Pods that do not exist yet are not restarted.
            marks.write(wanted);
            self.release(case.key);
            return Paced::current(image);
        };
        let before = Marks::of_live(live);
        let is_same = before.template == marks.template;
        let is_edited = match &before.fields {
            Some(_) => before.fields != marks.fields,
            None => case.is_edited,
        };
        let until = now.saturating_add(ROLLOUT_STUCK_AFTER).unwrap_or(now);
        if is_same {
            marks.rolled = before.rolled;
            marks.write(wanted);
            return self.follow(case.key, progress(live, workload, now), image, now);
        }
        let mut slots = self.slots();
        match progress(live, workload, now) {
            Progress::Rolling(until) => slots.keep(case.key, until),
            // What was applied last may not be known here yet.
            Progress::Settled | Progress::Stuck(_) if !workload.is_observed => {}
            Progress::Settled | Progress::Stuck(_) => slots.end(case.key, before.rolled),
        }
        let answer = match is_edited || workload.wanted == 0 {
            true => {
                slots.begin(case.key, now, until);
                Ok(())
            }
            false => slots.request(case.key, now, until),
        };
        drop(slots);
        match answer {
            Ok(()) => {
                marks.rolled = Some(now);
                marks.write(wanted);
                Paced::current(image)
            }
            Err(others) => {
                let is_held = hold(wanted, live, &before);
                Paced {
                    standing: Standing::Waiting(others),
                    is_held,
                    image,
                    pause: Some(ROLLOUT_PAUSE),
                }
            }
        }
    }

    /// The wanted template is the one applied last.
    fn follow(
        &self,
        key: &Key,
        progress: Progress,
        image: Option<String>,
        now: Timestamp,
    ) -> Paced {
        let mut slots = self.slots();
        let mut paced = Paced::current(image);
        match progress {
            Progress::Settled => slots.release(key),
            Progress::Rolling(until) => {
                slots.keep(key, until);
                paced.pause = Duration::try_from(until.duration_since(now)).ok();
            }
            Progress::Stuck(since) => {
                slots.release(key);
                paced.standing = Standing::Stuck(since);
            }
        }
        paced
    }
}

impl Paced {
    fn current(image: Option<String>) -> Self {
        Self {
            standing: Standing::Current,
            is_held: false,
            image,
            pause: None,
        }
    }
}

/// Makes `wanted` the Deployment as it is, with the wanted number of pods; whether that is what it
/// has already. The live template holds defaults and fields of others, too: they are ours until the
/// next template is applied, and stay as they are then.
fn hold(wanted: &mut Child, live: &Live, marks: &Marks) -> bool {
    let replicas = wanted.body["spec"]["replicas"].clone();
    let is_held = replicas.is_null() || replicas == live.body["spec"]["replicas"];
    let mut metadata = wanted.body["metadata"].take();
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.remove("annotations");
    }
    let mut spec = wanted.body["spec"].take();
    spec["template"] = live.body["spec"]["template"].clone();
    *wanted = Child::new(wanted.kind, metadata, serde_json::json!({ "spec": spec }));
    marks.write(wanted);
    // A template that somebody changed meanwhile must not be changed back.
    wanted.body["metadata"]["resourceVersion"] = live.resource_version.as_str().into();
    is_held
}

/// The deployments that `keys` name, each once.
pub(crate) fn names(keys: &[Key]) -> BTreeSet<String> {
    keys.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests;
