//! A release on a real node: kubelet, containerd and kube-proxy with an API server
//! (`albacore_testbed::Node`), the programs of this workspace in images, and the chart installed
//! like by users. One node and one test: each step depends on the previous ones and prints its
//! duration. Masks are read from the kernel, never from the agent's reports.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod annotated;
mod cached;
mod distances;
mod experiment;
mod gunicorn;
mod kernel;
mod observe;
#[allow(dead_code, reason = "some of it is for the test of three nodes")]
mod requests;
mod rig;
mod seccomp;
mod tune;
mod tune_apply;

use std::collections::BTreeSet;

use rig::{AGENT, Rig};

/// W and T in examples/fraud.yaml.
const WORKERS: usize = 2;
const THREADS: usize = 2;

#[test]
fn a_release_runs_on_a_node() {
    let mut rig = Rig::start();
    rig.step("images", Rig::import_images);
    rig.step("helm install", |rig| rig.helm("install", &[]));
    rig.step("ready and placed", ready_and_placed);
    rig.step("prediction", |rig| {
        let answer = rig.predict();
        assert!(answer.contains("\"outputs\""), "{answer}");
    });
    rig.step("what the agent may do", what_the_agent_may_do);
    rig.step("a worker is killed", a_worker_is_killed);
    rig.step("a neighbor with cpus of its own", a_neighbor_comes_and_goes);
    rig.step("the kubelet starts again", the_kubelet_starts_again);
    rig.step("the pod is resized in place", a_pod_is_resized);
    rig.step("a cpu limit of the whole pod", the_pod_has_a_limit);
    rig.step("measured distances", distances::are_read_from_a_config_map);
    rig.step("batching is edited", batching_is_edited);
    rig.step("enforcement is edited", observe::by_the_object);
    rig.step("the agent is frozen", observe::a_frozen_agent);
    rig.step("the agent crashes", the_agent_crashes);
    rig.step("the agent's pod is deleted", the_agents_pod_is_deleted);
    rig.step("a seccomp profile of its own", a_profile_of_its_own);
    rig.step("what the profile refuses", |rig| seccomp::refuses(rig));
    rig.step(
        "threads are shown and let go",
        threads_are_shown_and_released,
    );
    rig.step("the chart's Observe", observe::by_the_chart);
    rig.step("an experiment on the node", experiment::runs_as_a_job);
    rig.step("a search for a configuration", tune::measures_another_pod);
    if rig.is_release() {
        rig.step(
            "a configuration is applied under load",
            tune_apply::keeps_what_is_no_worse,
        );
        rig.step(
            "a configuration is reverted under load",
            tune_apply::reverts_what_is_worse,
        );
        rig.step("gunicorn and XGBoost", gunicorn_is_placed);
        rig.step(
            "a Deployment that is annotated",
            annotated::place_by_annotation,
        );
        rig.step("a cache of models", cached::outlives_the_store);
    }
    rig.step("helm uninstall", uninstall_leaves_no_mask);
}

/// Whether every worker thread is pinned to one CPU, and each worker uses both CPUs.
fn is_scattered(front: i32) -> bool {
    let workers = kernel::workers(front);
    workers.len() == WORKERS
        && workers.iter().all(|&worker| {
            let masks = kernel::masks(&BTreeSet::from([worker]));
            let cpus: BTreeSet<&String> = masks.values().collect();
            masks.len() == THREADS && cpus == BTreeSet::from([&"0".to_owned(), &"1".to_owned()])
        })
}

fn ready_and_placed(rig: &mut Rig) {
    rig.apply_fraud();
    for condition in ["Ready", "Placed"] {
        let condition = format!("--for=condition={condition}");
        rig.kubectl(&["wait", "infd/fraud", &condition, "--timeout=120s"]);
    }
    assert!(is_scattered(rig.front()), "{:?}", rig.masks());
}

fn what_the_agent_may_do(rig: &mut Rig) {
    let agent = rig.agent();
    assert_eq!(kernel::rights(agent), include_str!("agent-status.txt"));
    let sockets = kernel::listening(agent);
    assert!(sockets.is_empty(), "the agent listens: {sockets:?}");
}

fn a_worker_is_killed(rig: &mut Rig) {
    let front = rig.front();
    let victim = *kernel::workers(front).first().unwrap();
    rig.kill(victim);
    rig.wait_until("another worker, placed", || {
        let is_new = !kernel::workers(front).contains(&victim);
        (is_new && is_scattered(front)).then_some(())
    });
    assert_eq!(rig.front(), front, "the server itself went on");
}

