//! State of each deployment that the controller keeps in memory between two reconciles. All of it
//! may be lost: then a child may be applied once more than necessary, and the autoscaler's delay of
//! five minutes starts again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use albacore_api::InferenceDeploymentStatus;
use albacore_batching::Autoscaler;
use albacore_cluster::ObjectKey;

use crate::child_action::LastApplied;
use crate::children::ChildKind;
use crate::limits::CREATION_REPORTED_TIME_MAX;
use crate::pod_events::LastEventRead;
use crate::respawns::Respawns;
use crate::traffic::TrafficRecord;

#[derive(Debug, Default)]
pub(crate) struct DeploymentRecord {
    /// The uid of the deployment, which distinguishes deployments of the same name.
    pub(crate) uid: String,
    applied: BTreeMap<ChildKind, (LastApplied, Instant)>,
    /// The kind of child whose name was used by another owner at the last attempt.
    pub(crate) name_conflict: Option<ChildKind>,
    /// The kind of the optional child that was skipped for this reason, and the time.
    pub(crate) skipped: Option<(ChildKind, Instant)>,
    pub(crate) status: Option<(InferenceDeploymentStatus, String, Instant)>,
    /// Consecutive reconciles that failed with a transient error of the API server.
    pub(crate) failures: u32,
    /// The events of a pod that is not ready.
    pub(crate) pod_events: Option<LastEventRead>,
    pub(crate) respawns: Respawns,
    /// The autoscaler of `spec.autoscaling`.
    pub(crate) autoscaler: Autoscaler,
    /// The autoscaler's last decision.
    pub(crate) replicas: Option<i32>,
    pub(crate) traffic: TrafficRecord,
}

impl DeploymentRecord {
    /// The result of the last apply of a child. It expires if no watch has reported the child in
    /// time.
    pub(crate) fn applied(&self, kind: ChildKind, is_live: bool) -> Option<&LastApplied> {
        let (applied, at) = self.applied.get(&kind)?;
        (is_live || at.elapsed() < CREATION_REPORTED_TIME_MAX).then_some(applied)
    }

    pub(crate) fn set_applied(&mut self, kind: ChildKind, applied: LastApplied) {
        self.applied.insert(kind, (applied, Instant::now()));
    }

    /// Removes the entries of a child that was deleted, including that its name was taken.
    pub(crate) fn remove_child(&mut self, kind: ChildKind) {
        self.applied.remove(&kind);
        self.skipped.take_if(|(skipped, _)| *skipped == kind);
    }
}

/// The records of all deployments. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeploymentRecords {
    records: Arc<Mutex<HashMap<ObjectKey, Arc<Mutex<DeploymentRecord>>>>>,
}

impl DeploymentRecords {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, Arc<Mutex<DeploymentRecord>>>> {
        // Each entry is consistent at any time.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record of the deployment `key` with the uid `uid`; a new uid gets a new record.
    pub(crate) fn of(&self, key: &ObjectKey, uid: &str) -> Arc<Mutex<DeploymentRecord>> {
        let record = self.lock().entry(key.clone()).or_default().clone();
        let mut locked = lock(&record);
        if locked.uid != uid {
            *locked = DeploymentRecord {
                uid: uid.to_owned(),
                ..DeploymentRecord::default()
            };
        }
        drop(locked);
        record
    }

    /// Removes the record of a deployment that was deleted.
    pub(crate) fn remove_deployment(&self, key: &ObjectKey) {
        self.lock().remove(key);
    }

    /// Removes a deleted child from its record.
    pub(crate) fn remove_child(&self, key: &ObjectKey, kind: ChildKind) {
        let record = self.lock().get(key).cloned();
        if let Some(record) = record {
            lock(&record).remove_child(kind);
        }
    }

    /// Removes all records, because another process may have led meanwhile.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }
}

/// Locks a record even if the mutex is poisoned, because each field is consistent by itself.
pub(crate) fn lock(record: &Mutex<DeploymentRecord>) -> MutexGuard<'_, DeploymentRecord> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}
