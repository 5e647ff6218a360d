//! What the status says of a roll-out: the server image in force, and `UpgradePending` while the
//! wanted template is not there. GitOps tools judge by `Ready`, `Reconciling` and `Stalled`, so a
//! deployment that waits for its upgrade stays healthy.

use albacore_api::{InferenceDeployment, InferenceDeploymentStatus};
use albacore_cluster::{Happening, Resource as _, Severity};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::{Paced, Standing, image_of, names};
use crate::limits::{MESSAGE_CHARS_MAX, ROLLOUT_STUCK_AFTER, ROLLOUTS_NAMED_MAX};
use crate::observed::Live;

/// Exists only while true.
const UPGRADE_PENDING: &str = "UpgradePending";

/// Its reason while a roll-out makes no progress.
const STUCK: &str = "Stuck";

/// Adds what `live` and `paced` say to `status`; `before` is the status that the deployment has.
/// Without `paced` (a spec that is not valid) the condition goes.
pub(crate) fn report(
    status: &mut InferenceDeploymentStatus,
    before: Option<&InferenceDeploymentStatus>,
    live: Option<&Live>,
    paced: Option<&Paced>,
    now: &Time,
) {
    status.server_image = live
        .and_then(|live| image_of(&live.body))
        .map(str::to_owned);
    let Some((reason, message)) = paced.and_then(|paced| words(paced, status)) else {
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

/// The event of a roll-out that has become stuck between two statuses.
pub(crate) fn happening(
    deployment: &InferenceDeployment,
    before: Option<&InferenceDeploymentStatus>,
    status: &InferenceDeploymentStatus,
) -> Option<Happening> {
    let stuck = |status: &InferenceDeploymentStatus| {
        let mut conditions = status.conditions.iter();
        let is_stuck = |c: &&Condition| c.type_ == UPGRADE_PENDING && c.reason == STUCK;
        conditions.find(is_stuck).map(|c| c.message.clone())
    };
    let note = stuck(status).filter(|_| before.and_then(stuck).is_none())?;
    Some(Happening {
        regarding: deployment.object_ref(&()),
        severity: Severity::Warning,
        reason: "RolloutStuck",
        action: "Apply",
        note,
    })
}

fn words(paced: &Paced, status: &InferenceDeploymentStatus) -> Option<(&'static str, String)> {
    let target = match (&paced.image, &status.server_image) {
        (Some(image), running) if running.as_ref() != Some(image) => format!("image {image}"),
        _ => "the pod template of this version of the operator".to_owned(),
    };
    match &paced.standing {
        Standing::Current => None,
        Standing::Waiting(others) => {
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
        Standing::Stuck(since) => {
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
