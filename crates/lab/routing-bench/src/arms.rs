//! Routers and their policies: what is compared.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Router {
    /// A proxy.
    Envoy,
    /// Clients that choose the server themselves.
    GrpcGo,
}

/// How weights follow from load reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// How long a server must report before it has a weight of its own.
    pub blackout: Duration,
    /// How often they are computed.
    pub update: Duration,
    /// Reports come in a stream, not with each answer.
    pub is_out_of_band: bool,
}

impl Weights {
    /// What the manifests set.
    pub const FAST: Self = Self {
        blackout: Duration::from_millis(200),
        update: Duration::from_millis(200),
        is_out_of_band: false,
    };

    /// What both routers do by default.
    pub const DEFAULT: Self = Self {
        blackout: Duration::from_secs(10),
        update: Duration::from_secs(1),
        is_out_of_band: false,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Round robin, and what fails is not sent again: as a Service does without a router.
    Unretried,
    RoundRobin,
    LeastRequest,
    /// Weighted round robin by ORCA reports.
    Weighted(Weights),
}

/// A router under a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    pub router: Router,
    pub policy: Policy,
}

impl Arm {
    pub const ALL: [Self; 11] = [
        envoy(Policy::Unretried),
        envoy(Policy::RoundRobin),
        envoy(Policy::LeastRequest),
        envoy(Policy::Weighted(Weights::FAST)),
        envoy(Policy::Weighted(Weights::DEFAULT)),
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

    /// As users write it, such as `envoy/orca`.
    #[must_use]
    pub fn name(self) -> String {
        let router = match self.router {
            Router::Envoy => "envoy",
            Router::GrpcGo => "grpc-go",
        };
        let policy = match self.policy {
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

    /// How long it takes until weights can be in force.
    pub(crate) fn blackout(self) -> Duration {
        match self.policy {
            Policy::Weighted(weights) => weights.blackout,
            Policy::Unretried | Policy::RoundRobin | Policy::LeastRequest => Duration::ZERO,
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
    fn every_arm_has_a_name_of_its_own() {
        for arm in Arm::ALL {
            assert_eq!(Arm::from_name(&arm.name()), Some(arm));
        }
        assert_eq!(Arm::from_name("envoy/random"), None);
    }
}
