//! Decides which action a child needs. Pure.
//!
//! A child carries the digest of the body that was applied last. A changed body is therefore
//! detected even by a controller that was just started, and even if the change only removes a
//! field. A field that another field manager changed is detected by comparing the owned fields with
//! the live object. The API server may normalize a value (`1000m` to `1`). Therefore the digest of
//! the stored fields is recorded after each apply: if the live fields equal those that the last
//! apply produced, nothing is written. This prevents an endless loop of writes.

use serde_json::{Map, Value};

use crate::build::key_of;
use crate::children::ChildObject;
use crate::digest::digest_of;
use crate::observed::LiveObject;

/// The result of the last apply of a child.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LastApplied {
    /// Digest of the applied body.
    pub(crate) digest: String,
    /// Uid of the object that was written.
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// Digest of the owned fields as stored by the API server.
    pub(crate) stored: String,
}

impl LastApplied {
    /// `answer` is the API server's response to an apply of `child`.
    pub(crate) fn of(child: &ChildObject, answer: &LiveObject) -> Self {
        Self {
            digest: child.digest.clone(),
            uid: answer.uid.clone(),
            resource_version: answer.resource_version.clone(),
            stored: stored(child, answer),
        }
    }
}

/// The action for one child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChildAction {
    /// Nothing, because the child is in sync.
    Keep,
    /// Wait, because this controller created it and the watch will report it soon.
    AwaitWatch,
    /// Create it, because it does not exist.
    Create,
    /// Update it, because it differs from the desired state.
    Change,
    /// Wait until its deletion is complete; only then can it be created again.
    AwaitDeletion,
    Taken,
    /// Wait, because it belongs to a former deployment of the same name and will be
    /// garbage-collected.
    Former,
}

/// The action for `child` of the owner with `owner_uid`; `live` is the existing object.
pub(crate) fn child_action(
    child: &ChildObject,
    live: Option<&LiveObject>,
    owner_uid: &str,
    before: Option<&LastApplied>,
) -> ChildAction {
    let Some(live) = live else {
        return match before {
            Some(_) => ChildAction::AwaitWatch,
            None => ChildAction::Create,
        };
    };
    match ownership(live, owner_uid, child.owner()) {
        Ownership::Foreign => return ChildAction::Taken,
        Ownership::Former => return ChildAction::Former,
        Ownership::Ours => {}
    }
    if !live.body["metadata"]["deletionTimestamp"].is_null() {
        return ChildAction::AwaitDeletion;
    }
    let before = before.filter(|b| b.uid == live.uid && b.digest == child.digest);
    if let Some(before) = before
        && is_not_newer(&live.resource_version, &before.resource_version)
    {
        return ChildAction::Keep;
    }
    let is_applied = live.applied.as_deref() == Some(child.digest.as_str());
    let is_kept = || {
        project(&live.body, &child.body, "") == child.body
            || before.is_some_and(|b| b.stored == stored(child, live))
    };
    match is_applied && is_kept() {
        true => ChildAction::Keep,
        false => ChildAction::Change,
    }
}

/// The owner of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ownership {
    Ours,
    /// A deployment of the same name that was deleted.
    Former,
    Foreign,
}

/// The owner of `live` from the view of the deployment `name` with `owner_uid`.
pub(crate) fn ownership(live: &LiveObject, owner_uid: &str, name: &str) -> Ownership {
    match &live.controller {
        Some(owner) if owner.uid == owner_uid => Ownership::Ours,
        Some(owner)
            if owner.kind == "InferenceDeployment"
                && owner.name == name
                && owner.api_version.starts_with("albacore.dev/") =>
        {
            Ownership::Former
        }
        _ => Ownership::Foreign,
    }
}

/// Whether version `a` is known to be equal to or older than `b`. Versions that are not numbers are
/// only compared for equality.
pub(crate) fn is_not_newer(a: &str, b: &str) -> bool {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a <= b,
        _ => a == b,
    }
}

fn stored(child: &ChildObject, live: &LiveObject) -> String {
    digest_of(&project(&live.body, &child.body, ""))
}

/// The fields of `live` that `wanted` also has, in the order of `wanted`.
fn project(live: &Value, wanted: &Value, field: &str) -> Value {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            let found = wanted.iter().filter_map(|(name, wanted)| {
                let live = live.get(name)?;
                Some((name.clone(), project(live, wanted, name)))
            });
            Value::Object(found.collect::<Map<_, _>>())
        }
        (Value::Array(live), Value::Array(wanted)) => match key_of(field) {
            // The ports of a Service have another merge key than those of a container.
            Some(key) if wanted.iter().all(|wanted| !wanted[key].is_null()) => {
                let same = |wanted: &Value| {
                    let mut live = live.iter();
                    live.find(|l| l[key] == wanted[key])
                        .map(|l| project(l, wanted, ""))
                };
                Value::Array(wanted.iter().filter_map(same).collect())
            }
            _ if live.len() == wanted.len() => {
                let pairs = live.iter().zip(wanted);
                Value::Array(
                    pairs
                        .map(|(live, wanted)| project(live, wanted, ""))
                        .collect(),
                )
            }
            _ => Value::Array(live.clone()),
        },
        (live, _) => live.clone(),
    }
}

#[cfg(test)]
mod tests;