/// The kubelet takes a CPU from the other pods and gives it back, which rewrites the cpuset of the
/// placed pod twice.
fn a_neighbor_comes_and_goes(rig: &mut Rig) {
    let front = rig.front();
    rig.apply("neighbor", include_str!("neighbor.yaml"));
    let left = rig.wait_until("a smaller cpuset", || {
        Some(kernel::cpuset(front)).filter(|cpus| cpus != "0-1")
    });
    rig.wait_until("masks within it", || {
        let masks = kernel::masks(&kernel::workers(front));
        masks.values().all(|mask| *mask == left).then_some(())
    });
    let wait = ["--for=condition=Ready", "--timeout=120s"];
    rig.kubectl(&[&["wait", "pod/neighbor"], &wait[..]].concat());
    rig.kubectl(&["delete", "pod/neighbor", "--wait", "--timeout=60s"]);
    rig.wait_until("the old cpuset", || {
        (kernel::cpuset(front) == "0-1").then_some(())
    });
    rig.wait_until("the old placement", || is_scattered(front).then_some(()));
}

fn the_kubelet_starts_again(rig: &mut Rig) {
    let (front, masks) = (rig.front(), rig.masks());
    rig.node.kill("kubelet").unwrap();
    rig.wait_until("a kubelet that works", || {
        rig.ask_agent("alive").map(|_| ())
    });
    assert_eq!(rig.front(), front);
    assert_eq!(rig.masks(), masks, "nothing moved");
}

/// The kubelet changes the CPU quota of the running container (KEP-1287): as many threads as the
/// quota can run at once are placed, and all threads once the quota is restored.
fn a_pod_is_resized(rig: &mut Rig) {
    let front = rig.front();
    let pod = rig.kubectl(&[
        "get",
        "pods",
        "-l",
        "albacore.dev/deployment=fraud",
        "-o",
        "name",
    ]);
    let resize = |cpus: u32| {
        let patch = format!(
            r#"{{"spec": {{"containers": [{{"name": "server", "resources": {{"limits": {{"cpu": "{cpus}"}}}}}}]}}}}"#
        );
        let subresource = ["--subresource=resize", "--patch", &patch];
        rig.kubectl(&[&["patch", pod.trim()], &subresource[..]].concat());
    };
    resize(2);
    rig.wait_until("one thread of each worker is placed", || {
        placed_within(rig, "1")
    });
    resize(4);
    rig.wait_until("all threads are placed", || placed_within(rig, ""));
    rig.wait_until("the old placement", || is_scattered(front).then_some(()));
    assert_eq!(rig.front(), front, "nothing was started again");
}

/// Returns when the report shows this number of threads per worker limited by the quota.
fn placed_within(rig: &Rig, threads: &str) -> Option<()> {
    let path = "/apis/albacore.dev/v1alpha1/nodeplacements";
    let nodes = rig.node.plane().list(path, "").unwrap();
    let pods = nodes
        .iter()
        .filter_map(|node| node["status"]["pods"].as_array());
    let limited = pods
        .flatten()
        .filter_map(|pod| pod["quotaThreads"].as_i64());
    let found: Vec<String> = limited.map(|threads| threads.to_string()).collect();
    (found.join(" ") == threads).then_some(())
}

