//! State of the Job's pod, and the reasons why it does not run.

use std::time::Instant;

use albacore_cluster::{ClusterError, ErrorClass, ObjectKey};
use albacore_command::{Failure, sentence};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

use crate::job::JobClient;
use crate::limits::{EXPERIMENT_POLL, POD_BLOCKED_TIME_MAX, POD_START_TIME_MAX};
use crate::object::CONTAINER;

/// Reasons of waiting containers that only a user can resolve.
const BLOCKING: [&str; 7] = [
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// State of a pod.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum PodState {
    /// Starting, for example pulling the image.
    Starting,
    /// Blocked until a user changes something.
    Blocked(String),
    Running,
    /// Will not run again, and the reason.
    Ended(String),
}

/// The state of this pod.
pub(crate) fn state(pod: &Pod) -> PodState {
    let Some(status) = &pod.status else {
        return PodState::Starting;
    };
    let container = container_of(status);
    let state = container.and_then(|container| container.state.as_ref());
    let is_over = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
    if is_over || state.is_some_and(|state| state.terminated.is_some()) {
        return PodState::Ended(end_of(status));
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return PodState::Ended("it was deleted, or its node was drained".to_owned());
    }
    if state.is_some_and(|state| state.running.is_some()) {
        return PodState::Running;
    }
    let waiting = state.and_then(|state| state.waiting.as_ref());
    if let Some(waiting) = waiting {
        let reason = waiting.reason.as_deref().unwrap_or_default();
        if BLOCKING.contains(&reason) {
            let message = waiting.message.as_deref().unwrap_or_default();
            return PodState::Blocked(format!("{reason}: {message}"));
        }
    }
    let conditions = status.conditions.iter().flatten();
    let mut unscheduled = conditions.filter(|c| c.type_ == "PodScheduled" && c.status == "False");
    match unscheduled.next() {
        Some(why) => {
            let message = why.message.as_deref().unwrap_or_default();
            PodState::Blocked(format!("it is not scheduled: {message}"))
        }
        None => PodState::Starting,
    }
}

fn container_of(status: &PodStatus) -> Option<&ContainerStatus> {
    let mut all = status.container_statuses.iter().flatten();
    all.find(|container| container.name == CONTAINER)
}

/// Why the pod has ended.
fn end_of(status: &PodStatus) -> String {
    let container = container_of(status);
    let state = container.and_then(|container| container.state.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    let reason = ended.and_then(|ended| ended.reason.as_deref());
    if reason == Some("OOMKilled") {
        return "OOMKilled: server and load generator need more memory than its limit: raise \
                resources.limits.memory of the deployment, or measure fewer workers"
            .to_owned();
    }
    if let Some(reason) = status.reason.as_deref().filter(|reason| !reason.is_empty()) {
        let message = status.message.as_deref().unwrap_or_default();
        return format!("{reason}: {message}");
    }
    match ended {
        Some(ended) => format!("its program ended with exit code {}", ended.exit_code),
        None => "its program ended".to_owned(),
    }
}

/// Waits until the pod runs; an error contains the reason why it does not.
pub(crate) async fn wait_until_running(job: &JobClient, uid: &str) -> Result<ObjectKey, Failure> {
    let begin = Instant::now();
    let mut blocked: Option<Instant> = None;
    let mut last = "it has no pod yet".to_owned();
    // bound: POD_START_TIME_MAX.
    while begin.elapsed() < POD_START_TIME_MAX {
        let (pod, now) = match read_pod_state(job, uid).await {
            Ok(found) => found,
            Err(error) if error.class() == ErrorClass::Transient => {
                (None, PodState::Blocked(sentence(&error)))
            }
            Err(error) => return Err(job.failed(&error)),
        };
        match (now, &pod) {
            (PodState::Running, Some(pod)) => return Ok(ObjectKey::of(pod)),
            (PodState::Running | PodState::Starting, _) => {
                blocked = None;
                last = "pulling its image or creating its container".to_owned();
            }
            (PodState::Blocked(why), _) => {
                let since = *blocked.get_or_insert_with(Instant::now);
                if last != why {
                    eprintln!("Job {}: {why}", job.key);
                    last = why;
                }
                if since.elapsed() >= POD_BLOCKED_TIME_MAX {
                    break;
                }
            }
            (PodState::Ended(why), _) => {
                return Err(Failure::Failed(format!("Job {} ended: {why}", job.key)));
            }
        }
        tokio::time::sleep(EXPERIMENT_POLL).await;
    }
    Err(Failure::Failed(format!(
        "Job {}: its pod did not start within {} s: {last}. The Job is deleted: remove the reason and \
         run the same command again",
        job.key,
        begin.elapsed().as_secs()
    )))
}

/// Reads the pod and its state.
async fn read_pod_state(
    job: &JobClient,
    uid: &str,
) -> Result<(Option<Pod>, PodState), ClusterError> {
    if let Some(pod) = job.pod(uid).await? {
        let now = state(&pod);
        return Ok((Some(pod), now));
    }
    if let Some(why) = job.end(uid).await? {
        return Ok((None, PodState::Ended(why)));
    }
    let why = match job.last_event(uid).await {
        Some(note) => note,
        None => format!("see {}", job.kubectl("describe")),
    };
    Ok((None, PodState::Blocked(format!("it has no pod yet: {why}"))))
}
