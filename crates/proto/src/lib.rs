//! albacore-proto.
