//! The bounds of this crate.

/// Models of a problem: the search looks at pairs of them.
pub(crate) const MODELS_MAX: usize = 100_000;

/// Sub-clusters of a problem.
pub(crate) const CLUSTERS_MAX: usize = 10_000;

/// Binary variables up to which the integer program is handed to the solver: beyond, microlp is not
/// done within any time that an operator waits.
pub const PROGRAM_BINARIES_MAX: usize = 48;

/// Rounds of the search without a gain, after which it ends even if the budget does not.
pub(crate) const BARREN_ROUNDS_MAX: u32 = 60;
