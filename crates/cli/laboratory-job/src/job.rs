//! The Job in the cluster: validated, found, created, deleted.

use std::time::Instant;

use albacore_api::InferenceDeployment;
use albacore_cluster::{ApiResource, Cluster, ClusterError, DynamicObject, ErrorClass, ObjectKey};
use albacore_command::{Failure, sentence};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::limits::{EXPERIMENT_POLL, JOB_DELETE_TIME_MAX, JOB_EVENTS_MAX};
use crate::object::identity;
use crate::pod::{PodState, state};
use crate::pod_settings::PodSettings;
use crate::subject::JobSubject;

/// Client for the Job with this name, whether or not it exists.
#[derive(Clone)]
pub(crate) struct JobClient {
    pub(crate) cluster: Cluster,
    pub(crate) key: ObjectKey,
    pub(crate) subject: JobSubject,
}

impl JobClient {
    /// Converts a failed request.
    pub(crate) fn failed(&self, error: &ClusterError) -> Failure {
        let message = sentence(error);
        Failure::Failed(match error.class() {
            ErrorClass::Forbidden => format!("{message}; {}", self.subject.rights()),
            _ => message,
        })
    }

    /// A `kubectl` command for this Job, for messages.
    pub(crate) fn kubectl(&self, words: &str) -> String {
        let ObjectKey { namespace, name } = &self.key;
        format!("`kubectl {words} job/{name} -n {namespace}`")
    }

    /// Checks whether the node can run a pod, if this user may read nodes; otherwise the scheduler
    /// reports it.
    pub(crate) async fn check_node(&self, name: &str) -> Result<(), Failure> {
        let kind = ApiResource::erase::<Node>(&());
        let found = match self.cluster.get(&kind, &ObjectKey::new("", name)).await {
            Ok(found) => found,
            Err(error) if error.class() == ErrorClass::Forbidden => return Ok(()),
            Err(error) => return Err(self.failed(&error)),
        };
        let Some(node) = found else {
            return Err(Failure::Failed(format!(
                "--node {name}: there is no such node; `kubectl get nodes` lists them"
            )));
        };
        match node.data["spec"]["unschedulable"] == true {
            true => Err(Failure::Failed(format!(
                "--node {name}: it is cordoned and takes no pods: `kubectl uncordon {name}` first, or \
                 name another node"
            ))),
            false => Ok(()),
        }
    }

    /// Reads an InferenceDeployment in the namespace.
    pub(crate) async fn deployment(&self, name: &str) -> Result<DynamicObject, Failure> {
        let namespace = &self.key.namespace;
        let kind = ApiResource::erase::<InferenceDeployment>(&());
        let key = ObjectKey::new(namespace, name);
        let found = self.cluster.get(&kind, &key).await;
        let found = found.map_err(|error| self.failed(&error))?;
        let option = match self.subject {
            JobSubject::Experiment { .. } => "--deployment ",
            JobSubject::Tune { .. } => "",
        };
        found.ok_or_else(|| {
            Failure::Failed(format!(
                "{option}{name}: there is no such InferenceDeployment; `kubectl get infd -n {namespace}` \
                 lists them"
            ))
        })
    }

    /// The settings that the pod takes from a deployment.
    pub(crate) async fn settings(&self) -> Result<PodSettings, Failure> {
        let namespace = &self.key.namespace;
        match &self.subject {
            JobSubject::Experiment {
                deployment: None, ..
            } => Ok(PodSettings::default()),
            JobSubject::Experiment {
                deployment: Some(name),
                ..
            } => {
                let found = self.deployment(name).await?;
                Ok(PodSettings::of(&typed(found)?))
            }
            JobSubject::Tune { name, .. } => {
                let kind = ApiResource::erase::<Deployment>(&());
                let key = ObjectKey::new(namespace, name);
                let found = self.cluster.get(&kind, &key).await;
                let found = found.map_err(|error| self.failed(&error))?;
                let found = found.ok_or_else(|| {
                    Failure::Failed(format!(
                        "{name}: the controller has not created its Deployment yet: `kubectl \
                         albacore explain {name} -n {namespace}` shows why"
                    ))
                })?;
                PodSettings::of_serving_pods(name, &found.data["spec"]["template"]["spec"])
            }
        }
    }

    /// Returns the uid of the Job if it runs the same work on the requested node. A Job that has
    /// ended is deleted, because its pod no longer has results.
    pub(crate) async fn find(&self, digest: &str) -> Result<Option<String>, Failure> {
        let Some(found) = self.get().await.map_err(|e| self.failed(&e))? else {
            return Ok(None);
        };
        let value = serde_json::to_value(&found).unwrap_or_default();
        let (its_digest, its_node) = identity(&value);
        let noun = self.subject.noun();
        if its_digest != digest {
            return Err(Failure::Failed(format!(
                "Job {} runs another {noun} of this name: wait for its end, delete it ({}), or {}",
                self.key,
                self.kubectl("delete"),
                self.subject.remedy(),
            )));
        }
        if self.subject.node().is_some_and(|node| node != its_node) {
            let (place, follow) = match its_node {
                "" => ("on any node".to_owned(), "without --node".to_owned()),
                node => (format!("on node {node}"), format!("with --node {node}")),
            };
            return Err(Failure::Failed(format!(
                "Job {} runs this {noun} {place}: follow it {follow}, or delete it: {}",
                self.key,
                self.kubectl("delete"),
            )));
        }
        let uid = found.metadata.uid.clone().unwrap_or_default();
        let is_leaving = found.metadata.deletion_timestamp.is_some();
        let mut end = end_of(&value);
        if end.is_none() {
            // the status of the Job follows some seconds later
            let pod = self.pod(&uid).await.map_err(|error| self.failed(&error))?;
            if let Some(PodState::Ended(why)) = pod.as_ref().map(state) {
                end = Some(why);
            }
        }
        match end {
            None if !is_leaving => return Ok(Some(uid)),
            None => {}
            Some(why) => eprintln!(
                "Job {} has already ended ({why}); it is created again",
                self.key
            ),
        }
        self.delete(&uid).await?;
        self.wait_until_gone(&uid).await?;
        Ok(None)
    }

