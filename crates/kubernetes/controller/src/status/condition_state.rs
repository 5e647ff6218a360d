//! What a condition says.

/// A condition without its times.
pub(super) struct ConditionState {
    pub(super) status: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
}

impl ConditionState {
    pub(super) fn new(status: &'static str, reason: &str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}
