/// Priority of a request in its queue. None starves: a high-priority request overtakes only
/// requests that arrived shortly before it, and a low-priority request that has waited for a second
/// is scheduled as overdue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Before requests that arrived up to half of an objective earlier.
    High,
    #[default]
    Normal,
    /// After requests that can be in time; ignored by the admission of other requests.
    Low,
}
