//! Bounds of this crate, with their reasons.
//!
//! The bounds of models are those of the model files.

pub(crate) use albacore_formats::limits::{
    CATEGORY_MAX, DEPTH_MAX, FEATURES_MAX, GROUPS_MAX, TREES_MAX,
};

/// Maximum rows of a call of the contribution engine: bounds the widened copy of the rows.
pub(crate) use albacore_simd::BLOCK_ROWS;

/// Quadrature points that `shap::sweep` carries through a tree together. Four f64 are one AVX
/// register or two SSE registers, and four points are exact for paths of up to eight distinct
/// features, which covers the default depths of the libraries.
pub(crate) const POINT_GROUP_SIZE: usize = 4;

/// Maximum Newton iterations for a quadrature node. Starting from the cosine approximation it
/// converges quadratically, in four or five iterations; the margin allows for rounding errors that
/// keep changing the last bit.
pub(crate) const NEWTON_STEPS_MAX: usize = 16;

/// Number of timed calls of a kernel per number of rows; the minimum is used. The first call fills
/// the caches, and others may be disturbed by other load.
pub(crate) const TUNING_CALLS: usize = 8;

/// Short calls are repeated until this time has elapsed, about a scheduler time slice...
pub(crate) const TUNING_KERNEL_NANOSECONDS: u64 = 100_000;

/// ...but at most this many times.
pub(crate) const TUNING_CALLS_MAX: usize = 64;

/// Time limit of the measurement of a model: a tenth of the time to compile a large model.
pub(crate) const TUNING_NANOSECONDS_MAX: u64 = 50_000_000;

/// After this time, two calls suffice to measure the serial part of a call that is divided among
/// threads: calls of large models are long compared with disturbances by other load.
pub(crate) const TUNING_SERIAL_NANOSECONDS: u64 = 3_000_000;

/// Quadrature points of the largest rule of vectorized SHAP: paths of 16 distinct features.
pub(crate) const SHAP_POINTS_MAX: usize = 8;

/// Models with more features are not measured: a block of their rows exceeds 32 MiB.
pub(crate) const TUNING_FEATURES_MAX: usize = 1 << 16;
