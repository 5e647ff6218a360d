//! The condition `UpgradePending`, which is true while the desired template is not applied yet or
//! its roll-out is stuck. GitOps tools evaluate `Ready`, `Reconciling` and `Stalled`, so a
//! deployment that waits for its upgrade counts as healthy.

use albacore_api::ConditionState;

use super::{RolloutDecision, RolloutState, names};
use crate::limits::{ROLLOUT_STUCK_AFTER, ROLLOUTS_NAMED_MAX};

/// The condition exists only while it is true.
pub(crate) const UPGRADE_PENDING: &str = "UpgradePending";

/// Reason of the condition while a roll-out makes no progress.
pub(crate) const STUCK: &str = "Stuck";

/// `UpgradePending` of a deployment whose pods run the image `running`; `None` if the desired
/// template is applied.
pub(crate) fn upgrade_pending(
    decision: &RolloutDecision,
    running: Option<&str>,
) -> Option<ConditionState> {
    let target = match &decision.image {
        Some(image) if running != Some(image) => format!("image {image}"),
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
                 --max-concurrent-rollouts limits how many deployments roll out at once",
                named.join(", ")
            );
            Some(ConditionState::new("True", "Waiting", message))
        }
        RolloutState::Stuck(since) => {
            let message = format!(
                "the roll-out has made no progress since {since}; after {} minutes other roll-outs \
                 continue without it. Check its pods, or set the last working image in the \
                 annotation {}",
                ROLLOUT_STUCK_AFTER.as_mins(),
                albacore_api::SERVER_IMAGE_ANNOTATION
            );
            Some(ConditionState::new("True", STUCK, message))
        }
    }
}
