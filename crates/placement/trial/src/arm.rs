//! Arms of a trial: methods of placing the threads of a pod.

use std::fmt;

use albacore_plan::{PlacementMethod, SubjectPolicy};
use albacore_solver::Mode;

/// A method of placing the threads of a pod.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Arm {
    /// The solver's mapping with the threads of a worker far apart.
    Scatter,
    /// The solver's mapping with the threads of a worker close together.
    Compact,
    /// Threads assigned to cpus in order.
    RoundRobin,
    /// No placement: the kernel's scheduler.
    None,
}

impl Arm {
    pub const ALL: [Self; 4] = [Self::Scatter, Self::Compact, Self::RoundRobin, Self::None];

    /// The arm that corresponds to a policy.
    #[must_use]
    pub const fn of(policy: &SubjectPolicy) -> Self {
        match (policy.placement, policy.mode) {
            (PlacementMethod::Tuna, Mode::Scatter) => Self::Scatter,
            (PlacementMethod::Tuna, Mode::Compact) => Self::Compact,
            (PlacementMethod::RoundRobin, _) => Self::RoundRobin,
            (PlacementMethod::None, _) => Self::None,
        }
    }

    /// Changes `policy` to place threads as this arm.
    pub const fn apply(self, policy: &mut SubjectPolicy) {
        (policy.placement, policy.mode) = match self {
            Self::Scatter => (PlacementMethod::Tuna, Mode::Scatter),
            Self::Compact => (PlacementMethod::Tuna, Mode::Compact),
            Self::RoundRobin => (PlacementMethod::RoundRobin, policy.mode),
            Self::None => (PlacementMethod::None, policy.mode),
        };
    }

    /// The arms of a trial: that of the policy itself, then the others in `requested`. With one
    /// thread per worker there is no distance between threads of a worker, so both modes are the
    /// same arm.
    pub(crate) fn of_trial(policy: &SubjectPolicy, requested: &[Self]) -> Vec<Self> {
        let same = |one: Self, other: Self| {
            let is_mode = |arm| matches!(arm, Self::Scatter | Self::Compact);
            one == other || (policy.threads == 1 && is_mode(one) && is_mode(other))
        };
        let mut arms = vec![Self::of(policy)];
        for &arm in requested {
            if !arms.iter().any(|&known| same(known, arm)) {
                arms.push(arm);
            }
        }
        arms
    }
}

impl fmt::Display for Arm {
    /// As in `spec.mode` and `spec.placement.policy`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use albacore_plan::{Enforcement, MainThread};

    use super::*;

    fn policy(threads: u16, arm: Arm) -> SubjectPolicy {
        let mut policy = SubjectPolicy {
            workers: 2,
            threads,
            mode: Mode::Scatter,
            placement: PlacementMethod::Tuna,
            enforcement: Enforcement::Enforce,
            main_thread: MainThread::Pinned,
            distances: Default::default(),
            is_pool_size_known: true,
        };
        arm.apply(&mut policy);
        policy
    }

    #[test]
    fn the_deployments_own_arm_comes_first_and_none_twice() {
        let arms = |threads, own| Arm::of_trial(&policy(threads, own), &Arm::ALL);
        for own in Arm::ALL {
            let found = arms(2, own);
            assert_eq!((found[0], found.len()), (own, 4));
        }
        assert_eq!(
            arms(1, Arm::Compact),
            [Arm::Compact, Arm::RoundRobin, Arm::None]
        );
        let own = policy(2, Arm::RoundRobin);
        let requested = [Arm::Scatter, Arm::None];
        assert_eq!(
            Arm::of_trial(&own, &requested),
            [Arm::RoundRobin, Arm::Scatter, Arm::None]
        );
        assert_eq!(Arm::RoundRobin.to_string(), "RoundRobin");
    }
}
