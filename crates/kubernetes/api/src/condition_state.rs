//! A condition without times.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Status, reason and message of a condition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConditionState {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    pub reason: String,
    pub message: String,
}

impl ConditionState {
    pub fn new(status: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }

    /// The condition of type `kind`. Its transition time is that of `before` if the status is
    /// unchanged, otherwise `now`.
    pub fn condition(
        self,
        kind: &str,
        generation: Option<i64>,
        before: &[Condition],
        now: &Time,
    ) -> Condition {
        let same = |c: &&Condition| c.type_ == kind && c.status == self.status;
        let since = before.iter().find(same);
        Condition {
            type_: kind.to_owned(),
            status: self.status.to_owned(),
            observed_generation: generation,
            last_transition_time: since.map_or(now, |c| &c.last_transition_time).clone(),
            reason: self.reason,
            message: self.message,
        }
    }
}