/// Resources of the pod as a whole (KEP-2837): the quota is set on the cgroup of the pod instead of
/// on that of the container.
fn the_pod_has_a_limit(rig: &mut Rig) {
    let before = rig.front();
    let edit = |own: &str, pods: &str| {
        let patch = format!(
            r#"{{"spec": {{"resources": {{"limits": {own}}}, "template": {{"spec": {{"resources": {pods}}}}}}}}}"#
        );
        rig.kubectl(&["patch", "infd/fraud", "--type=merge", "--patch", &patch]);
    };
    edit("null", r#"{"limits": {"cpu": "2"}}"#);
    let other_front = |front: i32| {
        let label = "albacore.dev/deployment=fraud";
        let pods = rig.kubectl(&["get", "pods", "-l", label, "-o", "name"]);
        let is_alone = pods.lines().count() == 1;
        rig.find_front().filter(|found| is_alone && *found != front)
    };
    edit("null", r#"{"limits": {"cpu": "2"}}"#);
    let limited = rig.wait_until("another pod", || other_front(before));
    rig.wait_until("one thread of each worker is placed", || {
        placed_within(rig, "1")
    });
    edit(r#"{"cpu": "4"}"#, "null");
    let front = rig.wait_until("a third pod", || other_front(limited));
    rig.wait_until("all threads are placed", || placed_within(rig, ""));
    rig.wait_until("the old placement", || is_scattered(front).then_some(()));
}

/// The server gets the edit from albacore-params on its node, long before the kubelet updates its
/// ConfigMap.
fn batching_is_edited(rig: &mut Rig) {
    let front = rig.front();
    rig.wait_until("the stream of parameters", || {
        (rig.state("/params/connected")? == true).then_some(())
    });
    assert_eq!(rig.state("/batching/max_rows").unwrap(), 1024);
    let patch = r#"{"spec": {"batching": {"maxRows": 512}}}"#;
    rig.kubectl(&["patch", "infd/fraud", "--type=merge", "--patch", patch]);
    rig.wait_until("the new limit", || {
        (rig.state("/batching/max_rows")? == 512).then_some(())
    });
    let generation = rig.kubectl(&["get", "infd/fraud", "-o", "jsonpath={.metadata.generation}"]);
    assert_eq!(
        rig.state("/params/generation").unwrap().to_string(),
        generation
    );
    assert_eq!(rig.front(), front, "nothing was started again");
}

/// A crashed agent cannot give masks back, so all masks remain, and the restarted agent continues
/// from there.
fn the_agent_crashes(rig: &mut Rig) {
    let (agent, masks) = (rig.agent(), rig.masks());
    rig.kill(agent);
    rig.wait_until("another agent", || {
        rig.find_agent().filter(|&pid| pid != agent)
    });
    rig.wait_for_agent();
    assert_eq!(rig.masks(), masks, "it adopts what it finds");
}

/// The agent gives every mask back; the next agent computes the same plan.
fn the_agents_pod_is_deleted(rig: &mut Rig) {
    let (front, agent, masks) = (rig.front(), rig.agent(), rig.masks());
    rig.kubectl(&[
        "delete",
        "pods",
        "--namespace",
        AGENT,
        "--all",
        "--wait=false",
    ]);
    rig.wait_until("masks that are given back", || {
        let masks = kernel::masks(&kernel::workers(front));
        masks.values().all(|mask| mask == "0-1").then_some(())
    });
    rig.wait_until("another agent", || {
        rig.find_agent().filter(|&pid| pid != agent)
    });
    rig.wait_until("the same placement", || {
        (rig.masks() == masks).then_some(())
    });
}

/// The seccomp profile of the chart permits everything that the agent needs from the kernel.
fn a_profile_of_its_own(rig: &mut Rig) {
    let agent = rig.agent();
    rig.helm("upgrade", &["agent.seccomp=Localhost"]);
    rig.wait_until("another agent", || {
        rig.find_agent().filter(|&pid| pid != agent)
    });
    let path = "jsonpath={.items[0].spec.containers[0].securityContext.seccompProfile.type}";
    assert_eq!(
        rig.kubectl(&["get", "pods", "-n", AGENT, "-o", path]),
        "Localhost"
    );
    what_the_agent_may_do(rig);
    let front = rig.front();
    rig.wait_until("the placement", || is_scattered(front).then_some(()));
    a_worker_is_killed(rig);
    a_neighbor_comes_and_goes(rig);
    let rows = rig.ask_agent("dump").unwrap();
    let pods: serde_json::Value = serde_json::from_str(&rows).unwrap();
    let threads = pods[0]["threads"].as_array().unwrap();
    let front = pods[0]["front"].as_array().unwrap();
    assert_eq!(threads.len(), WORKERS * THREADS, "{rows}");
    let mut all = threads.iter().chain(front);
    assert!(all.all(|thread| thread["state"] == "verified"), "{rows}");
}

/// `albacore status` reads every thread from the agent; `albacore restore` disables the node, and
/// then it is enabled again.
fn threads_are_shown_and_released(rig: &mut Rig) {
    let front = rig.front();
    let shown = rig.albacore(&["status", "fraud", "--threads"]);
    let rows: Vec<&str> = shown
        .lines()
        .filter(|line| line.ends_with("verified"))
        .collect();
    let count = |begin: &str| {
        let is_one = |row: &&&str| row.trim_start_matches(['│', ' ']).starts_with(begin);
        rows.iter().filter(is_one).count()
    };
    let workers: usize = (0..WORKERS)
        .map(|worker| count(&format!("{worker}.")))
        .sum();
    assert_eq!(workers, WORKERS * THREADS, "{shown}");
    assert!(count("front ") > 0, "{shown}");
    let node = rig.kubectl(&["get", "nodes", "-o", "jsonpath={.items[0].metadata.name}"]);
    let said = rig.albacore(&["restore", "--node", &node]);
    assert!(said.contains("masks were restored"), "{said}");
    let masks = rig.masks();
    assert!(masks.values().all(|mask| mask == "0-1"), "{masks:?}");
    rig.kubectl(&["annotate", "node", &node, "albacore.dev/enforcement-"]);
    rig.wait_until("the placement", || is_scattered(front).then_some(()));
}

/// Its workers are forked by its arbiter, and their threads belong to OpenMP.
fn gunicorn_is_placed(rig: &mut Rig) {
    gunicorn::deploy(rig);
    let uid = rig
        .uid("default", "albacore.dev/deployment=gunicorn")
        .unwrap();
    let arbiter = kernel::find("gunicorn", &uid)
        .or_else(|| kernel::find("python3.11", &uid))
        .unwrap();
    let masks = kernel::masks(&kernel::children(arbiter));
    let pinned = masks.values().filter(|mask| !mask.contains('-')).count();
    assert!(pinned >= WORKERS * THREADS, "{masks:?}");
}

fn uninstall_leaves_no_mask(rig: &mut Rig) {
    let front = rig.front();
    rig.uninstall();
    let masks = rig.masks();
    assert_eq!(
        masks.len(),
        WORKERS * THREADS,
        "the server goes on: {masks:?}"
    );
    assert!(masks.values().all(|mask| mask == "0-1"), "{masks:?}");
    assert_eq!(rig.front(), front);
}
