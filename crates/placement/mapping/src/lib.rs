//! Mappings of threads to cpus: the problem, the solution with its certificate, and the checker of
//! both. Does not depend on the solver, so that a bug in one cannot hide a bug in the other.
#![forbid(unsafe_code)]

mod check;
mod contention;
mod joint_problem;
mod problem;

pub use albacore_values::WorkerIndex;
pub use check::{
    CheckReport, JointReport, JointViolation, MappingViolation, certificate_errors, check,
    check_joint, check_proof, check_solution, counting_bound, cpu_volumes, joint_counting_bound,
    objective, report, report_joint,
};
pub use contention::{MappingUtilization, UTILIZATION_MAX, contention, dispatch_order_utilization};
pub use joint_problem::{Deployment, JointProblem, JointSolution, Obstacle};
pub use problem::{
    Certificate, Mapping, Mode, Problem, Proof, ProvenBound, Rank, Relaxation, Slot, Solution,
    relaxed_by,
};
