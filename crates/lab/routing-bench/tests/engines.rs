//! Envoy and grpc-go with the configuration of the manifests, in front of real servers: properties
//! that do not depend on the speed of this machine. Needs root for cgroups; `ALBACORE_SOAK=N`
//! multiplies the number of kills by N.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_bench::{FEATURES, random_model};
use albacore_load::{Generator, InferRequest, Load, Request, Sample, Shape, WireFormat};
use albacore_routing_bench::{
    ClientLoad, ClientResults, Envoy, EnvoyHost, GrpcClient, Kill, Kills, LoadReports, Pod,
    PodOptions, Policy, Weights, while_killing,
};
use albacore_testbed::{product, program_folder};

/// So long that no request is refused or late on a slow machine.
const OBJECTIVE: Duration = Duration::from_secs(5);

/// Requests per second of every load.
const RATE: u32 = 100;

/// Rows of each request: the slow server computes for milliseconds, far longer than its stalls.
const ROWS: usize = 10;

/// Trees of the models: a slow server and two fast ones, and equal servers.
const UNLIKE: [usize; 3] = [600, 5, 5];
const ALIKE: [usize; 3] = [100; 3];

/// A folder with `envoy` and `grpc-client`.
fn programs() -> PathBuf {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../tests/routing/programs.sh"
    );
    program_folder(Path::new(script)).unwrap()
}

/// Servers with models of these numbers of trees.
fn pods(folder: &Path, test: &str, trees: [usize; 3]) -> Vec<Pod> {
    let server = product("albacore-server").unwrap();
    let start = |(index, trees): (usize, usize)| {
        let file = folder.join(format!("{trees}.json"));
        std::fs::write(&file, random_model(trees)).unwrap();
        let options = PodOptions {
            server: server.clone(),
            model: ("model".to_owned(), file),
            objective: Some(OBJECTIVE),
            address: Ipv4Addr::LOCALHOST.into(),
            queue_rows: None,
            share: None,
        };
        let name = format!("albacore-{test}-{}-{index}", std::process::id());
        Pod::start(&name, options).unwrap()
    };
    trees.into_iter().enumerate().map(start).collect()
}

fn request(wire: WireFormat, address: SocketAddr) -> Request {
    let call = InferRequest {
        model: "model",
        input: "input",
        output: Some("contribs"),
        values: &vec![0.5; ROWS * FEATURES as usize],
        features: FEATURES as usize,
    };
    call.request(wire, address)
}

fn times(length: Duration) -> Vec<Duration> {
    let gap = Duration::from_secs(1) / RATE;
    let count = length.as_millis() as u32 * RATE / 1000;
    (0..count).map(|index| gap * index).collect()
}

fn through(envoy: &Envoy, length: Duration) -> Vec<Sample> {
    let load = Load {
        requests: vec![request(WireFormat::Binary, envoy.http)],
        shape: Shape::Open(times(length)),
        connections: 64,
    };
    Generator::new().unwrap().run(load).unwrap()
}

/// Envoy with the configuration of the manifest.
fn envoy(pods: &[Pod], folder: &Path) -> Envoy {
    let servers: Vec<SocketAddr> = pods.iter().map(|pod| pod.http).collect();
    Envoy::start(&programs().join("envoy"), folder, &servers, None).unwrap()
}

fn grpc(pods: &[Pod], folder: &Path, policy: Option<Policy>, length: Duration) -> GrpcClient {
    let servers: Vec<SocketAddr> = pods.iter().map(|pod| pod.grpc).collect();
    let reports = match policy {
        Some(Policy::Weighted(weights)) if !weights.is_out_of_band => LoadReports::Requested,
        _ => LoadReports::NotRequested,
    };
    let requests = [request(WireFormat::Grpc, servers[0])];
    let times = times(length);
    let sending = ClientLoad {
        requests: &requests,
        times: &times,
        reports,
    };
    let program = programs().join("grpc-client");
    GrpcClient::start(&program, folder, &servers, policy, &sending).unwrap()
}

/// Share of requests sent to the slow server in the second half, after weights were learned.
fn slow_share(pods: &[Pod], answered: &ClientResults) -> f64 {
    let half = &answered.servers[answered.servers.len() / 2..];
    let slow = half.iter().filter(|server| **server == Some(pods[0].grpc));
    slow.count() as f64 / half.len() as f64
}

/// Asserts that every request was answered.
fn assert_answered(samples: &[Sample]) {
    let mut lost = samples.iter().filter(|sample| sample.status != 200);
    let first = lost.next();
    assert_eq!(
        first,
        None,
        "of {} requests, beside {}",
        samples.len(),
        lost.count()
    );
}

