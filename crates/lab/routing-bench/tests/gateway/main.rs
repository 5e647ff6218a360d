//! Envoy Gateway with the manifests of `manifests/examples/routing`, a real API server and real
//! servers: the resources are accepted, and a request that one pod refuses or loses is answered by
//! another. Needs root for network namespaces and cgroups.
// Builds Envoy Gateway, which takes minutes the first time: run by `make gateway` and `make e2e`.
#![cfg(not(debug_assertions))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod envoy_gateway;
mod rig;

use std::time::Duration;

use albacore_load::{Generator, Load, Sample, Shape, WireFormat};
use albacore_routing_bench::{Kills, while_killing};
use albacore_testbed::TestNetwork;

use crate::rig::Rig;

/// Requests per second of every load.
const RATE: u32 = 50;

fn through(wire: WireFormat, length: Duration) -> Vec<Sample> {
    let gap = Duration::from_secs(1) / RATE;
    let count = length.as_millis() as u32 * RATE / 1000;
    let load = Load {
        requests: vec![rig::request(wire, rig::GATEWAY)],
        shape: Shape::Open((0..count).map(|index| gap * index).collect()),
        connections: 16,
    };
    Generator::new().unwrap().run(load).unwrap()
}

/// Asserts that at most `most` requests were not answered.
fn assert_answered(samples: &[Sample], most: usize, rig: &Rig) {
    let lost = samples.iter().filter(|sample| sample.status != 200);
    let lost: Vec<&Sample> = lost.collect();
    assert!(
        lost.len() <= most,
        "{} of {}: {:?}\n{}",
        lost.len(),
        samples.len(),
        lost.first(),
        rig.gateway.log()
    );
}

#[test]
fn envoy_gateway_sends_what_a_pod_refuses_or_loses_to_another() {
    let network = TestNetwork::new().unwrap();
    let test = || {
        let mut rig = Rig::start(&network, "envoy-gateway");
        rig.apply_example("envoy-gateway");
        for kind in ["HTTPRoute", "GRPCRoute"] {
            rig.wait_until_accepted(kind);
        }
        rig.wait_until_policies_are_accepted(2);
        rig.wait_until_routed();
        let length = Duration::from_secs(4);
        for wire in [WireFormat::Json, WireFormat::Grpc] {
            assert_answered(&through(wire, length / 2), 0, &rig);
        }
        let kills = Kills {
            first: Duration::from_millis(500),
            every: Duration::from_secs(2),
            seed: 3,
        };
        let mut pods = std::mem::take(&mut rig.pods);
        for wire in [WireFormat::Json, WireFormat::Grpc] {
            let send = || Ok(through(wire, length));
            let (samples, killed) = while_killing(&mut pods, kills, send).unwrap();
            assert!(!killed.is_empty());
            assert_answered(&samples, killed.len(), &rig);
        }
        rig.pods = pods;
        for wire in [WireFormat::Json, WireFormat::Grpc] {
            let _waiting = rig.fill(0);
            assert_answered(&through(wire, length / 4), 0, &rig);
            assert!(rig.refused(0) > 0.0, "{wire:?}: no request was refused");
        }
    };
    network.within(test).unwrap();
}

#[test]
fn a_retry_of_gateway_api_is_sent_to_another_pod() {
    let network = TestNetwork::new().unwrap();
    let test = || {
        let mut rig = Rig::start(&network, "gateway-api");
        rig.apply_example("gateway-api");
        for kind in ["HTTPRoute", "GRPCRoute"] {
            rig.wait_until_accepted(kind);
        }
        rig.wait_until_routed();
        let length = Duration::from_secs(4);
        assert_answered(&through(WireFormat::Grpc, length), 0, &rig);
        let _waiting = rig.fill(0);
        assert_answered(&through(WireFormat::Json, length), 0, &rig);
        assert!(rig.refused(0) > 0.0);
    };
    network.within(test).unwrap();
}
