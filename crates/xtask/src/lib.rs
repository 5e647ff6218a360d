//! albacore-xtask.
