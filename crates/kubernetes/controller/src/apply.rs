//! Makes children as they are wished: creates, changes and deletes what differs, and nothing else.
//!
//! Nothing of somebody else's is ever touched: a child is created with a version that no object can
//! have, which the API server takes for a new object and refuses for one that exists; it is changed
//! with the uid of the object that was looked at.

use std::collections::BTreeMap;
use std::sync::Mutex;

use albacore_cluster::{Cluster, ClusterError, ErrorClass, Key};
use serde_json::Value;

use crate::children::{Child, ChildKind};
use crate::dereference::live;
use crate::memory::{Memory, lock};
use crate::observed::Live;
use crate::status::Verdict;
use crate::step::{Applied, Ownership, Step, ownership, step};
use crate::validate::Valid;
use crate::watches::child_kind;

/// A version that no stored object has: versions of etcd begin at 2.
const NEVER: &str = "1";

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Done {
    pub(crate) created: Vec<ChildKind>,
    pub(crate) changed: Vec<ChildKind>,
    pub(crate) deleted: Vec<ChildKind>,
}

/// One deployment's children, on their way to what is wished.
pub(crate) struct Applying<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) valid: &'a Valid,
    pub(crate) memory: &'a Mutex<Memory>,
    /// The children as they exist; as the API server answered where one was written.
    pub(crate) live: &'a mut BTreeMap<ChildKind, Live>,
    pub(crate) done: Done,
    /// Whether the Deployment of the pods is left as it is.
    pub(crate) is_held: bool,
}

/// What came of one child.
enum Came {
    Right,
    Verdict(Verdict),
}

impl Applying<'_> {
    /// Makes the children so; those of ours that are not wished are deleted.
    ///
    /// # Errors
    /// The API server refuses a child, or does not answer; what was done so far stands.
    pub(crate) async fn apply(&mut self, children: &[Child]) -> Result<Verdict, ClusterError> {
        let steps: Vec<Step> = children.iter().map(|child| self.step(child)).collect();
        // Before anything is written: a deployment that cannot be whole is not begun.
        for (child, step) in children.iter().zip(&steps) {
            match step {
                Step::Taken => return Ok(Verdict::Taken(child.kind)),
                Step::Former => return Ok(Verdict::Collecting(child.kind)),
                _ => {}
            }
        }
        for (child, step) in children.iter().zip(steps) {
            let came = match step {
                Step::Keep | Step::AwaitBirth => Came::Right,
                Step::AwaitDeath => Came::Verdict(Verdict::Collecting(child.kind)),
                Step::Create => self.create(child).await?,
                Step::Change => self.change(child).await?,
                // Returned above.
                Step::Taken | Step::Former => Came::Right,
            };
            if let Came::Verdict(verdict) = came {
                return Ok(verdict);
            }
        }
        lock(self.memory).taken = None;
        self.delete_surplus(children).await?;
        Ok(Verdict::Applied)
    }

    fn step(&self, child: &Child) -> Step {
        let live = self.live.get(&child.kind);
        let memory = lock(self.memory);
        let before = memory.applied(child.kind, live.is_some());
        match step(child, live, &self.valid.uid, before) {
            Step::Change if self.is_held && child.kind == ChildKind::Deployment => Step::Keep,
            step => step,
        }
    }

    async fn create(&mut self, child: &Child) -> Result<Came, ClusterError> {
        let was_taken = lock(self.memory).taken == Some(child.kind);
        if was_taken && let Some(found) = self.look(child).await? {
            return self.meet(child, found).await;
        }
        let body = with(child, "resourceVersion", NEVER);
        match self.send(child, &body).await {
            Err(error) if error.class() == ErrorClass::Conflict => match self.look(child).await? {
                Some(found) => self.meet(child, found).await,
                None => Err(error),
            },
            answer => {
                let came = self.judge(child, answer)?;
                if matches!(came, Came::Right) {
                    self.done.created.push(child.kind);
                }
                Ok(came)
            }
        }
    }

    /// An object of the child's name that the watch does not know.
    async fn meet(&mut self, child: &Child, found: Live) -> Result<Came, ClusterError> {
        match ownership(&found, &self.valid.uid, child.name()) {
            Ownership::Foreign => {
                lock(self.memory).taken = Some(child.kind);
                Ok(Came::Verdict(Verdict::Taken(child.kind)))
            }
            Ownership::Former => Ok(Came::Verdict(Verdict::Collecting(child.kind))),
            Ownership::Ours => {
                self.live.insert(child.kind, found);
                self.change(child).await
            }
        }
    }

    async fn change(&mut self, child: &Child) -> Result<Came, ClusterError> {
        let uid = self.live.get(&child.kind).map(|live| live.uid.clone());
        let body = with(child, "uid", &uid.unwrap_or_default());
        let answer = self.send(child, &body).await;
        let came = self.judge(child, answer)?;
        if matches!(came, Came::Right) {
            self.done.changed.push(child.kind);
        }
        Ok(came)
    }

    async fn send(&self, child: &Child, body: &Value) -> Result<Live, ClusterError> {
        let answer = self.cluster.apply(&child_kind(child.kind), body).await?;
        Ok(live(child.kind, &answer))
    }

    fn judge(
        &mut self,
        child: &Child,
        answer: Result<Live, ClusterError>,
    ) -> Result<Came, ClusterError> {
        match answer {
            Ok(live) => {
                lock(self.memory).note(child.kind, Applied::of(child, &live));
                self.live.insert(child.kind, live);
                Ok(Came::Right)
            }
            // The operator of Prometheus was removed; its kind went with it.
            Err(error)
                if error.class() == ErrorClass::NotFound
                    && child.kind == ChildKind::ServiceMonitor =>
            {
                Ok(Came::Right)
            }
            Err(error) => Err(error),
        }
    }

    async fn look(&self, child: &Child) -> Result<Option<Live>, ClusterError> {
        let found = self
            .cluster
            .get(&child_kind(child.kind), &self.key())
            .await?;
        Ok(found.map(|object| live(child.kind, &object)))
    }

    async fn delete_surplus(&mut self, children: &[Child]) -> Result<(), ClusterError> {
        let is_wished = |kind: &ChildKind| children.iter().any(|child| child.kind == *kind);
        let surplus = self.live.iter().filter(|(kind, live)| {
            let ownership = ownership(live, &self.valid.uid, &self.valid.name);
            let is_dying = !live.body["metadata"]["deletionTimestamp"].is_null();
            !is_wished(kind) && ownership == Ownership::Ours && !is_dying
        });
        let surplus: Vec<_> = surplus
            .map(|(kind, live)| (*kind, live.uid.clone()))
            .collect();
        for (kind, uid) in surplus {
            let deleted = self
                .cluster
                .delete(&child_kind(kind), &self.key(), &uid)
                .await;
            if deleted? {
                self.done.deleted.push(kind);
            }
            self.live.remove(&kind);
        }
        Ok(())
    }

    fn key(&self) -> Key {
        Key::new(&self.valid.namespace, &self.valid.name)
    }
}

/// The wish with one more field in its metadata.
fn with(child: &Child, field: &str, value: &str) -> Value {
    let mut body = child.body.clone();
    body["metadata"][field] = value.into();
    body
}
