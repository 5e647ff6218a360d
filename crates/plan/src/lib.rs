//! albacore-plan.
