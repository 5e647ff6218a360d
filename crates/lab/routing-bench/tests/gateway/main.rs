//! Envoy Gateway and Istio with the manifests of `manifests/examples/routing`, a real API server
//! and real servers: the resources are accepted, and a request that one pod refuses or loses is
//! answered by another. Needs root for network namespaces and cgroups.
// Builds Envoy Gateway and istiod, which takes minutes the first time: run by `make gateway` and
// `make e2e`.
#![cfg(not(debug_assertions))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod envoy_gateway;
mod istio;
mod rig;

use std::time::Duration;

use albacore_load::{Generator, Load, Request, Sample, Shape, WireFormat};
use albacore_routing_bench::{Kills, while_killing};
use albacore_testbed::{Options, TestNetwork};

use crate::envoy_gateway::EnvoyGateway;
use crate::istio::Mesh;
use crate::rig::Rig;

/// Requests per second of every load.
const RATE: u32 = 50;

/// Share of the refusals that may be lost: the examples limit the retries in flight, and the
/// routers send a retry to the same pod if six draws find no other.
const LOST_SHARE: f64 = 0.1;

/// A request to the router.
type ToRouter = fn(WireFormat) -> Request;

const WIRES: [WireFormat; 2] = [WireFormat::Json, WireFormat::Grpc];

fn to_gateway(wire: WireFormat) -> Request {
    rig::request(wire, envoy_gateway::ADDRESS)
}

fn send(request: Request, length: Duration) -> Vec<Sample> {
    let gap = Duration::from_secs(1) / RATE;
    let count = length.as_millis() as u32 * RATE / 1000;
    let load = Load {
        requests: vec![request],
        shape: Shape::Open((0..count).map(|index| gap * index).collect()),
        connections: 16,
    };
    Generator::new().unwrap().run(load).unwrap()
}

/// Asserts that at most `most` requests were not answered.
fn assert_answered(samples: &[Sample], most: usize, rig: &Rig) {
    let lost = samples.iter().filter(|sample| sample.status != 200);
    let lost: Vec<&Sample> = lost.collect();
    let statuses: Vec<u16> = lost.iter().map(|sample| sample.status).collect();
    println!(
        "{} of {} requests were lost: {statuses:?}",
        lost.len(),
        samples.len()
    );
    assert!(
        lost.len() <= most,
        "{} of {}: {:?}\n{}",
        lost.len(),
        samples.len(),
        lost.first(),
        rig.logs()
    );
}

/// Kills pods every two seconds: at most one request is lost per kill, because its only retry may
/// be sent to the killed pod, too.
fn assert_kills_lose_at_most_one_request(rig: &mut Rig, request: ToRouter) {
    let kills = Kills {
        first: Duration::from_millis(500),
        every: Duration::from_secs(2),
        seed: 3,
    };
    let mut pods = std::mem::take(&mut rig.pods);
    for wire in WIRES {
        let load = || Ok(send(request(wire), Duration::from_secs(4)));
        let (samples, killed) = while_killing(&mut pods, kills, load).unwrap();
        assert!(!killed.is_empty());
        println!("{wire:?}, {} kills", killed.len());
        assert_answered(&samples, killed.len(), rig);
    }
    rig.pods = pods;
}

/// Asserts that the refusals of a full pod are answered by another.
fn assert_refusals_are_answered(rig: &mut Rig, request: Request, length: Duration) {
    let _waiting = rig.fill(0);
    let samples = send(request, length);
    let refused = rig.refused(0);
    println!("{refused} requests were refused");
    assert!(refused > 1.0, "too few for a test");
    assert_answered(&samples, (refused * LOST_SHARE).max(1.0) as usize, rig);
    // Its worker is stopped.
    rig.pods[0].restart().unwrap();
}

/// Runs `test` in a network with an API server and pods.
fn with_rig(name: &str, options: &Options, test: impl FnOnce(Rig) + Send) {
    let network = TestNetwork::new().unwrap();
    let run = || test(Rig::start(&network, name, options));
    network.within(run).unwrap();
}

#[test]
fn envoy_gateway_sends_what_a_pod_refuses_or_loses_to_another() {
    with_rig("envoy-gateway", &Options::default(), |mut rig| {
        let _gateway = EnvoyGateway::install(&mut rig, "envoy-gateway");
        envoy_gateway::wait_until_policies_are_accepted(&rig);
        for wire in WIRES {
            assert_answered(&send(to_gateway(wire), Duration::from_secs(2)), 0, &rig);
        }
        assert_kills_lose_at_most_one_request(&mut rig, to_gateway);
        for wire in WIRES {
            let length = Duration::from_secs(1);
            assert_refusals_are_answered(&mut rig, to_gateway(wire), length);
        }
    });
}

#[test]
fn a_retry_of_gateway_api_is_sent_to_another_pod() {
    with_rig("gateway-api", &Options::default(), |mut rig| {
        let _gateway = EnvoyGateway::install(&mut rig, "gateway-api");
        let length = Duration::from_secs(4);
        assert_answered(&send(to_gateway(WireFormat::Grpc), length), 0, &rig);
        assert_refusals_are_answered(&mut rig, to_gateway(WireFormat::Json), length);
    });
}

#[test]
fn istio_sends_what_a_pod_refuses_or_loses_to_another() {
    with_rig("istio", &istio::api_server_options(), |mut rig| {
        let _mesh = Mesh::install(&mut rig);
        istio::assert_example_is_in_force();
        let length = Duration::from_secs(4);
        for wire in WIRES {
            assert_answered(&send(istio::request(wire), length), 0, &rig);
        }
        for wire in WIRES {
            assert_refusals_are_answered(&mut rig, istio::request(wire), length);
        }
        assert_kills_lose_at_most_one_request(&mut rig, istio::request);
    });
}
