//! Counters of infer calls and stages of a call: the values of `/metrics`, `Server-Timing` and
//! Triton's statistics. Defines no metric names.
#![forbid(unsafe_code)]

mod call_counts;
mod stages;
mod statistics;

pub use call_counts::{
    AnsweredCall, CallCounts, ClassCounts, CountsByModel, Durations, FinishedCall, ModelCounts,
    ModelTotals, Total,
};
pub use stages::{CallStages, SERVER_TIMING, STAGE_NAMES, STAGES};
