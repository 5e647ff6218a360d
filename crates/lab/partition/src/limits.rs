//! Bounds of this crate.

/// Maximum number of models of a problem: the search examines pairs of them.
pub(crate) const MODELS_MAX: usize = 100_000;

/// Maximum number of sub-clusters of a problem.
pub(crate) const CLUSTERS_MAX: usize = 10_000;

/// Maximum number of binary variables for which the integer program is solved: beyond it, microlp
/// does not finish in an acceptable time.
pub const PROGRAM_BINARIES_MAX: usize = 48;

/// Consecutive rounds without a gain after which the search ends before the budget is spent.
pub(crate) const BARREN_ROUNDS_MAX: u32 = 60;
