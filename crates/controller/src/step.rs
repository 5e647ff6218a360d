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
    /// Its version then.
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
    /// Somebody else's.
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
    /// The deployment's.
    Ours,
    /// That of a deployment of the same name that is gone.
    Former,
    /// Somebody else's.
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
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;

    use super::*;
    use crate::children::ChildKind;

    fn child(cpu: &str) -> Child {
        let metadata = json!({"name": "fraud", "labels": {"a": "b"}});
        let containers =
            json!([{"name": "server", "cpu": cpu, "env": [{"name": "A", "value": "1"}]}]);
        Child::new(
            ChildKind::Deployment,
            metadata,
            json!({"spec": {"containers": containers}}),
        )
    }

    /// `child` as the API server has it, with what others added.
    fn live(child: &Child, version: &str) -> Live {
        let mut body = child.body.clone();
        body["metadata"]["labels"]["theirs"] = "x".into();
        body["spec"]["paused"] = true.into();
        let containers = body["spec"]["containers"].as_array_mut().unwrap();
        containers.insert(0, json!({"name": "injected"}));
        containers[1]["env"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({"name": "B"}));
        let controller = OwnerReference {
            api_version: "albacore.dev/v1alpha1".to_owned(),
            kind: "InferenceDeployment".to_owned(),
            name: "fraud".to_owned(),
            uid: "u".to_owned(),
            ..OwnerReference::default()
        };
        Live {
            uid: "c".to_owned(),
            resource_version: version.to_owned(),
            controller: Some(controller),
            applied: Some(child.digest.clone()),
            body,
        }
    }

    #[test]
    fn what_stands_as_wished_is_left_alone_whatever_others_added() {
        let child = child("1");
        assert_eq!(
            step(&child, Some(&live(&child, "5")), "u", None),
            Step::Keep
        );
    }

    #[test]
    fn a_changed_wish_and_a_changed_field_are_seen() {
        let wish = child("1");
        assert_eq!(
            step(&child("2"), Some(&live(&wish, "5")), "u", None),
            Step::Change
        );
        let mut drifted = live(&wish, "5");
        drifted.body["spec"]["containers"][1]["cpu"] = "9".into();
        assert_eq!(step(&wish, Some(&drifted), "u", None), Step::Change);
        let mut stripped = live(&wish, "5");
        stripped.body["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .pop();
        assert_eq!(step(&wish, Some(&stripped), "u", None), Step::Change);
        // A wish that lost a field: nothing of what is left differs, but the digest does.
        let mut fewer = live(&wish, "5");
        fewer.applied = Some("another".to_owned());
        assert_eq!(step(&wish, Some(&fewer), "u", None), Step::Change);
    }

    #[test]
    fn lists_without_the_usual_key_are_compared_one_by_one() {
        let ports = json!([{"name": "http", "port": 80}, {"name": "grpc", "port": 81}]);
        let metadata = json!({"name": "fraud"});
        let wish = Child::new(
            ChildKind::Service,
            metadata,
            json!({"spec": {"ports": ports}}),
        );
        let mut stands = live(&child("1"), "5");
        stands.applied = Some(wish.digest.clone());
        stands.body = wish.body.clone();
        stands.body["spec"]["ports"][1]["nodePort"] = 30_000.into();
        assert_eq!(step(&wish, Some(&stands), "u", None), Step::Keep);
        stands.body["spec"]["ports"][1]["port"] = 82.into();
        assert_eq!(step(&wish, Some(&stands), "u", None), Step::Change);
    }

    #[test]
    fn another_spelling_of_the_api_server_is_applied_once_and_never_again() {
        let wish = child("1000m");
        let mut answer = live(&wish, "5");
        answer.body["spec"]["containers"][1]["cpu"] = "1".into();
        assert_eq!(step(&wish, Some(&answer), "u", None), Step::Change);
        let before = Applied::of(&wish, &answer);
        answer.resource_version = "9".to_owned();
        answer.body["status"] = json!({"replicas": 3});
        assert_eq!(step(&wish, Some(&answer), "u", Some(&before)), Step::Keep);
        answer.body["spec"]["containers"][1]["cpu"] = "2".into();
        assert_eq!(step(&wish, Some(&answer), "u", Some(&before)), Step::Change);
    }

    #[test]
    fn a_watch_that_lags_makes_no_second_write() {
        let (old, new) = (child("1"), child("2"));
        let before = Applied::of(&new, &live(&new, "7"));
        let lagging = live(&old, "5");
        assert_eq!(step(&new, Some(&lagging), "u", Some(&before)), Step::Keep);
        assert_eq!(step(&new, None, "u", Some(&before)), Step::AwaitBirth);
        assert_eq!(step(&new, None, "u", None), Step::Create);
    }

    #[test]
    fn what_is_not_ours_is_never_touched() {
        let wish = child("1");
        let mut foreign = live(&wish, "5");
        assert_eq!(step(&wish, Some(&foreign), "v", None), Step::Former);
        foreign.controller = None;
        assert_eq!(step(&wish, Some(&foreign), "u", None), Step::Taken);
        let mut dying = live(&wish, "5");
        dying.body["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z".into();
        assert_eq!(step(&wish, Some(&dying), "u", None), Step::AwaitDeath);
    }
}
