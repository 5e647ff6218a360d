//! The load: explanations through the Service, with one connection per request, so that kube-proxy
//! selects a pod for each request.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use albacore_load::{
    InferRequest, Load, Report, Request, Sample, Shape, WireFormat, drive, poisson,
};

use crate::rig::Rig;

/// Columns of examples/fraud.ubj.
const FEATURES: usize = 61;

/// Rows per request: their contributions take some milliseconds of a worker, and less of the front
/// end and of this program.
const ROWS: usize = 256;

/// The objective of the deployment.
const OBJECTIVE: Duration = Duration::from_secs(1);

/// Connections of the measurement, and its duration.
const MEASURE_CONNECTIONS: usize = 4;
const MEASURE_TIME: Duration = Duration::from_secs(15);

/// Part of a load: a multiple of the capacity of one pod, and a duration.
pub(crate) type Part = (f64, Duration);

pub(crate) struct Traffic {
    request: Request,
    /// Capacity of one pod in requests per second.
    rate: f64,
}

/// Outcomes of the requests of each part.
pub(crate) struct Outcomes(Vec<(Part, Report)>);

impl Traffic {
    /// Measures the capacity of one pod with a closed loop, which never overloads it.
    pub(crate) fn measure(rig: &Rig) -> Self {
        let path = "jsonpath={.spec.clusterIP}";
        let ip = rig.kubectl(&["get", "service", "fraud", "-o", path]);
        let address = SocketAddr::new(ip.parse().unwrap(), 8080);
        let values: Vec<f32> = (0..ROWS * FEATURES).map(|at| (at % 50) as f32).collect();
        let call = InferRequest {
            model: "fraud",
            input: "input",
            output: Some("contribs"),
            values: &values,
            features: FEATURES,
        };
        let mut request = call.request(WireFormat::Binary, address);
        request.headers.push(("connection".into(), "close".into()));
        let load = Load {
            requests: vec![request.clone()],
            shape: Shape::Closed(MEASURE_TIME),
            connections: MEASURE_CONNECTIONS,
        };
        let samples = rig.node.within(|| drive(load)).unwrap().unwrap();
        let good = samples.iter().filter(|sample| sample.status == 200).count();
        let rate = good as f64 / MEASURE_TIME.as_secs_f64();
        println!("         one pod: {rate:.1} requests/s");
        assert!(rate > 1.0, "{samples:?}");
        Self { request, rate }
    }

    /// Sends the parts of a load one after another.
    pub(crate) fn send(&self, rig: &Rig, parts: &[Part]) -> Vec<Sample> {
        let mut times = Vec::new();
        let mut begin = Duration::ZERO;
        for (seed, (multiple, length)) in parts.iter().enumerate() {
            let part = poisson(self.rate * multiple, *length, seed as u64);
            times.extend(part.into_iter().map(|at| begin + at));
            begin += *length;
        }
        let load = Load {
            requests: vec![self.request.clone()],
            shape: Shape::Open(times),
            connections: 512,
        };
        rig.node.within(|| drive(load)).unwrap().unwrap()
    }

    pub(crate) fn report(samples: &[Sample], parts: &[Part]) -> Outcomes {
        let mut begin = Duration::ZERO;
        let reports = parts.iter().map(|&(multiple, length)| {
            let within = begin..begin + length;
            begin += length;
            let of_part = samples.iter().filter(|s| within.contains(&s.intended));
            ((multiple, length), Report::of(of_part, length, OBJECTIVE))
        });
        Outcomes(reports.collect())
    }
}

impl Outcomes {
    pub(crate) fn table(&self) -> String {
        let mut text = String::from(
            "| load | requests | good | late | shed | unavailable | failed | unanswered | p99 |\n\
             |---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for ((multiple, length), of) in &self.0 {
            let _ = writeln!(
                text,
                "| {multiple} pods for {} s | {} | {} | {} | {} | {} | {} | {} | {} ms |",
                length.as_secs(),
                of.sent,
                of.good,
                of.late,
                of.shed,
                of.unavailable,
                of.failed,
                of.unanswered,
                of.p99.as_millis(),
            );
        }
        text
    }

    /// Asserts that removed pods have answered all requests that they had accepted.
    pub(crate) fn assert_none_lost(&self) {
        for (part, of) in &self.0 {
            assert_eq!((of.failed, of.unanswered), (0, 0), "{part:?}: {of:?}");
        }
    }
}
