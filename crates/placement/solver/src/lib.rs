//! Solver of thread mappings: which cpu each thread of one deployment, or of several on one
//! machine, runs on. Takes a problem and returns mappings with their certificate. Pure, except for
//! good_lp.
//!
//! [`solve()`] solves the problem of one deployment (`single`), [`solve_joint`] that of several
//! (`joint`), with obstacles and a cost of moves. The types and the checker are those of
//! `albacore-mapping`, which does not depend on the solver. `explain` explains a mapping and the
//! cost of each alternative. [`round_robin()`] is the baseline. A [`WorkBudget`] limits every
//! search.
#![forbid(unsafe_code)]

// Unit tests share modules with the integration tests, which refer to this crate by name.
#[cfg(test)]
extern crate self as albacore_solver;

#[cfg(test)]
#[path = "enumerated/tests.rs"]
mod enumerated;
mod error;
mod explain;
mod integer_program;
mod joint;
#[cfg(test)]
#[path = "../tests/joint_problems/mod.rs"]
mod joint_problems;
mod labeling;
mod levels;
pub mod limits;
#[cfg(test)]
#[path = "../tests/machines/mod.rs"]
mod machines;
mod rule_limits;
#[cfg(test)]
#[path = "sample/tests.rs"]
mod sample;
mod single;
mod work_budget;
mod worker_order;

pub use albacore_mapping::{
    Certificate, CheckReport, Deployment, JointProblem, JointReport, JointSolution, JointViolation,
    Mapping, MappingUtilization, MappingViolation, Mode, Obstacle, Problem, Proof, ProvenBound,
    Rank, Relaxation, Slot, Solution, UTILIZATION_MAX, WorkerIndex, certificate_errors, check,
    check_joint, check_proof, check_solution, contention, counting_bound,
    dispatch_order_utilization, joint_counting_bound, objective, relaxed_by, report_joint,
};
pub use error::{ProblemError, validate, validate_size};
pub use explain::{
    Alternative, AlternativeCpu, BindingConstraint, CoreSharing, ExplainError, Explanation, Group,
    Move, PairCounts, Rule, SpeedClass, ThreadExplanation, Volume, difference, explain,
    explain_thread,
};
pub use joint::{CachedSolution, JointError, solve_joint};
pub use rule_limits::{RuleLimits, max_full_units_with_main};
pub use single::{Stage, improve, round_robin, solve, solve_with_stage};
pub use work_budget::{NANOS_PER_STEP, WorkBudget};
pub use worker_order::{ExchangeRule, WorkerOrder};
