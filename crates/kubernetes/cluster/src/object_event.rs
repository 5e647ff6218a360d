//! Events on objects.

use k8s_openapi::api::core::v1::ObjectReference;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    Normal,
    Warning,
}

/// An event to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectEvent {
    /// The object; use `Resource::object_ref` to create the reference.
    pub regarding: ObjectReference,
    pub severity: Severity,
    /// A word in CamelCase that never changes, because alerts depend on it.
    pub reason: &'static str,
    /// The action that was performed or attempted, one word in CamelCase.
    pub action: &'static str,
    /// A human-readable sentence.
    pub note: String,
}

/// An event without the object to which it refers.
#[derive(Clone, Debug, PartialEq)]
pub struct EventDraft {
    severity: Severity,
    reason: &'static str,
    action: &'static str,
    note: String,
}

impl EventDraft {
    pub fn normal(reason: &'static str, action: &'static str, note: impl Into<String>) -> Self {
        Self {
            severity: Severity::Normal,
            reason,
            action,
            note: note.into(),
        }
    }

    pub fn warning(reason: &'static str, action: &'static str, note: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::normal(reason, action, note)
        }
    }

    pub fn regarding(self, regarding: ObjectReference) -> ObjectEvent {
        ObjectEvent {
            regarding,
            severity: self.severity,
            reason: self.reason,
            action: self.action,
            note: self.note,
        }
    }
}
