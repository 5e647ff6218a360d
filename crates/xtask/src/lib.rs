//! albacore-xtask.

pub mod proto;
