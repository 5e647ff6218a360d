//! Reads the events of unready pods whose status does not contain the reason: the kubelet reports
//! failed mounts and failed probes in events only.
//!
//! One pod of a deployment is read at a time, at most every [`POD_EVENTS_PERIOD`], and the whole
//! program lists events at most once in [`POD_EVENTS_PAUSE`].

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use albacore_api::PodProblem;
use albacore_cluster::{ApiResource, Cluster, ErrorClass};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;

use crate::limits::{POD_EVENTS_MAX, POD_EVENTS_PAUSE, POD_EVENTS_PERIOD, STUCK_AGE};
use crate::observed::ObservedPod;
use crate::record::{DeploymentRecord, lock};

/// The problem found in the events of a pod when they were last read.
#[derive(Clone, Debug)]
pub(crate) struct LastEventRead {
    uid: String,
    at: Instant,
    problem: Option<PodProblem>,
}

/// Rate limit of the lists of events.
#[derive(Debug, Default)]
pub(crate) struct PodEvents {
    /// When the next list may be requested; `None` means immediately.
    next: Mutex<Option<Instant>>,
}

impl PodEvents {
    /// Adds the problem found in the events to the first of `pods`, by name, that has been unready
    /// for [`STUCK_AGE`] and whose status does not contain a reason. Returns when to call it again,
    /// if such a pod exists.
    pub(crate) async fn add_problem_from_events(
        &self,
        cluster: &Cluster,
        namespace: &str,
        pods: &mut [ObservedPod],
        record: &Mutex<DeploymentRecord>,
    ) -> Option<Duration> {
        let is_silent = |pod: &&mut ObservedPod| {
            !pod.is_ready && !pod.is_inactive && pod.node.is_some() && pod.problem.is_none()
        };
        let pod = pods
            .iter_mut()
            .filter(is_silent)
            .min_by(|a, b| a.name.cmp(&b.name))?;
        let age = pod
            .unready_since
            .map(|since| Timestamp::now().duration_since(since));
        let age = age
            .and_then(|age| Duration::try_from(age).ok())
            .unwrap_or_default();
        if let Some(left) = STUCK_AGE.checked_sub(age).filter(|left| !left.is_zero()) {
            return Some(left);
        }
        let known = lock(record).pod_events.clone();
        let known = known.filter(|known| known.uid == pod.uid);
        pod.problem = known.as_ref().and_then(|known| known.problem.clone());
        let left = known.map(|known| POD_EVENTS_PERIOD.saturating_sub(known.at.elapsed()));
        let left = left.unwrap_or_default().max(self.reserve_list(left));
        if !left.is_zero() {
            return Some(left);
        }
        match list_events(cluster, namespace, &pod.uid).await {
            Ok(problem) => {
                pod.problem.clone_from(&problem);
                lock(record).pod_events = Some(LastEventRead {
                    uid: pod.uid.clone(),
                    at: Instant::now(),
                    problem,
                });
            }
            // The result of the last read is kept.
            Err(error) => tracing::debug!(pod = pod.name, %error, "cannot list the pod's events"),
        }
        Some(POD_EVENTS_PERIOD)
    }

    /// How long to wait before a list is allowed; if it is allowed now, counts it.
    fn reserve_list(&self, left: Option<Duration>) -> Duration {
        if left.is_some_and(|left| !left.is_zero()) {
            return Duration::ZERO;
        }
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let wait = next.map_or(Duration::ZERO, |next| next.saturating_duration_since(now));
        if wait.is_zero() {
            *next = Some(now + POD_EVENTS_PAUSE);
        }
        wait
    }
}

async fn list_events(
    cluster: &Cluster,
    namespace: &str,
    uid: &str,
) -> Result<Option<PodProblem>, albacore_cluster::ClusterError> {
    let kind = ApiResource::erase::<Event>(&());
    let fields = format!("regarding.uid={uid},type=Warning");
    let listed = cluster.list_limited(&kind, namespace, &fields, POD_EVENTS_MAX);
    match listed.await {
        Ok(found) => {
            let typed = found.into_iter().filter_map(|event| {
                let event = serde_json::to_value(event).and_then(serde_json::from_value);
                event.ok()
            });
            let events: Vec<Event> = typed.collect();
            Ok(PodProblem::of_events(&events))
        }
        Err(error) if error.class() == ErrorClass::Forbidden => Ok(Some(PodProblem {
            container: None,
            reason: "EventsUnread".to_owned(),
            message: error.to_string(),
        })),
        Err(error) => Err(error),
    }
}
