//! albacore-batching.
