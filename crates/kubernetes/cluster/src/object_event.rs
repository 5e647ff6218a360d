//! An event on an object.

use k8s_openapi::api::core::v1::ObjectReference;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    Normal,
    Warning,
}

/// An event to be recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectEvent {
    /// The object; `Resource::object_ref` makes the reference.
    pub regarding: ObjectReference,
    pub severity: Severity,
    /// Why, as one word in CamelCase that never changes: alerts depend on it.
    pub reason: &'static str,
    /// What was done or tried, as one word in CamelCase.
    pub action: &'static str,
    /// A sentence for people.
    pub note: String,
}