#[test]
fn a_slow_server_gets_fewer_requests_by_its_reports() {
    let folder = tempfile::tempdir().unwrap();
    let pods = pods(folder.path(), "slow", UNLIKE);
    let length = Duration::from_secs(3);
    let by = |policy| {
        let answered = grpc(&pods, folder.path(), policy, length).finish().unwrap();
        assert_answered(&answered.samples);
        slow_share(&pods, &answered)
    };
    let alike = by(Some(Policy::RoundRobin));
    assert!((0.3..0.37).contains(&alike), "{alike}");
    // The manifest's setting streams reports; the other receives them with each response.
    let shares = [by(None), by(Some(Policy::Weighted(Weights::FAST)))];
    assert!(shares.iter().all(|&share| share < 0.25), "{shares:?}");

    let servers: Vec<SocketAddr> = pods.iter().map(|pod| pod.http).collect();
    let envoy = envoy(&pods, folder.path());
    assert_answered(&through(&envoy, length));
    let before = envoy.hosts().unwrap();
    let of = |hosts: &[EnvoyHost], server: SocketAddr| {
        hosts
            .iter()
            .find(|host| host.address == server)
            .unwrap()
            .clone()
    };
    let weights: Vec<u64> = servers
        .iter()
        .map(|&server| of(&before, server).weight)
        .collect();
    assert!(
        weights[1..].iter().all(|&fast| fast > weights[0]),
        "{weights:?}"
    );
    assert_answered(&through(&envoy, length));
    let after = envoy.hosts().unwrap();
    let sent = |server| of(&after, server).requests - of(&before, server).requests;
    let sent: Vec<u64> = servers.into_iter().map(sent).collect();
    assert!(sent[0] * 4 < sent.iter().sum::<u64>(), "{sent:?}");
}

/// Two failures eject a server; others may have started before the ejection. Merged with updates of
/// the weights, it took effect up to a second later.
#[test]
fn envoy_sends_no_requests_to_a_dead_server_once_it_is_ejected() {
    let folder = tempfile::tempdir().unwrap();
    let mut pods = pods(folder.path(), "ejected", ALIKE);
    let envoy = envoy(&pods, folder.path());
    let failures = || -> u64 {
        let hosts = envoy.hosts().unwrap();
        hosts.iter().map(|host| host.connect_failures).sum()
    };
    let length = Duration::from_secs(1);
    assert_answered(&through(&envoy, length));
    for pod in &mut pods {
        let before = failures();
        pod.kill().unwrap();
        assert_answered(&through(&envoy, length));
        let failed = failures() - before;
        // Its share is 33 requests.
        assert!((1..=6).contains(&failed), "{failed}");
        pod.restart().unwrap();
        // The next health check readmits it.
        assert_answered(&through(&envoy, length));
    }
}

/// Four kills, multiplied by `ALBACORE_SOAK`.
fn kills() -> (Kills, Duration) {
    let soak = std::env::var("ALBACORE_SOAK").map_or(1, |text| text.parse().unwrap());
    let kills = Kills {
        first: Duration::from_millis(500),
        every: Duration::from_secs(1),
        seed: 3,
    };
    (kills, Duration::from_secs(4) * soak)
}

/// On a busy machine a retry may be sent to a server that is starting: one lost request per kill.
/// Without retries, each kill costs the requests sent until it is detected.
fn assert_few_lost(samples: &[Sample], killed: &[Kill]) {
    let lost = samples.iter().filter(|sample| sample.status != 200);
    let lost: Vec<&Sample> = lost.collect();
    assert!(
        lost.len() <= killed.len(),
        "{} kills: {lost:?}",
        killed.len()
    );
}

fn assert_killed(killed: &[Kill], length: Duration) {
    // A server that starts slowly leaves time for fewer kills.
    assert!(killed.len() as u64 >= length.as_secs() / 4, "{killed:?}");
}

#[test]
fn a_killed_server_costs_envoy_at_most_one_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut pods = pods(folder.path(), "envoy", ALIKE);
    let envoy = envoy(&pods, folder.path());
    let (kills, length) = kills();
    let send = || Ok(through(&envoy, length));
    let (samples, killed) = while_killing(&mut pods, kills, send).unwrap();
    assert_killed(&killed, length);
    assert_few_lost(&samples, &killed);
    // Without retries these requests would have been lost.
    assert!(envoy.retried().unwrap() > 0);
}

#[test]
fn a_killed_server_costs_grpc_go_at_most_one_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut pods = pods(folder.path(), "grpc", ALIKE);
    let (kills, length) = kills();
    let client = grpc(&pods, folder.path(), None, length);
    let (answered, killed) = while_killing(&mut pods, kills, || client.finish()).unwrap();
    assert_killed(&killed, length);
    assert_few_lost(&answered.samples, &killed);
}
