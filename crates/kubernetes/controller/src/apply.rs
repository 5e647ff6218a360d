//! Applies the children of a deployment: creates, updates and deletes those that differ from the
//! desired state.
//!
//! Never writes an object of another owner. A child is created with a resource version that no
//! stored object can have, so the API server rejects the write if an object of that name exists. A
//! child is updated with the uid of the object that was read.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use albacore_cluster::{Cluster, ClusterError, ErrorClass, ObjectKey};
use serde_json::Value;

use crate::child_action::{ChildAction, LastApplied, Ownership, child_action, ownership};
use crate::children::{ChildKind, ChildObject};
use crate::limits::SKIPPED_PAUSE;
use crate::observe::child_from_response;
use crate::observed::LiveObject;
use crate::record::{DeploymentRecord, lock};
use crate::status::ApplyOutcome;
use crate::validate::ValidDeployment;
use crate::watches::child_kind;

/// A resource version that no stored object has: etcd revisions of objects start at 2.
const NO_VERSION: &str = "1";

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct AppliedChanges {
    pub(crate) created: Vec<ChildKind>,
    pub(crate) changed: Vec<ChildKind>,
    pub(crate) deleted: Vec<ChildKind>,
    /// Not applied, because an object of another owner has the name.
    pub(crate) skipped: Vec<ChildKind>,
}

/// Applies the children of one deployment.
pub(crate) struct ChildApplier<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) valid: &'a ValidDeployment,
    pub(crate) record: &'a Mutex<DeploymentRecord>,
    /// The children from the cache; after a write, the object that the API server returned.
    pub(crate) live: &'a mut BTreeMap<ChildKind, LiveObject>,
    pub(crate) changes: AppliedChanges,
    /// Whether the Deployment of the pods must not be updated, because its roll-out has to wait.
    pub(crate) is_held: bool,
}

/// The result of applying one child.
enum ChildOutcome {
    InSync,
    Blocked(ApplyOutcome),
}