    async fn get(&self) -> Result<Option<DynamicObject>, ClusterError> {
        let kind = ApiResource::erase::<Job>(&());
        self.cluster.get(&kind, &self.key).await
    }

    /// Creates the Job and returns its uid.
    pub(crate) async fn create(&self, object: &Value) -> Result<String, Failure> {
        let kind = ApiResource::erase::<Job>(&());
        let made = self.cluster.apply(&kind, object).await;
        let made = made.map_err(|error| self.failed(&error))?;
        Ok(made.metadata.uid.unwrap_or_default())
    }

    /// Deletes the Job and its pod.
    pub(crate) async fn delete(&self, uid: &str) -> Result<(), Failure> {
        let kind = ApiResource::erase::<Job>(&());
        let deleted = self.cluster.delete(&kind, &self.key, uid).await;
        deleted.map(drop).map_err(|error| self.failed(&error))
    }

    async fn wait_until_gone(&self, uid: &str) -> Result<(), Failure> {
        let begin = Instant::now();
        while begin.elapsed() < JOB_DELETE_TIME_MAX {
            let found = self.get().await.map_err(|e| self.failed(&e))?;
            if found.is_none_or(|job| job.metadata.uid.as_deref() != Some(uid)) {
                return Ok(());
            }
            tokio::time::sleep(EXPERIMENT_POLL).await;
        }
        Err(Failure::Failed(format!(
            "Job {} is deleted and still there after {} s: see {}",
            self.key,
            JOB_DELETE_TIME_MAX.as_secs(),
            self.kubectl("describe")
        )))
    }

    /// Why the Job has ended, if it has; also if it was deleted.
    pub(crate) async fn end(&self, uid: &str) -> Result<Option<String>, ClusterError> {
        let found = self.get().await?;
        let ours = found.filter(|job| job.metadata.uid.as_deref() == Some(uid));
        let Some(job) = ours else {
            return Ok(Some("it was deleted".to_owned()));
        };
        Ok(end_of(&serde_json::to_value(job).unwrap_or_default()))
    }

    /// The pod of the Job; `None` before it is created.
    pub(crate) async fn pod(&self, uid: &str) -> Result<Option<Pod>, ClusterError> {
        let kind = ApiResource::erase::<Pod>(&());
        let label = format!("batch.kubernetes.io/controller-uid={uid}");
        let namespace = Some(self.key.namespace.as_str());
        let found = self.cluster.list(&kind, namespace, &label).await?;
        Ok(found.into_iter().find_map(|pod| typed(pod).ok()))
    }

    /// The last event about the Job, which explains why it has no pod; `None` if events cannot be
    /// read.
    pub(crate) async fn last_event(&self, uid: &str) -> Option<String> {
        let kind = ApiResource::erase::<Event>(&());
        let fields = format!("regarding.uid={uid}");
        let namespace = &self.key.namespace;
        let found = self
            .cluster
            .list_limited(&kind, namespace, &fields, JOB_EVENTS_MAX);
        let last: Event = typed(found.await.ok()?.pop()?).ok()?;
        last.note
    }
}

/// Why a Job has ended; `None` while it runs.
fn end_of(job: &Value) -> Option<String> {
    let conditions = job["status"]["conditions"].as_array()?;
    let is_end = |c: &&Value| {
        let is_kind = ["Complete", "Failed", "FailureTarget"]
            .iter()
            .any(|kind| c["type"] == *kind);
        is_kind && c["status"] == "True"
    };
    let end = conditions.iter().find(is_end)?;
    let text = |field: &str| end[field].as_str().unwrap_or_default().to_owned();
    Some(match text("reason").as_str() {
        "" => text("type"),
        "DeadlineExceeded" => {
            "DeadlineExceeded: it took longer than its activeDeadlineSeconds".to_owned()
        }
        reason => format!("{reason}: {}", text("message")),
    })
}

/// Converts an object to its type. The API server has validated it, so this fails only for objects
/// of a later version.
pub(crate) fn typed<K: DeserializeOwned>(object: DynamicObject) -> Result<K, Failure> {
    let key = ObjectKey::of(&object);
    let value = serde_json::to_value(object).and_then(serde_json::from_value);
    value.map_err(|error| Failure::Failed(format!("{key}: {error}")))
}
