//! Every bound of this crate, with its reason.
//!
//! Model files come from users: a count in a file is never believed before the bytes that it
//! announces have been seen, and every walk ends because a bound below says so.

/// Levels of a tree, root to deepest leaf. Libraries grow trees of tens of levels; leaf-wise
/// growth on skewed data reaches hundreds. The bound keeps explicit stacks small.
pub(crate) const DEPTH_MAX: usize = 4096;

/// Nodes of one tree: twice the largest leaf count that a library can train in practice, and far
/// below `u32::MAX`, so that offsets within a tree never overflow.
pub(crate) const TREE_NODES_MAX: usize = 1 << 26;

/// Trees of a model.
pub(crate) const TREES_MAX: usize = 1 << 22;

/// Input features: the width of a row. One row of this many `f64` is 128 MiB.
pub(crate) const FEATURES_MAX: usize = 1 << 24;

/// Output groups (classes or targets): a row of outputs must stay small beside the model.
pub(crate) const GROUPS_MAX: usize = 1 << 16;

/// Category numbers are below this, in both libraries (XGBoost refuses more; a bitset of this
/// size is 2 MiB).
pub(crate) const CATEGORY_MAX: u32 = 1 << 24;

/// Nesting of arrays and objects in a model file. XGBoost writes 8 levels; the readers are
/// recursive.
pub(crate) const NESTING_MAX: usize = 64;

/// Rows that one call to the contribution engine sees: bounds the widened copy of the rows.
pub(crate) const BLOCK_ROWS: usize = 64;

/// Quadrature points that SHAP carries through a tree together. Four f64 are one AVX register or
/// two SSE registers, and four points are exact for paths of up to eight distinct features, which
/// covers the trees that people train by default.
pub(crate) const LANES: usize = 4;

/// Newton steps for a quadrature node. From the cosine start it converges quadratically, in four or
/// five steps; the rest is reserve against a rounding error that keeps the last bit moving.
pub(crate) const NEWTON_STEPS_MAX: usize = 16;

/// Bytes of a file's text that a message repeats: what is wrong must be seen, a megabyte of it must
/// not reach a log.
pub(crate) const EXCERPT_MAX: usize = 80;

/// Calls of a kernel that are timed for one number of rows; the shortest counts. The first warms
/// caches up, and others may meet a busy machine.
pub(crate) const TUNING_CALLS: usize = 8;

/// How long kernels of a model are timed: a tenth of what compiling a large model may take.
pub(crate) const TUNING_NANOSECONDS_MAX: u64 = 50_000_000;

/// Models of more features are not timed: a block of their rows is more than 32 MiB.
pub(crate) const TUNING_FEATURES_MAX: usize = 1 << 16;