impl ChildApplier<'_> {
    /// Applies the children, and deletes children of this deployment that are no longer desired.
    ///
    /// # Errors
    /// The API server rejects a child or does not respond; earlier writes are not rolled back.
    pub(crate) async fn apply(
        &mut self,
        children: &[ChildObject],
    ) -> Result<ApplyOutcome, ClusterError> {
        let actions: Vec<ChildAction> = children.iter().map(|child| self.action(child)).collect();
        // Checked before the first write, so that a deployment that cannot be completed is not
        // started.
        for (child, action) in children.iter().zip(&actions) {
            match action {
                ChildAction::NameConflict if child.kind.is_optional() => self.skip(child),
                ChildAction::NameConflict => return Ok(ApplyOutcome::NameConflict(child.kind)),
                ChildAction::AwaitGarbageCollection => {
                    return Ok(ApplyOutcome::AwaitingGarbageCollection(child.kind));
                }
                _ => {}
            }
        }
        for (child, action) in children.iter().zip(actions) {
            let outcome = match action {
                ChildAction::InSync | ChildAction::AwaitWatch => ChildOutcome::InSync,
                ChildAction::Create if self.is_skipped(child) => ChildOutcome::InSync,
                ChildAction::AwaitDeletion => {
                    ChildOutcome::Blocked(ApplyOutcome::AwaitingGarbageCollection(child.kind))
                }
                ChildAction::Create => self.create(child).await?,
                ChildAction::Update => self.update(child).await?,
                // Handled above.
                ChildAction::NameConflict | ChildAction::AwaitGarbageCollection => {
                    ChildOutcome::InSync
                }
            };
            if let ChildOutcome::Blocked(outcome) = outcome {
                return Ok(outcome);
            }
        }
        lock(self.record).name_conflict = None;
        self.delete_surplus(children).await?;
        Ok(ApplyOutcome::Applied)
    }

    fn action(&self, child: &ChildObject) -> ChildAction {
        let live = self.live.get(&child.kind);
        let record = lock(self.record);
        let before = record.applied(child.kind, live.is_some());
        match child_action(child, live, &self.valid.uid, before) {
            ChildAction::Update if self.is_held && child.kind == ChildKind::Deployment => {
                ChildAction::InSync
            }
            action => action,
        }
    }

    async fn create(&mut self, child: &ChildObject) -> Result<ChildOutcome, ClusterError> {
        let had_name_conflict = lock(self.record).name_conflict == Some(child.kind);
        if had_name_conflict && let Some(found) = self.get(child).await? {
            return self.adopt(child, found).await;
        }
        let body = with_metadata(child, "resourceVersion", NO_VERSION);
        match self.send(child, &body).await {
            Err(error) if error.class() == ErrorClass::Conflict => match self.get(child).await? {
                Some(found) => self.adopt(child, found).await,
                None => Err(error),
            },
            response => {
                let outcome = self.handle_response(child, response)?;
                if matches!(outcome, ChildOutcome::InSync) {
                    self.changes.created.push(child.kind);
                }
                Ok(outcome)
            }
        }
    }

    /// Handles an existing object with the child's name that the watch has not reported yet.
    async fn adopt(
        &mut self,
        child: &ChildObject,
        found: LiveObject,
    ) -> Result<ChildOutcome, ClusterError> {
        match ownership(&found, &self.valid.uid, child.owner()) {
            Ownership::Foreign if child.kind.is_optional() => {
                self.skip(child);
                Ok(ChildOutcome::InSync)
            }
            Ownership::Foreign => {
                lock(self.record).name_conflict = Some(child.kind);
                Ok(ChildOutcome::Blocked(ApplyOutcome::NameConflict(
                    child.kind,
                )))
            }
            Ownership::Former => Ok(ChildOutcome::Blocked(
                ApplyOutcome::AwaitingGarbageCollection(child.kind),
            )),
            Ownership::Ours => {
                self.live.insert(child.kind, found);
                self.update(child).await
            }
        }
    }

    /// Skips an optional child whose name is used by another owner.
    fn skip(&mut self, child: &ChildObject) {
        if !self.is_skipped(child) {
            lock(self.record).skipped = Some((child.kind, Instant::now()));
            self.changes.skipped.push(child.kind);
        }
    }

    fn is_skipped(&self, child: &ChildObject) -> bool {
        let skipped = lock(self.record).skipped;
        skipped.is_some_and(|(kind, at)| kind == child.kind && at.elapsed() < SKIPPED_PAUSE)
    }

    async fn update(&mut self, child: &ChildObject) -> Result<ChildOutcome, ClusterError> {
        let uid = self.live.get(&child.kind).map(|live| live.uid.clone());
        let body = with_metadata(child, "uid", &uid.unwrap_or_default());
        let response = self.send(child, &body).await;
        let outcome = self.handle_response(child, response)?;
        if matches!(outcome, ChildOutcome::InSync) {
            self.changes.changed.push(child.kind);
        }
        Ok(outcome)
    }

    async fn send(&self, child: &ChildObject, body: &Value) -> Result<LiveObject, ClusterError> {
        let response = self.cluster.apply(&child_kind(child.kind), body).await?;
        Ok(child_from_response(child.kind, &response))
    }

    fn handle_response(
        &mut self,
        child: &ChildObject,
        response: Result<LiveObject, ClusterError>,
    ) -> Result<ChildOutcome, ClusterError> {
        match response {
            Ok(live) => {
                lock(self.record).set_applied(child.kind, LastApplied::from_response(child, &live));
                self.live.insert(child.kind, live);
                Ok(ChildOutcome::InSync)
            }
            // The Prometheus operator and its custom resource definition were removed.
            Err(error)
                if error.class() == ErrorClass::NotFound
                    && child.kind == ChildKind::ServiceMonitor =>
            {
                Ok(ChildOutcome::InSync)
            }
            Err(error) => Err(error),
        }
    }

    async fn get(&self, child: &ChildObject) -> Result<Option<LiveObject>, ClusterError> {
        let found = self
            .cluster
            .get(&child_kind(child.kind), &self.key(child.kind))
            .await?;
        Ok(found.map(|object| child_from_response(child.kind, &object)))
    }

    async fn delete_surplus(&mut self, children: &[ChildObject]) -> Result<(), ClusterError> {
        let is_desired = |kind: &ChildKind| children.iter().any(|child| child.kind == *kind);
        let surplus = self.live.iter().filter(|(kind, live)| {
            let ownership = ownership(live, &self.valid.uid, &self.valid.name);
            let is_terminating = !live.body["metadata"]["deletionTimestamp"].is_null();
            !is_desired(kind) && ownership == Ownership::Ours && !is_terminating
        });
        let surplus: Vec<_> = surplus
            .map(|(kind, live)| (*kind, live.uid.clone()))
            .collect();
        for (kind, uid) in surplus {
            let deleted = self
                .cluster
                .delete(&child_kind(kind), &self.key(kind), &uid)
                .await;
            if deleted? {
                self.changes.deleted.push(kind);
            }
            self.live.remove(&kind);
        }
        Ok(())
    }

    fn key(&self, kind: ChildKind) -> ObjectKey {
        ObjectKey::new(&self.valid.namespace, kind.name_of(&self.valid.name))
    }
}

/// The child's body with one field added to its metadata.
fn with_metadata(child: &ChildObject, field: &str, value: &str) -> Value {
    let mut body = child.body.clone();
    body["metadata"][field] = value.into();
    body
}
