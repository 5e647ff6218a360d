//! Errors that prevent placement. Transient problems of a single thread are not errors but part of
//! a report.

use albacore_os::{CgroupError, MaskError, OsError, TopologyReadError};
use albacore_plan::LintError;
use albacore_solver::{JointError, JointViolation, ProblemError};

use crate::SubjectId;

/// The problem, and how to fix it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlacerError {
    /// A file of the kernel cannot be read.
    #[error(transparent)]
    Os(#[from] OsError),
    /// The machine's topology cannot be parsed.
    #[error("invalid topology of this machine")]
    Topology(#[source] TopologyReadError),
    /// The cgroup of the server cannot be determined.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// The server has no cpu to run on.
    #[error(
        "the cpuset of process {pid} has no usable cpu ({source_file} and the given limit leave none): \
         give the cgroup cpus that are online"
    )]
    EmptyCpuset {
        /// The root process of the subject.
        pid: i32,
        /// The file from which the cpuset was read.
        source_file: String,
    },
    /// The root process of a container's subject is not in the container's cgroup.
    #[error(
        "process {pid} is not in the cgroup {} of its container and is not placed", cgroup.display()
    )]
    OutsideCgroup {
        /// The root process of the subject.
        pid: i32,
        /// The expected cgroup.
        cgroup: std::path::PathBuf,
    },
    /// The process must not be placed.
    #[error("process {pid} is {what}, which is never placed")]
    Forbidden { pid: i32, what: &'static str },
    /// Setting affinity masks is not permitted.
    #[error(transparent)]
    NotPermitted(MaskError),
    /// The problem posed by the policy cannot be solved.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The joint problem of all subjects cannot be solved.
    #[error("cannot place the servers of this machine jointly")]
    Joint(#[from] JointError),
    /// A broken invariant of this program; no mask was written.
    #[error(
        "a mapping of all servers did not pass its check and was not used (this is a bug): {}",
        first(violations)
    )]
    JointCheck {
        /// The violations found.
        violations: Vec<JointViolation>,
    },
    /// A broken invariant of this program; no mask was written.
    #[error("a plan did not pass its check and was not executed (this is a bug)")]
    Lint(#[from] LintError),
    /// The root process of a subject exited before it was placed.
    #[error("process {pid} has ended")]
    RootGone { pid: i32 },
    /// The subject does not exist.
    #[error("subject {} not found", .0.0)]
    UnknownSubject(SubjectId),
}

impl PlacerError {
    /// A stable name for metrics and exit codes.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Os(_) => "os",
            Self::Topology(_) => "topology",
            Self::Cgroup(_) => "cgroup",
            Self::EmptyCpuset { .. } => "empty_cpuset",
            Self::OutsideCgroup { .. } => "outside_cgroup",
            Self::Forbidden { .. } => "forbidden",
            Self::NotPermitted(_) => "not_permitted",
            Self::Problem(_) | Self::Joint(_) => "problem",
            Self::Lint(_) | Self::JointCheck { .. } => "invariant",
            Self::RootGone { .. } => "root_gone",
            Self::UnknownSubject(_) => "unknown_subject",
        }
    }
}

impl From<TopologyReadError> for PlacerError {
    fn from(error: TopologyReadError) -> Self {
        match error {
            TopologyReadError::Os(error) => Self::Os(error),
            TopologyReadError::Sysfs { .. } => Self::Topology(error),
        }
    }
}

fn first(violations: &[JointViolation]) -> String {
    let first = violations.first();
    first.map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use albacore_topology::parse_sysfs;
    use albacore_values::{Pid, sentence};

    use super::*;

    #[test]
    fn every_cause_is_shown_once() {
        let files = [("cpu/online".to_owned(), "0-x".to_owned())].into();
        let topology = PlacerError::from(TopologyReadError::Sysfs {
            system: "/sys/devices/system".into(),
            source: parse_sysfs(&files).unwrap_err(),
        });
        let joint = PlacerError::Joint(JointError::Machine(ProblemError::NoWorkers));
        let lint = PlacerError::Lint(LintError::NotAWorker { pid: Pid(7) });
        for (error, cause) in [
            (topology, "cpu/online is not a list of cpus"),
            (joint, "workers is 0"),
            (lint, "process 7 is not a worker"),
        ] {
            let text = sentence(&error);
            assert_eq!(text.matches(cause).count(), 1, "{text}");
        }
    }
}
