//! albacore-api.
