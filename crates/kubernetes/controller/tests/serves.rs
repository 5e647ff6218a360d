//! Tests of the status of pods with real servers: on loopback addresses, with a ConfigMap volume
//! that the test updates like a kubelet.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod rig;

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command};

use albacore_settings::{Settings, agent_stream};
use serde_json::json;

use rig::server::{Pod, model, root, settings};
use rig::{Rig, deployment, wait};

const ADDRESSES: [&str; 2] = ["127.77.5.1", "127.77.5.2"];

#[test]
#[allow(clippy::too_many_lines)] // one scenario: each part depends on the previous one
fn the_status_reports_what_real_servers_do() {
    let binary = albacore_testbed::product("albacore-server").unwrap();
    let models = tempfile::tempdir().unwrap();
    let copy = |name: &str| {
        let path = models.path().join(name);
        std::fs::copy(root().join("examples/fraud.ubj"), &path).unwrap();
        path
    };
    let rig = Rig::start(true);
    let controller = rig.controller(&[]);
    let first = model(&copy("first.ubj"), "10s");
    rig.apply(&[deployment("fraud", &json!({"threads": 1, "models": first}))]);
    wait("there are pods", || {
        rig.list("pods", "albacore.dev/deployment=fraud").len() == 2
    });
    let text = settings(&rig, "fraud");
    let mut pods: Vec<Pod> = ADDRESSES
        .map(|address| Pod::start(&binary, address, &text))
        .into_iter()
        .collect();
    wait("both serve", || {
        pods.iter().all(|pod| pod.predict().contains(" 200 "))
    });
    rig.simulate_kubelet("fraud", &ADDRESSES);

    rig.wait_for("fraud", "Ready", "True/Serving");
    rig.wait_for("fraud", "ModelLoaded", "True/Loaded");
    rig.wait_for("fraud", "SLOMet", "True/Met");
    rig.wait_for("fraud", "Reconciling", "");
    let status = || rig.get("infd", "fraud").unwrap()["status"].clone();
    assert_eq!(status()["workers"]["live"], 4);
    assert_eq!(status()["models"][0]["loaded"], "2/2");
    assert_eq!(status()["models"][0]["sha256"].as_str().unwrap().len(), 64);
    let template = rig.get("deployment", "fraud").unwrap()["spec"]["template"].clone();

    // A new file: the servers reload it without a restart, and the status is updated.
    let second = model(&copy("second.ubj"), "10s");
    rig.patch("infd", "fraud", &json!({"spec": {"models": second}}));
    rig.wait_for("fraud", "Reconciling", "True/SettingsPending");
    let text = settings(&rig, "fraud");
    pods.iter_mut().for_each(|pod| pod.deliver(&text));
    rig.wait_for("fraud", "Reconciling", "");
    rig.wait_for("fraud", "ModelLoaded", "True/Loaded");
    assert_eq!(
        rig.get("deployment", "fraud").unwrap()["spec"]["template"],
        template
    );

    // A missing file is reported with its pod; the loaded model continues to serve.
    let missing = model(&models.path().join("missing.ubj"), "10s");
    rig.patch("infd", "fraud", &json!({"spec": {"models": missing}}));
    wait("the ConfigMap follows", || {
        settings(&rig, "fraud").contains("missing.ubj")
    });
    let text = settings(&rig, "fraud");
    pods.iter_mut().for_each(|pod| pod.deliver(&text));
    rig.wait_for("fraud", "Ready", "False/ModelFailed");
    let error = status()["models"][0]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("missing.ubj"), "{error}");
    assert!(pods.iter().all(|pod| pod.predict().contains(" 200 ")));

    // An objective that cannot be met, and bounds that allow growth: pods are added.
    let spec = json!({"models": model(&models.path().join("first.ubj"), "1us"),
        "autoscaling": {"minReplicas": 2, "maxReplicas": 5}});
    rig.patch("infd", "fraud", &json!({ "spec": spec }));
    wait("the ConfigMap follows", || {
        settings(&rig, "fraud").contains("1us")
    });
    let text = settings(&rig, "fraud");
    pods.iter_mut().for_each(|pod| pod.deliver(&text));
    wait("five pods are wanted", || {
        pods.iter().for_each(|pod| drop(pod.predict()));
        rig.get("deployment", "fraud").unwrap()["spec"]["replicas"] == 5
    });
    rig.wait_for("fraud", "SLOMet", "False/Missed");
    wait("an event tells it", || {
        let events = rig.kubectl(&["get", "events", "-o", "json"]);
        events.contains("\"Scaled\"")
    });

    // Servers that exited have no live workers, whatever the kubelet still reports.
    rig.patch(
        "infd",
        "fraud",
        &json!({"spec": {"autoscaling": null, "replicas": 2}}),
    );
    pods.clear();
    wait("nothing is ready any more", || {
        rig.simulate_kubelet("fraud", &ADDRESSES);
        rig.condition_text("fraud", "Ready") == "Unknown/StateUnread"
    });
    let metrics = controller.http("/metrics");
    assert!(
        metrics.contains("albacore_state_scrapes_total{result=\"answered\"}"),
        "{metrics}"
    );
}

