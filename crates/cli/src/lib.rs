//! albacore-cli.
