//! Bounds of the SHAP code, each with its reason.

/// Quadrature points that are carried through a tree together. Four f64 are one AVX register or two
/// SSE registers, and four points are exact for paths of up to eight distinct features, which
/// covers the trees that people train by default.
pub(crate) const LANES: usize = 4;

/// Newton steps for a quadrature node. From the cosine start it converges quadratically, in four
/// or five steps; the rest is reserve against a rounding error that keeps the last bit moving.
pub(crate) const NEWTON_STEPS_MAX: usize = 16;
