//! albacore-os.
