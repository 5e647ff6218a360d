//! albacore-server.
