//! Every bound of this crate, with its reason.
//!
//! The bounds of models themselves are those of their files.

pub(crate) use albacore_formats::limits::{
    CATEGORY_MAX, DEPTH_MAX, FEATURES_MAX, GROUPS_MAX, TREES_MAX,
};

/// Rows of one call to the contribution engine: bounds the widened copy of the rows.
pub(crate) use albacore_simd::BLOCK_ROWS;

/// Quadrature points that `shap::tree_walk` carries through a tree together. Four f64 are one AVX
/// register or two SSE registers, and four points are exact for paths of up to eight distinct
/// features, which covers the default depths of the libraries.
pub(crate) const PACKET_POINTS: usize = 4;

/// Newton steps for a quadrature node. From the cosine start it converges quadratically, in four or
/// five steps; the rest is a reserve for rounding errors that keep changing the last bit.
pub(crate) const NEWTON_STEPS_MAX: usize = 16;

/// Calls of a kernel that are timed for one number of rows; the shortest counts. The first fills
/// the caches, and others may be disturbed by a busy machine.
pub(crate) const TUNING_CALLS: usize = 8;

/// Short calls are repeated until this time has passed, about a time slice of a busy machine...
pub(crate) const TUNING_KERNEL_NANOSECONDS: u64 = 100_000;

/// ...but not more often than this.
pub(crate) const TUNING_CALLS_MAX: usize = 64;

/// Time limit for the measurement of a model: a tenth of the time to compile a large model.
pub(crate) const TUNING_NANOSECONDS_MAX: u64 = 50_000_000;

/// After this time two calls measure the serial part of a call that threads divide: large models
/// have long calls, beside which the disturbances of a busy machine are small.
pub(crate) const TUNING_SERIAL_NANOSECONDS: u64 = 3_000_000;

/// Quadrature points of the largest rule of vectorized SHAP: paths of 16 distinct features.
pub(crate) const SHAP_POINTS_MAX: usize = 8;

/// Models with more features are not timed: a block of their rows is more than 32 MiB.
pub(crate) const TUNING_FEATURES_MAX: usize = 1 << 16;
