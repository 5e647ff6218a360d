//! albacore-trees.
