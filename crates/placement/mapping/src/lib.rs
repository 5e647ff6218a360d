//! Mappings of threads to cpus: the problem that one answers, the certificate that goes with it,
//! and the checker that judges both. Knows no solver, so no bug of one can hide a bug of the other.
#![forbid(unsafe_code)]

mod check;
mod contention;
mod joint_problem;
mod problem;

pub use albacore_values::WorkerIndex;
pub use check::{
    CheckReport, JointReport, JointViolation, Violation, check, check_joint, check_solution,
    counted_bound, counted_joint_bound, cpu_volumes, misstated, objective, report, report_joint,
    unproven,
};
pub use contention::{BUSY_MAX, BusyMapping, busy_by_dispatch_order, contention};
pub use joint_problem::{Deployment, JointProblem, JointSolution, Obstacle};
pub use problem::{
    Certificate, Mapping, Mode, Problem, Proof, ProvenBound, Rank, Relaxation, Slot, Solution,
    relaxed_by,
};
