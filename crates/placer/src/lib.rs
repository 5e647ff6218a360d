//! albacore-placer.
