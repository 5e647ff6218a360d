//! Bounds of explanations, each with its reason.

/// Most changes that are looked at to see what one rule costs (some 50 ns each): about half a
/// second.
pub(crate) const CLIMB_LOOKS_MAX: usize = 10_000_000;

/// What a question to the budget counts as, in looks.
pub(crate) const LOOKS_A_QUESTION: usize = 10;
