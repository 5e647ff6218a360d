//! Determines why a pod does not serve, from the reports of the scheduler and the kubelet in its
//! status and its events. Pure.

use std::fmt;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};
use k8s_openapi::api::events::v1::Event;

use crate::limits::POD_MESSAGE_CHARS_MAX;

/// Reasons that the kubelet reports during a normal start.
const NORMAL_WAITS: [&str; 2] = ["ContainerCreating", "PodInitializing"];
const CRASH_LOOP: &str = "CrashLoopBackOff";
const OUT_OF_MEMORY: &str = "OOMKilled";

/// A problem that prevents a pod from serving.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PodProblem {
    /// The affected container; `None`: the pod as a whole.
    pub container: Option<String>,
    /// The reason as named by Kubernetes, e.g. `Unschedulable`, `ImagePullBackOff`, `OOMKilled`.
    /// Stable while the problem is the same, although the kubelet alternates between `ErrImagePull`
    /// and `ImagePullBackOff`, and between a container's exit and its back-off.
    pub reason: String,
    /// The message of the scheduler or the kubelet, at most [`POD_MESSAGE_CHARS_MAX`] characters.
    pub message: String,
}

impl fmt::Display for PodProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(container) = &self.container {
            write!(f, "container {container}: ")?;
        }
        f.write_str(&self.reason)?;
        match self.message.as_str() {
            "" => Ok(()),
            message => write!(f, ": {message}"),
        }
    }
}

impl PodProblem {
    fn new(container: Option<&str>, reason: &str, message: &str) -> Self {
        Self {
            container: container.map(str::to_owned),
            reason: reason.to_owned(),
            message: truncated(message),
        }
    }

    /// The problem in the status of `pod`; `None` if it is ready, terminating or starting normally,
    /// or if its status contains no cause (failed mounts and failed probes are reported in events
    /// only).
    pub fn of(pod: &Pod) -> Option<Self> {
        let status = pod.status.as_ref()?;
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let is = |kind: &str, value: &str| {
            let mut conditions = conditions.iter();
            conditions.find(|c| c.type_ == kind && c.status == value)
        };
        if pod.metadata.deletion_timestamp.is_some() || is("Ready", "True").is_some() {
            return None;
        }
        if let Some(condition) = is("PodScheduled", "False") {
            let reason = condition.reason.as_deref().unwrap_or("Unschedulable");
            let message = condition.message.as_deref().unwrap_or_default();
            return Some(Self::new(None, reason, message));
        }
        // Init containers run first, so their problem is the cause.
        let init = status.init_container_statuses.iter().flatten();
        let init = init.map(|status| (status, true));
        let main = status.container_statuses.iter().flatten();
        let main = main.map(|status| (status, false));
        let mut containers = init.chain(main);
        let of_container = containers.find_map(|(status, is_init)| of_container(status, is_init));
        let has_failed = status.phase.as_deref() == Some("Failed");
        let of_pod = || {
            let reason = status.reason.as_deref().unwrap_or("PodFailed");
            let message = status.message.as_deref().unwrap_or_default();
            has_failed.then(|| Self::new(None, reason, message))
        };
        // The status of a pod that the kubelet evicted or did not admit contains the reason itself.
        match status.reason {
            Some(_) => of_pod().or(of_container),
            None => of_container.or_else(of_pod),
        }
    }

    /// The problem in the newest warning among the events of a pod; `None` without a warning.
    pub fn of_events(events: &[Event]) -> Option<Self> {
        let warnings = events
            .iter()
            .filter(|event| event.type_.as_deref() == Some("Warning"));
        // Of simultaneous events the last by name, so that equal input produces equal output.
        let newest = warnings.max_by_key(|event| (time_of(event), &event.metadata.name))?;
        let path = newest.regarding.as_ref().and_then(|r| r.field_path.clone());
        let path = path.unwrap_or_default();
        let name = path.split_once('{').map(|(_, name)| name);
        let container = name.and_then(|name| name.strip_suffix('}'));
        let reason = newest.reason.as_deref().unwrap_or("Warning");
        let message = newest.note.as_deref().unwrap_or_default();
        Some(Self::new(container, reason, message))
    }
}

/// When an event was last observed.
fn time_of(event: &Event) -> Option<k8s_openapi::jiff::Timestamp> {
    let series = event.series.as_ref().map(|s| s.last_observed_time.0);
    let old = event.deprecated_last_timestamp.as_ref().map(|time| time.0);
    let first = event.event_time.as_ref().map(|time| time.0);
    series.or(old).or(first)
}

fn of_container(status: &ContainerStatus, is_init: bool) -> Option<PodProblem> {
    let ended = last_termination(status.last_state.as_ref());
    let problem =
        |reason: &str, message: &str| Some(PodProblem::new(Some(&status.name), reason, message));
    let state = status.state.as_ref()?;
    if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().unwrap_or("Waiting");
        let message = waiting.message.as_deref().unwrap_or_default();
        return match reason {
            reason if NORMAL_WAITS.contains(&reason) => None,
            CRASH_LOOP => {
                let ended = ended.map(|ended| termination_text(ended, status.restart_count));
                let message = format!("{message}; {}", ended.unwrap_or_default());
                let message = message.trim_end_matches("; ");
                problem(crash_reason(status), message)
            }
            "ErrImagePull" => problem("ImagePullBackOff", message),
            reason => problem(reason, message),
        };
    }
    if let Some(terminated) = &state.terminated {
        let is_done = is_init && terminated.exit_code == 0;
        let message = termination_text(terminated, status.restart_count);
        return match terminated.reason.as_deref() {
            _ if is_done => None,
            Some(OUT_OF_MEMORY) => problem(OUT_OF_MEMORY, &message),
            _ if status.restart_count > 0 => problem(CRASH_LOOP, &message),
            reason => problem(reason.unwrap_or("Error"), &message),
        };
    }
    // It was restarted, and has not completed its start since.
    let ended = ended.filter(|_| status.restart_count > 0 && status.started != Some(true))?;
    problem(
        crash_reason(status),
        &termination_text(ended, status.restart_count),
    )
}

fn last_termination(state: Option<&ContainerState>) -> Option<&ContainerStateTerminated> {
    state?.terminated.as_ref()
}

/// The reason for a container that keeps exiting.
fn crash_reason(status: &ContainerStatus) -> &'static str {
    let reason =
        last_termination(status.last_state.as_ref()).and_then(|ended| ended.reason.as_deref());
    match reason {
        Some(OUT_OF_MEMORY) => OUT_OF_MEMORY,
        _ => CRASH_LOOP,
    }
}

fn termination_text(ended: &ContainerStateTerminated, restarts: i32) -> String {
    let reason = ended.reason.as_deref().unwrap_or("Error");
    let mut text = format!("ended with exit code {} ({reason})", ended.exit_code);
    if restarts > 0 {
        text.push_str(&format!(", restarts: {restarts}"));
    }
    if let Some(message) = ended.message.as_deref().map(str::trim) {
        text.push_str(&format!(": {message}"));
    }
    text
}

/// Replaces line breaks and truncates the text.
fn truncated(text: &str) -> String {
    let text = text.replace(|c: char| c.is_control(), " ");
    match text.char_indices().nth(POD_MESSAGE_CHARS_MAX) {
        None => text,
        Some((end, _)) => {
            let end = text[..end]
                .char_indices()
                .next_back()
                .map_or(0, |(at, _)| at);
            format!("{}…", &text[..end])
        }
    }
}

#[cfg(test)]
mod tests;
