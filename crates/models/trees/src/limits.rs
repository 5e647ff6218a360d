//! Every bound of this crate, with its reason.
//!
//! The bounds of models themselves are those of their files.

pub(crate) use albacore_formats::limits::{
    CATEGORY_MAX, DEPTH_MAX, FEATURES_MAX, GROUPS_MAX, TREES_MAX,
};

/// Rows that one call to the contribution engine sees: bounds the widened copy of the rows.
pub(crate) use albacore_simd::BLOCK_ROWS;

/// Quadrature points that SHAP carries through a tree together. Four f64 are one AVX register or
/// two SSE registers, and four points are exact for paths of up to eight distinct features, which
/// covers the trees that people train by default.
pub(crate) const LANES: usize = 4;

/// Newton steps for a quadrature node. From the cosine start it converges quadratically, in four or
/// five steps; the rest is reserve against a rounding error that keeps the last bit moving.
pub(crate) const NEWTON_STEPS_MAX: usize = 16;

/// Calls of a kernel that are timed for one number of rows; the shortest counts. The first warms
/// caches up, and others may meet a busy machine.
pub(crate) const TUNING_CALLS: usize = 8;

/// Short calls are timed until this time has passed, as long as a busy machine takes a cpu away...
pub(crate) const TUNING_KERNEL_NANOSECONDS: u64 = 100_000;

/// ...but not more often than this.
pub(crate) const TUNING_CALLS_MAX: usize = 64;

/// How long kernels of a model are timed: a tenth of what compiling a large model may take.
pub(crate) const TUNING_NANOSECONDS_MAX: u64 = 50_000_000;

/// After this, two calls say what threads cannot divide: large models have long calls, and the
/// machine's disturbances are small beside them.
pub(crate) const TUNING_UNDIVIDED_NANOSECONDS: u64 = 3_000_000;

/// Models of more features are not timed: a block of their rows is more than 32 MiB.
pub(crate) const TUNING_FEATURES_MAX: usize = 1 << 16;
