//! What is to be done about one child. Pure.
//!
//! A child carries the digest of what was applied last, so a wish that changed is seen even by a
//! controller that was just started, a field that is wished no longer among it. A field that
//! somebody else changed is seen by comparing the fields of ours with the live ones. The API server
//! may store some value in another spelling (`1000m` as `1`); so what it made of the last wish is
//! remembered, and what stands so is as it was wished. That ends every loop of writes.

use serde_json::{Map, Value};

use crate::build::key_of;
use crate::children::Child;
use crate::digest::digest_of;
use crate::observed::Live;

/// What the last apply of a child gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Applied {
    /// Digest of the wish.
    pub(crate) digest: String,
    /// The object that took it.
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    /// Digest of our fields as the API server stored them.
    pub(crate) stored: String,
}

impl Applied {
    /// What `answer`, the object as it is after an apply of `child`, is remembered by.
    pub(crate) fn of(child: &Child, answer: &Live) -> Self {
        Self {
            digest: child.digest.clone(),
            uid: answer.uid.clone(),
            resource_version: answer.resource_version.clone(),
            stored: stored(child, answer),
        }
    }
}

/// What is to be done about a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It is as it is wished.
    Keep,
    /// It was created by us, and the watch will tell soon.
    AwaitBirth,
    /// It is not there.
    Create,
    /// It is not as it is wished.
    Change,
    /// It is being deleted: its successor can only be created after that.
    AwaitDeath,
    Taken,
    /// Of a former deployment of the same name, to be collected.
    Former,
}

/// What is to be done about `child` of the owner with `owner_uid`, of which `live` exists.
pub(crate) fn step(
    child: &Child,
    live: Option<&Live>,
    owner_uid: &str,
    before: Option<&Applied>,
) -> Step {
    let Some(live) = live else {
        return match before {
            Some(_) => Step::AwaitBirth,
            None => Step::Create,
        };
    };
    match ownership(live, owner_uid, child.name()) {
        Ownership::Foreign => return Step::Taken,
        Ownership::Former => return Step::Former,
        Ownership::Ours => {}
    }
    if !live.body["metadata"]["deletionTimestamp"].is_null() {
        return Step::AwaitDeath;
    }
    let before = before.filter(|b| b.uid == live.uid && b.digest == child.digest);
    if let Some(before) = before
        && is_not_newer(&live.resource_version, &before.resource_version)
    {
        return Step::Keep;
    }
    let is_applied = live.applied.as_deref() == Some(child.digest.as_str());
    let is_kept = || {
        project(&live.body, &child.body, "") == child.body
            || before.is_some_and(|b| b.stored == stored(child, live))
    };
    match is_applied && is_kept() {
        true => Step::Keep,
        false => Step::Change,
    }
}

/// Whose an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ownership {
    Ours,
    /// That of a deployment of the same name that is gone.
    Former,
    Foreign,
}

/// Whose `live` is, for the deployment `name` with `owner_uid`.
pub(crate) fn ownership(live: &Live, owner_uid: &str, name: &str) -> Ownership {
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

/// Whether version `a` is known to be as old as `b` or older. Versions that are no numbers are
/// compared for equality only.
pub(crate) fn is_not_newer(a: &str, b: &str) -> bool {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a <= b,
        _ => a == b,
    }
}

fn stored(child: &Child, live: &Live) -> String {
    digest_of(&project(&live.body, &child.body, ""))
}

/// The part of `live` that `wish` speaks of, in the order of `wish`.
fn project(live: &Value, wish: &Value, field: &str) -> Value {
    match (live, wish) {
        (Value::Object(live), Value::Object(wish)) => {
            let found = wish.iter().filter_map(|(name, wish)| {
                let live = live.get(name)?;
                Some((name.clone(), project(live, wish, name)))
            });
            Value::Object(found.collect::<Map<_, _>>())
        }
        (Value::Array(live), Value::Array(wish)) => match key_of(field) {
            // The ports of a Service have another key than those of a container.
            Some(key) if wish.iter().all(|wish| !wish[key].is_null()) => {
                let same = |wish: &Value| {
                    let mut live = live.iter();
                    live.find(|l| l[key] == wish[key])
                        .map(|l| project(l, wish, ""))
                };
                Value::Array(wish.iter().filter_map(same).collect())
            }
            _ if live.len() == wish.len() => {
                let pairs = live.iter().zip(wish);
                Value::Array(pairs.map(|(live, wish)| project(live, wish, "")).collect())
            }
            _ => Value::Array(live.clone()),
        },
        (live, _) => live.clone(),
    }
}

#[cfg(test)]
mod tests;