#[test]
fn a_small_model_that_misses_its_objective_is_named_and_decides_the_number_of_pods() {
    let binary = albacore_testbed::product("albacore-server").unwrap();
    let rig = Rig::start(true);
    let _controller = rig.controller(&[]);
    let uri = format!("file://{}", root().join("examples/fraud.ubj").display());
    let models = ["m", "small"].map(|name| {
        // No reply takes less than a microsecond.
        let latency = if name == "m" { "10s" } else { "1us" };
        json!({"name": name, "uri": uri, "slo": {"latency": latency}})
    });
    let spec = json!({"replicas": 1, "threads": 1, "models": models,
        "autoscaling": {"minReplicas": 1, "maxReplicas": 3}});
    rig.apply(&[deployment("two", &spec)]);
    wait("there is a pod", || {
        rig.list("pods", "albacore.dev/deployment=two").len() == 1
    });
    let pod = Pod::start(&binary, "127.77.5.4", &settings(&rig, "two"));
    wait("it serves", || pod.predict().contains(" 200 "));
    rig.simulate_kubelet("two", &["127.77.5.4"]);
    rig.wait_for("two", "SLOMet", "True/Met");
    // 0.25 % of all requests are late: less than half of what both objectives allow.
    for _ in 0..2000 {
        assert!(pod.predict().contains(" 200 "));
    }
    for _ in 0..5 {
        assert!(pod.predict_with("small").contains(" 200 "));
    }
    rig.wait_for("two", "SLOMet", "False/Missed");
    let status = rig.get("infd", "two").unwrap()["status"].clone();
    let conditions = status["conditions"].as_array().unwrap();
    let slo_met = conditions.iter().find(|c| c["type"] == "SLOMet").unwrap();
    let message = slo_met["message"].as_str().unwrap();
    assert!(
        message.starts_with("model small, value: 100% of "),
        "{message}"
    );
    let [m, small] = [0, 1].map(|index| &status["models"][index]);
    assert_eq!((&m["sloMet"], &m["badRate"]), (&json!(true), &json!("0%")));
    assert_eq!(
        (&small["sloMet"], &small["badRate"], &small["goodput"]),
        (&json!(false), &json!("100%"), &json!("0/s"))
    );
    for model in [m, small] {
        let p99 = model["p99"].as_str().unwrap_or_default();
        assert!(p99.ends_with("us") || p99.ends_with("ms"), "{status:#}");
    }
    wait("the worst model asks for all pods", || {
        rig.get("deployment", "two").unwrap()["spec"]["replicas"] == 3
    });
}

/// A process of `albacore-params` that is killed on drop.
struct Params(Child);

