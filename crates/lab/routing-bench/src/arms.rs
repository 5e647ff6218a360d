//! Arms of the comparison: routers and their policies.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Router {
    /// A proxy.
    Envoy,
    /// Client-side load balancing.
    GrpcGo,
}

/// Settings of weights that are derived from load reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Time for which a server must have reported before its own weight is used.
    pub blackout: Duration,
    /// Interval at which weights are computed.
    pub update: Duration,
    /// Whether reports are streamed out of band instead of sent with each response.
    pub is_out_of_band: bool,
}

impl Weights {
    /// Settings of the manifests.
    pub const FAST: Self = Self {
        blackout: Duration::from_millis(200),
        update: Duration::from_millis(200),
        is_out_of_band: false,
    };

    /// Defaults of both routers.
    pub const DEFAULT: Self = Self {
        blackout: Duration::from_secs(10),
        update: Duration::from_secs(1),
        is_out_of_band: false,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Round robin without retries, in front of servers without an objective, which refuse nothing
    /// until their queue is full.
    Unlimited,
    /// Round robin without retries: what a Service does without a router.
    Unretried,
    RoundRobin,
    LeastRequest,
    /// Weighted round robin by ORCA reports.
    Weighted(Weights),
}

impl Policy {
    pub(crate) fn has_retries(self) -> bool {
        !matches!(self, Self::Unlimited | Self::Unretried)
    }
}

/// A router under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    pub router: Router,
    pub policy: Policy,
}

impl Arm {
    pub const ALL: [Self; 13] = [
        envoy(Policy::Unlimited),
        envoy(Policy::Unretried),
        envoy(Policy::RoundRobin),
        envoy(Policy::LeastRequest),
        envoy(Policy::Weighted(Weights::FAST)),
        envoy(Policy::Weighted(Weights::DEFAULT)),
        grpc_go(Policy::Unlimited),
        grpc_go(Policy::Unretried),
        grpc_go(Policy::RoundRobin),
        grpc_go(Policy::LeastRequest),
        grpc_go(Policy::Weighted(Weights::FAST)),
        grpc_go(Policy::Weighted(Weights {
            is_out_of_band: true,
            ..Weights::FAST
        })),
        grpc_go(Policy::Weighted(Weights::DEFAULT)),
    ];

    /// Name in the format of the command line, such as `envoy/orca`.
    #[must_use]
    pub fn name(self) -> String {
        let router = match self.router {
            Router::Envoy => "envoy",
            Router::GrpcGo => "grpc-go",
        };
        let policy = match self.policy {
            Policy::Unlimited => "unlimited",
            Policy::Unretried => "unretried",
            Policy::RoundRobin => "round-robin",
            Policy::LeastRequest => "least-request",
            Policy::Weighted(weights) if weights.is_out_of_band => "orca-oob",
            Policy::Weighted(Weights::DEFAULT) => "orca-defaults",
            Policy::Weighted(_) => "orca",
        };
        format!("{router}/{policy}")
    }

    /// The arm of [`Arm::ALL`] with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arm| arm.name() == name)
    }

    /// Time until weights can be in force.
    pub(crate) fn blackout(self) -> Duration {
        match self.policy {
            Policy::Weighted(weights) => weights.blackout,
            Policy::Unlimited | Policy::Unretried | Policy::RoundRobin | Policy::LeastRequest => {
                Duration::ZERO
            }
        }
    }
}

const fn envoy(policy: Policy) -> Arm {
    Arm {
        router: Router::Envoy,
        policy,
    }
}

const fn grpc_go(policy: Policy) -> Arm {
    Arm {
        router: Router::GrpcGo,
        policy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm_names_are_unique() {
        for arm in Arm::ALL {
            assert_eq!(Arm::from_name(&arm.name()), Some(arm));
        }
        assert_eq!(Arm::from_name("envoy/random"), None);
    }
}
