//! Counters of infer calls and the stages of a call: what `/metrics`, `Server-Timing` and Triton's
//! statistics say of them. Names no metric.
#![forbid(unsafe_code)]

mod call_counts;
mod stages;
mod statistics;

pub use call_counts::{
    AnsweredCall, CallCounts, ClassCounts, CountsByModel, Durations, FinishedCall, ModelCounts,
    ModelTotals, Total,
};
pub use stages::{CallStages, SERVER_TIMING, STAGE_NAMES, STAGES};