impl Drop for Params {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The agent's snapshot of a pod whose deployment has these settings.
fn line(settings: &Settings, generation: u64) -> String {
    let pod = agent_stream::ServingPod {
        address: None,
        namespace: "default".to_owned(),
        name: "live".to_owned(),
        uid: "1".to_owned(),
        deployment: "live".to_owned(),
        generation,
        parameters: agent_stream::Parameters::from_settings(settings, generation),
    };
    let line = agent_stream::NodeSnapshot {
        node: "n".to_owned(),
        sequence: generation,
        pods: vec![pod],
        metrics: String::new(),
    };
    line.encode().unwrap()
}

/// Starts the real `albacore-params`; returns it, the pipe to which an agent would write, and its
/// address for servers.
fn start_params(folder: &Path) -> (Params, File, String) {
    let pipe = folder.join("feed");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let socket = folder.join("params.sock");
    let uid = Command::new("id").arg("-u").output().unwrap().stdout;
    let child = Command::new(albacore_testbed::product("albacore-params").unwrap())
        .args(["--log-filter", "warn", "--feed"])
        .arg(&pipe)
        .arg("--unix")
        .arg(&socket)
        .args(["--uid", String::from_utf8(uid).unwrap().trim()])
        .spawn();
    let params = Params(child.unwrap());
    let mut agent = OpenOptions::new().write(true).open(&pipe).unwrap();
    agent.write_all(agent_stream::LINE_TERMINATOR).unwrap();
    (params, agent, format!("unix:{}", socket.display()))
}

/// Sends the settings to params like the agent of the node.
fn tell(rig: &Rig, agent: &mut File, wanted: &Settings) {
    let generation = rig.get("infd", "live").unwrap()["metadata"]["generation"].as_u64();
    agent
        .write_all(line(wanted, generation.unwrap()).as_bytes())
        .unwrap();
}

fn respawns_of_workers_are_reported(rig: &Rig, pod: &Pod) {
    for _ in 0..6 {
        wait("a worker is there to be killed", || pod.kill_worker());
        wait("it serves", || pod.predict().contains(" 200 "));
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    rig.wait_for("live", "WorkersRespawning", "True/FrequentRespawns");
    wait("an event tells it", || {
        let events = rig.kubectl(&["get", "events", "-o", "json"]);
        events.contains("\"WorkersRespawned\"") && events.contains("signal 9")
    });
    wait("the status counts them", || {
        let workers = rig.get("infd", "live").unwrap()["status"]["workers"].clone();
        workers["respawns"].as_i64() >= Some(6)
            && workers["lastCause"]
                .as_str()
                .is_some_and(|cause| cause.ends_with("signal 9"))
    });
    let events = rig.kubectl(&["get", "events", "-o", "json"]);
    assert!(
        events.matches("\"WorkersRespawned\"").count() <= 3,
        "{events}"
    );
}

/// Over the stream only; the status then no longer contains a choice of `Auto`.
fn a_model_gets_its_own_batching(rig: &Rig, agent: &mut File, path: &Path, pod: &Pod) {
    let shown = || {
        let status = rig.get("infd", "live").unwrap()["status"].clone();
        status["models"][0]["batching"].is_array()
    };
    wait("auto's choice is in the status", || {
        (0..20).for_each(|_| assert!(pod.predict().contains(" 200 ")));
        shown()
    });
    let mut models = model(path, "9s");
    models[0]["weight"] = 250.into();
    models[0]["threads"] = 1.into();
    models[0]["batching"] = json!({"policy": "Eager", "maxRows": 9});
    rig.patch("infd", "live", &json!({"spec": {"models": models}}));
    rig.wait_for("live", "Reconciling", "True/SettingsPending");
    let wanted = Settings::read(&settings(rig, "live")).unwrap();
    assert_eq!(wanted.models[0].batching.unwrap().batch_rows_max, 9);
    tell(rig, agent, &wanted);
    rig.wait_for("live", "Reconciling", "");
    wait("the model is no longer auto's", || !shown());
}

#[test]
fn a_live_edit_is_done_when_the_server_has_it_and_respawns_are_reported() {
    let server = albacore_testbed::product("albacore-server").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.ubj");
    std::fs::copy(root().join("examples/fraud.ubj"), &path).unwrap();
    let rig = Rig::start(true);
    let _controller = rig.controller(&[]);
    let models = model(&path, "10s");
    let spec = json!({"replicas": 1, "threads": 1, "models": models});
    rig.apply(&[deployment("live", &spec)]);
    wait("there is a pod", || {
        rig.list("pods", "albacore.dev/deployment=live").len() == 1
    });
    let (_params, mut agent, place) = start_params(folder.path());
    let text = settings(&rig, "live");
    let pod = Pod::start_with(&server, "127.77.5.3", &text, &["--params", &place]);
    wait("it serves", || pod.predict().contains(" 200 "));
    rig.simulate_kubelet("live", &["127.77.5.3"]);
    rig.wait_for("live", "Ready", "True/Serving");
    rig.wait_for("live", "Reconciling", "");

    // From here on the file of the pod does not change: the server receives parameters from params
    // only.
    rig.patch(
        "infd",
        "live",
        &json!({"spec": {"batching": {"maxRows": 77}}}),
    );
    rig.wait_for("live", "Reconciling", "True/SettingsPending");
    let wanted = Settings::read(&settings(&rig, "live")).unwrap();
    assert_eq!(wanted.batching.batch_rows_max, 77);
    tell(&rig, &mut agent, &wanted);
    let start = std::time::Instant::now();
    rig.wait_for("live", "Reconciling", "");
    eprintln!(
        "line of the agent to the end of Reconciling: {:?}",
        start.elapsed()
    );
    // Another edit of the objective, which no other field of the state shows.
    rig.patch(
        "infd",
        "live",
        &json!({"spec": {"models": model(&path, "9s")}}),
    );
    rig.wait_for("live", "Reconciling", "True/SettingsPending");
    let wanted = Settings::read(&settings(&rig, "live")).unwrap();
    tell(&rig, &mut agent, &wanted);
    rig.wait_for("live", "Reconciling", "");
    a_model_gets_its_own_batching(&rig, &mut agent, &path, &pod);

    respawns_of_workers_are_reported(&rig, &pod);
}
