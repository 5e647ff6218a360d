//! Tests of latency reports of pods: the pod to which they are attributed, their rate limit, and
//! the pipe to which they are written.

#![allow(clippy::unwrap_used, clippy::expect_used)] // tests fail by panicking

mod running;

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use albacore_proto::params::LatencyReport as Report;
use albacore_settings::agent_stream::LatencyReport;
use running::{Agent, Params, make_pipe, next, pipe, pod, reporting, rows};
use tonic::Code;

const PASSED_ON: &str = "albacore_params_reports_total{outcome=\"passed_on\"}";
const DROPPED: &str = "albacore_params_reports_total{outcome=\"dropped\"}";

fn report(count: u64) -> Report {
    Report {
        bounds_us: vec![1000],
        counts: vec![count, 0],
    }
}

/// Starts params with a pipe for reports; returns it and the path of the pipe.
fn start(feed: &Path) -> (Params, std::path::PathBuf) {
    let path = feed.with_file_name("reports");
    let reports = ["--grpc", "127.0.0.1:0", "--reports", path.to_str().unwrap()];
    (Params::start(feed, &reports), path.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_counts_for_the_pod_with_the_address_if_it_is_on_trial() {
    let (_folder, feed) = pipe();
    let (params, path) = start(&feed);
    let mut agent = Agent::start(&feed);
    agent.send_snapshot(&[
        reporting("a", "127.0.0.2"),
        reporting("b", "127.0.0.3"),
        pod("c", Some("127.0.0.4"), 1),
    ]);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    let mut a = params.client("127.0.0.2").await;
    // The agent has not created the pipe yet: the report is dropped immediately.
    a.report(report(1)).await.unwrap();
    params.wait_for("dropped", |params| params.metric(DROPPED) == 1.0);
    make_pipe(&path);
    let read = std::thread::spawn(move || {
        let lines = BufReader::new(std::fs::File::open(path).unwrap()).split(b'\n');
        let reports = lines.map(|line| LatencyReport::decode(&line.unwrap()).unwrap());
        reports.take(2).collect::<Vec<_>>()
    });
    let mut reply = a.report(report(7)).await;
    // Rejected while it follows the first one too soon, or the reader has not opened the pipe yet.
    while reply.is_err() || params.metric(PASSED_ON) == 0.0 {
        tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        reply = a.report(report(7)).await;
    }
    let mut b = params.client("127.0.0.3").await;
    b.report(report(8)).await.unwrap();
    let reports = read.join().unwrap();
    assert_eq!(
        (&*reports[0].uid, &*reports[0].counts),
        ("uid-a", &[7, 0][..])
    );
    let uids: Vec<&str> = reports.iter().map(|report| report.uid.as_str()).collect();
    assert!(uids[1] == "uid-a" || uids[1] == "uid-b", "{uids:?}");

    let refused = async |from: &str, report: Report| {
        let mut client = params.client(from).await;
        client.report(report).await.unwrap_err().code()
    };
    assert_eq!(
        refused("127.0.0.4", report(1)).await,
        Code::FailedPrecondition
    );
    assert_eq!(
        refused("127.0.0.9", report(1)).await,
        Code::PermissionDenied
    );
}

#[tokio::test]
async fn reports_that_are_no_histogram_or_too_frequent_are_refused() {
    let (_folder, feed) = pipe();
    let (params, _) = start(&feed);
    let mut agent = Agent::start(&feed);
    agent.send_snapshot(&[reporting("a", "127.0.0.2")]);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    let mut client = params.client("127.0.0.2").await;
    let mut codes = Vec::new();
    for counts in [0, 1, 3, 33] {
        let bounds_us = vec![1000];
        let counts = vec![1; counts];
        let wrong = Report { bounds_us, counts };
        tokio::time::sleep(std::time::Duration::from_millis(60)).await;
        codes.push(client.report(wrong).await.unwrap_err().code());
    }
    assert_eq!(codes, [Code::InvalidArgument; 4]);
    // Exceeds the size limit of a request: a histogram has 200 bytes.
    let large = Report {
        bounds_us: (0..4000).collect(),
        counts: vec![1; 4001],
    };
    let error = client.report(large).await.unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange, "{error}");
    // Of a thousand reports sent at once few are accepted: one per 50 ms.
    let (mut taken, start) = (0, std::time::Instant::now());
    for count in 0..1000 {
        taken += usize::from(client.report(report(count)).await.is_ok());
    }
    let most = start.elapsed().as_millis() / 50 + 1;
    assert!(taken as u128 <= most, "{taken} in {:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_does_not_read_blocks_nothing() {
    let (_folder, feed) = pipe();
    let path = feed.with_file_name("reports");
    make_pipe(&path);
    // Open for reading, but never read.
    let mut options = std::fs::OpenOptions::new();
    let _reader = options.read(true).write(true).open(&path).unwrap();
    let (params, _) = start(&feed);
    let mut agent = Agent::start(&feed);
    let pods = (2..=201).map(|n| reporting(&format!("p{n}"), &format!("127.0.1.{n}")));
    let pods: Vec<_> = pods.collect();
    agent.send_snapshot(&pods);
    params.wait_for("ready", |params| params.get("/readyz").0 == 200);
    let mut counts = Report {
        bounds_us: (0..31).map(|n| u64::MAX - 100 + n).collect(),
        counts: vec![u64::MAX; 32],
    };
    // 200 pods with the longest lines: five times the capacity of the pipe and the queue.
    let mut outcomes = Vec::new();
    for n in 2..=201 {
        counts.counts[0] = n;
        let mut client = params.client(&format!("127.0.1.{n}")).await;
        outcomes.push(client.report(counts.clone()).await.is_ok());
    }
    params.wait_for("the pipe is full", |params| params.metric(DROPPED) >= 1.0);
    assert!(params.metric(PASSED_ON) >= 16.0);
    assert!(
        outcomes.contains(&false),
        "more than the queue holds are refused"
    );
    let mut stream = params.watch("127.0.1.9").await.unwrap();
    assert_eq!(
        rows(&next(&mut stream).await.unwrap()),
        1,
        "others are served"
    );
}
