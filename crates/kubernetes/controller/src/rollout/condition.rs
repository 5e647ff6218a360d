//! The part of the status about a roll-out: the server image in use, and `UpgradePending` while the
//! wanted template is not applied or stuck. GitOps tools judge by `Ready`, `Reconciling` and
//! `Stalled`, so a deployment that waits for its upgrade counts as healthy.

use albacore_api::{InferenceDeployment, InferenceDeploymentStatus};
use albacore_cluster::{ObjectEvent, Resource as _, Severity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{RolloutDecision, RolloutState, image_of, names};
use crate::limits::{MESSAGE_CHARS_MAX, ROLLOUT_STUCK_AFTER, ROLLOUTS_NAMED_MAX};
use crate::observed::LiveObject;

/// Exists only while true.
const UPGRADE_PENDING: &str = "UpgradePending";

/// Its reason while a roll-out makes no progress.
const STUCK: &str = "Stuck";

/// Adds image and condition to `status`; `before` is the current status. Without a decision (an
/// invalid spec) there is no condition.
pub(crate) fn report(
    status: &mut InferenceDeploymentStatus,
    before: Option<&InferenceDeploymentStatus>,
    live: Option<&LiveObject>,
    decision: Option<&RolloutDecision>,
    now: &Time,
) {
    status.server_image = live
        .and_then(|live| image_of(&live.body))
        .map(str::to_owned);
    let Some((reason, message)) =
        decision.and_then(|decision| reason_and_message(decision, status))
    else {
        return;
    };
    let mut old = before.into_iter().flat_map(|status| &status.conditions);
    let old = old.find(|c| c.type_ == UPGRADE_PENDING && c.status == "True");
    status.conditions.push(Condition {
        type_: UPGRADE_PENDING.to_owned(),
        status: "True".to_owned(),
        observed_generation: status.observed_generation,
        last_transition_time: old.map_or(now, |c| &c.last_transition_time).clone(),
        reason: reason.to_owned(),
        message: message.chars().take(MESSAGE_CHARS_MAX).collect(),
    });
}

/// The event for a roll-out that became stuck between two statuses.
pub(crate) fn upgrade_event(
    deployment: &InferenceDeployment,
    before: Option<&InferenceDeploymentStatus>,
    status: &InferenceDeploymentStatus,
) -> Option<ObjectEvent> {
    let stuck = |status: &InferenceDeploymentStatus| {
        let mut conditions = status.conditions.iter();
        let is_stuck = |c: &&Condition| c.type_ == UPGRADE_PENDING && c.reason == STUCK;
        conditions.find(is_stuck).map(|c| c.message.clone())
    };
    let note = stuck(status).filter(|_| before.and_then(stuck).is_none())?;
    Some(ObjectEvent {
        regarding: deployment.object_ref(&()),
        severity: Severity::Warning,
        reason: "RolloutStuck",
        action: "Apply",
        note,
    })
}

fn reason_and_message(
    decision: &RolloutDecision,
    status: &InferenceDeploymentStatus,
) -> Option<(&'static str, String)> {
    let target = match (&decision.image, &status.server_image) {
        (Some(image), running) if running.as_ref() != Some(image) => format!("image {image}"),
        _ => "the pod template of this version of the operator".to_owned(),
    };
    match &decision.state {
        RolloutState::Current => None,
        RolloutState::Waiting(others) => {
            let all = names(others);
            let named: Vec<&str> = all
                .iter()
                .take(ROLLOUTS_NAMED_MAX)
                .map(String::as_str)
                .collect();
            let more = match all.len().saturating_sub(named.len()) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let message = format!(
                "{target} waits until the pods of {}{more} are available; the controller's \
                 --max-concurrent-rollouts says how many deployments roll at once",
                named.join(", ")
            );
            Some(("Waiting", message))
        }
        RolloutState::Stuck(since) => {
            let message = format!(
                "the roll-out has made no progress since {since}; after {} minutes others go on \
                 without it. See its pods, or name the image that worked in the annotation {}",
                ROLLOUT_STUCK_AFTER.as_mins(),
                albacore_api::SERVER_IMAGE_ANNOTATION
            );
            Some((STUCK, message))
        }
    }
}
