//! A trial on a real server under load: windows with and without the plan in turns, a verdict, and what follows from it.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

mod rig;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use albacore_testbed::product;
use rig::{Pod, Rig, wait};
use serde_json::json;

const ADDRESS: &str = "127.61.7.1";
const MODEL: &str = "lgb_binary";

/// Asks for predictions, one after the other on one connection, until told to stop.
fn load(stop: &AtomicBool, answered: &AtomicU64, features: usize) {
    let row = vec!["0.5"; features].join(",");
    let body = format!(
        r#"{{"inputs":[{{"name":"input","shape":[1,{features}],"datatype":"FP32","data":[{row}]}}]}}"#
    );
    let request = format!(
        "POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    while !stop.load(Ordering::Relaxed) {
        let Ok(stream) = TcpStream::connect((ADDRESS, 8080)) else {
            std::thread::sleep(std::time::Duration::from_millis(50));
            continue;
        };
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while !stop.load(Ordering::Relaxed) && stream.write_all(request.as_bytes()).is_ok() {
            let (mut line, mut length, mut status) = (String::new(), 0, String::new());
            while answers.read_line(&mut line).is_ok_and(|count| count > 2) {
                if status.is_empty() {
                    status.clone_from(&line);
                }
                if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = text.trim().parse().unwrap();
                }
                line.clear();
            }
            if answers.read_exact(&mut vec![0; length]).is_err() || length == 0 {
                break;
            }
            answered.fetch_add(u64::from(status.contains(" 200 ")), Ordering::Relaxed);
        }
    }
}

/// Starts the built-in server in a pod; how many features its model takes.
fn serve(rig: &Rig, pod: &mut Pod) -> usize {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/models");
    let meta = std::fs::read_to_string(data.join(format!("{MODEL}.meta.json"))).unwrap();
    let meta: serde_json::Value = serde_json::from_str(&meta).unwrap();
    let features = meta["num_feature"]
        .as_u64()
        .or(meta["features"].as_u64())
        .unwrap() as usize;
    let server = product("albacore-server").unwrap();
    let model = format!("m={}", data.join(format!("{MODEL}.txt")).display());
    let listen = [format!("{ADDRESS}:8080"), format!("{ADDRESS}:8081")];
    let arguments = [
        "--workers",
        "2",
        "--threads",
        "1",
        "--http",
        &listen[0],
        "--grpc",
        &listen[1],
        "--model",
        &model,
    ];
    rig.run_program(pod, &server, &arguments, ADDRESS);
    features
}

#[test]
fn a_plan_is_tried_on_the_live_pod_and_judged() {
    let rig = Rig::start();
    let trial = json!({"placement": {"trial": {"window": "1s", "windows": 8}}});
    rig.deploy("fraud", 2, 1, &trial);
    let mut pod = rig.pod("fraud-1", "fraud", &["2", "1", "named"]);
    let features = serve(&rig, &mut pod);
    let (stop, answered) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let client = {
        let (stop, answered) = (stop.clone(), answered.clone());
        std::thread::spawn(move || load(&stop, &answered, features))
    };
    wait("it answers", || answered.load(Ordering::Relaxed) > 100);

    let agent = rig.agent(&[]);
    let reason = |rig: &Rig| {
        rig.entry(&pod)["reason"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let (mut with, mut without) = (false, false);
    let mut verdict = String::new();
    wait("there is a verdict", || {
        let threads = pod.threads();
        let pinned = threads.values().filter(|(_, mask)| mask != "0-1").count();
        with |= pinned == 2;
        without |= with && pinned == 0 && threads.len() == 2;
        verdict = reason(&rig);
        let is_kept = agent.log().contains("the trial shows a gain");
        verdict.contains("the trial shows no gain") || (is_kept && rig.entry(&pod)["verified"] == 2)
    });
    assert!(
        with && without,
        "windows with the plan ({with}) and without it ({without})"
    );
    println!("verdict: {verdict:?}");
    // A plan that was withdrawn stays so, and every mask was given back; one that helps is in force.
    if verdict.is_empty() {
        pod.wait_until_pinned(2);
    } else {
        rig.wait_for_event("fraud-1", "PlacementWithdrawn");
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert!(
            pod.masks().iter().all(|mask| mask == "0-1"),
            "{:?}",
            pod.threads()
        );
        assert!(verdict.contains("of 8 pairs"), "{verdict}");
        // Without the wish for a trial the plan is in force.
        rig.patch(
            "infd",
            "fraud",
            &json!({"spec": {"placement": {"trial": null}}}),
        );
        pod.wait_until_pinned(2);
    }
    stop.store(true, Ordering::Relaxed);
    client.join().unwrap();
    assert!(agent.stop().success());
}
