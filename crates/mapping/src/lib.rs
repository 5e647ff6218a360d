//! Which cpu each (worker, rank) runs on: a problem in, a mapping with its certificate out. Pure but for good_lp.
#![forbid(unsafe_code)]

mod problem;

pub use problem::{
    Certificate, Mapping, Mode, Problem, Rank, Relaxation, Slot, Solution, WorkerIndex,
};
