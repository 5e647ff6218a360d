//! What the controller remembers of each deployment between two reconciles. All of it can be lost:
//! then a child may be applied once more than needed, and an autoscaler starts its five minutes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use albacore_api::InferenceDeploymentStatus;
use albacore_batching::Autoscaler;
use albacore_cluster::Key;

use crate::children::ChildKind;
use crate::limits::BIRTH_TIME_MAX;
use crate::pod_events::Known;
use crate::respawns::Respawns;
use crate::step::Applied;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The object that this is remembered of; another uid is another deployment.
    pub(crate) uid: String,
    applied: BTreeMap<ChildKind, (Applied, Instant)>,
    /// The kind whose name somebody else had at the last try.
    pub(crate) taken: Option<ChildKind>,
    /// The status as it was last written, the version that it made, and when.
    pub(crate) status: Option<(InferenceDeploymentStatus, String, Instant)>,
    /// Reconciles in a row that the API server failed with what usually passes.
    pub(crate) failures: u32,
    /// What the events of a pod that is not ready said.
    pub(crate) pod_events: Option<Known>,
    /// Worker processes that were replaced.
    pub(crate) respawns: Respawns,
    /// The rule of `spec.autoscaling`.
    pub(crate) autoscaler: Autoscaler,
    /// The number of pods that the rule decided on last.
    pub(crate) replicas: Option<i32>,
}

impl Memory {
    /// What the last apply of a child gave. A child that no watch has told of in time is forgotten.
    pub(crate) fn applied(&self, kind: ChildKind, is_live: bool) -> Option<&Applied> {
        let (applied, at) = self.applied.get(&kind)?;
        (is_live || at.elapsed() < BIRTH_TIME_MAX).then_some(applied)
    }

    pub(crate) fn note(&mut self, kind: ChildKind, applied: Applied) {
        self.applied.insert(kind, (applied, Instant::now()));
    }

    /// The child is gone.
    pub(crate) fn forget(&mut self, kind: ChildKind) {
        self.applied.remove(&kind);
    }
}

/// Of all deployments. Clones are the same memories.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memories {
    known: Arc<Mutex<HashMap<Key, Arc<Mutex<Memory>>>>>,
}

impl Memories {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Mutex<Memory>>>> {
        // Entries are whole at every moment.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory of the deployment `key` that is the object `uid`: a new one for a new object.
    pub(crate) fn of(&self, key: &Key, uid: &str) -> Arc<Mutex<Memory>> {
        let memory = self.lock().entry(key.clone()).or_default().clone();
        let mut locked = lock(&memory);
        if locked.uid != uid {
            *locked = Memory {
                uid: uid.to_owned(),
                ..Memory::default()
            };
        }
        drop(locked);
        memory
    }

    /// The deployment is gone.
    pub(crate) fn drop_key(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// A child of the deployment is gone.
    pub(crate) fn forget_child(&self, key: &Key, kind: ChildKind) {
        let memory = self.lock().get(key).cloned();
        if let Some(memory) = memory {
            lock(&memory).forget(kind);
        }
    }

    /// Everything: somebody else led meanwhile.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }
}

/// A memory, also after a panic elsewhere: each field is whole by itself.
pub(crate) fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}
