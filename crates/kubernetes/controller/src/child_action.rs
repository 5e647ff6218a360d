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
    pub(crate) stored_digest: String,
}

impl LastApplied {
    /// `response` is the API server's response to an apply of `child`.
    pub(crate) fn from_response(child: &ChildObject, response: &LiveObject) -> Self {
        Self {
            digest: child.digest.clone(),
            uid: response.uid.clone(),
            resource_version: response.resource_version.clone(),
            stored_digest: stored_digest(child, response),
        }
    }
}

/// The action for one child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChildAction {
    /// Nothing, because the child is in sync.
    InSync,
    /// Wait, because this controller created it and the watch will report it soon.
    AwaitWatch,
    /// Create it, because it does not exist.
    Create,
    /// Update it, because it differs from the desired state.
    Update,
    /// Wait until its deletion is complete; only then can it be created again.
    AwaitDeletion,
    NameConflict,
    /// Wait, because it belongs to a former deployment of the same name and will be
    /// garbage-collected.
    AwaitGarbageCollection,
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
        Ownership::Foreign => return ChildAction::NameConflict,
        Ownership::Former => return ChildAction::AwaitGarbageCollection,
        Ownership::Ours => {}
    }
    if !live.body["metadata"]["deletionTimestamp"].is_null() {
        return ChildAction::AwaitDeletion;
    }
    let before = before.filter(|b| b.uid == live.uid && b.digest == child.digest);
    if let Some(before) = before
        && is_not_newer(&live.resource_version, &before.resource_version)
    {
        return ChildAction::InSync;
    }
    let is_applied = live.applied_digest.as_deref() == Some(child.digest.as_str());
    let is_unmodified = || {
        project(&live.body, &child.body, "") == child.body
            || before.is_some_and(|b| b.stored_digest == stored_digest(child, live))
    };
    match is_applied && is_unmodified() {
        true => ChildAction::InSync,
        false => ChildAction::Update,
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

fn stored_digest(child: &ChildObject, live: &LiveObject) -> String {
    digest_of(&project(&live.body, &child.body, ""))
}

/// The fields of `live` that `desired` also has, in the order of `desired`.
fn project(live: &Value, desired: &Value, field: &str) -> Value {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            let found = desired.iter().filter_map(|(name, desired)| {
                let live = live.get(name)?;
                Some((name.clone(), project(live, desired, name)))
            });
            Value::Object(found.collect::<Map<_, _>>())
        }
        (Value::Array(live), Value::Array(desired)) => match key_of(field) {
            // The ports of a Service have another merge key than those of a container.
            Some(key) if desired.iter().all(|desired| !desired[key].is_null()) => {
                let same = |desired: &Value| {
                    let mut live = live.iter();
                    live.find(|l| l[key] == desired[key])
                        .map(|l| project(l, desired, ""))
                };
                Value::Array(desired.iter().filter_map(same).collect())
            }
            _ if live.len() == desired.len() => {
                let pairs = live.iter().zip(desired);
                Value::Array(
                    pairs
                        .map(|(live, desired)| project(live, desired, ""))
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
