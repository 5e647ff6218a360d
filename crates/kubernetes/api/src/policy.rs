//! Converts a spec to the planner's policy. Total: every valid spec has a policy. The planner is
//! independent of YAML, and this crate is independent of planning.

use albacore_plan::{DistanceOverrides, Enforcement, MainThread, PlacementMethod, SubjectPolicy};
use albacore_trial::{Arm, TrialMetric, TrialSpec};

use crate::PlaceAnnotation;
use crate::deployment::{self, InferenceDeploymentSpec, LevelDistances, PlacementPolicy, TrialArm};

impl LevelDistances {
    /// Converts the distances to the type of the planner.
    pub(crate) fn overrides(self) -> DistanceOverrides {
        let Self {
            l1,
            l2,
            l3,
            numa,
            package,
            machine,
        } = self;
        DistanceOverrides {
            l1,
            l2,
            l3,
            numa,
            package,
            machine,
        }
    }
}

impl From<deployment::PlacementMode> for albacore_solver::Mode {
    fn from(mode: deployment::PlacementMode) -> Self {
        match mode {
            deployment::PlacementMode::Scatter => Self::Scatter,
            deployment::PlacementMode::Compact => Self::Compact,
        }
    }
}

impl From<albacore_solver::Mode> for deployment::PlacementMode {
    fn from(mode: albacore_solver::Mode) -> Self {
        match mode {
            albacore_solver::Mode::Scatter => Self::Scatter,
            albacore_solver::Mode::Compact => Self::Compact,
        }
    }
}

/// The placement policy of a spec.
pub fn policy_of(spec: &InferenceDeploymentSpec) -> SubjectPolicy {
    let deployment::PlacementSpec {
        policy,
        enforcement,
        main_thread,
        distances,
        // Controls when the policy applies, and which other policies are compared with it.
        trial: _,
    } = &spec.placement;
    SubjectPolicy {
        workers: spec.workers,
        threads: spec.threads,
        mode: spec.mode.into(),
        placement: match policy {
            PlacementPolicy::Tuna => PlacementMethod::Tuna,
            PlacementPolicy::RoundRobin => PlacementMethod::RoundRobin,
            PlacementPolicy::None => PlacementMethod::None,
        },
        enforcement: match enforcement {
            deployment::EnforcementPolicy::Enforce => Enforcement::Enforce,
            deployment::EnforcementPolicy::Observe => Enforcement::Observe,
        },
        main_thread: match main_thread {
            deployment::MainThreadPolicy::Pinned => MainThread::Pinned,
            deployment::MainThreadPolicy::WorkerSet => MainThread::WorkerSet,
        },
        distances: distances.unwrap_or_default().overrides(),
        // The built-in server starts T threads regardless of its affinity mask. A user's own server
        // may count the CPUs in the mask of its main thread, even if OMP_NUM_THREADS is set:
        // XGBoost uses the smaller of the two.
        is_pool_size_known: spec.is_built_in(),
    }
}

/// The placement policy of a pod that opted in by its annotation. `workers` and `threads` are the
/// observed numbers, used if the annotation omits them.
pub fn policy_of_annotation(
    requested: &PlaceAnnotation,
    workers: u16,
    threads: u16,
) -> SubjectPolicy {
    SubjectPolicy {
        workers: requested.workers.unwrap_or(workers),
        threads: requested.threads.unwrap_or(threads),
        mode: requested.mode.unwrap_or_default().into(),
        placement: PlacementMethod::Tuna,
        enforcement: match requested.enforcement.unwrap_or_default() {
            deployment::EnforcementPolicy::Enforce => Enforcement::Enforce,
            deployment::EnforcementPolicy::Observe => Enforcement::Observe,
        },
        main_thread: MainThread::Pinned,
        distances: DistanceOverrides::default(),
        // It is unknown whether its pool depends on the mask of the main thread.
        is_pool_size_known: false,
    }
}

/// The trial in a spec. Only the built-in server reports latency.
pub fn trial_of(spec: &InferenceDeploymentSpec) -> Option<TrialSpec> {
    let trial = spec.placement.trial.as_ref()?;
    let arms = trial.arms.iter().map(|arm| match arm {
        TrialArm::Scatter => Arm::Scatter,
        TrialArm::Compact => Arm::Compact,
        TrialArm::RoundRobin => Arm::RoundRobin,
        TrialArm::None => Arm::None,
    });
    Some(TrialSpec {
        window: trial.window.duration(),
        rounds: trial.windows,
        arms: arms.collect(),
        metric: match spec.is_built_in() {
            true => TrialMetric::Latency,
            false => TrialMetric::RunDelay,
        },
    })
}
