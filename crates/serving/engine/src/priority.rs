/// Which requests run first. None starves: a high one overtakes only requests that arrived shortly
/// before it, and a low one that has waited for a second gets its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Before requests that arrived up to half of an objective earlier.
    High,
    #[default]
    Normal,
    /// After requests that can be in time; low requests do not count in the admission of others.
    Low,
}
