//! The release on a node on the emulated machine: a real kubelet, containerd and runc on cgroup v2
//! and Linux 6.1, with the control plane on the local machine. Assertions on masks use the data of
//! the guest's kernel, not the agent's.

use albacore_testbed::{Machine, PodMasks};
use serde_json::Value;

use crate::resized;
use crate::rig::{AGENT, Rig};
use crate::threads::{Cpus, Watch, gaps, list, read_masks};

/// A Guaranteed pod with a whole package, which the static CPU manager takes away from the other
/// pods.
const NEIGHBOR: &str = include_str!("neighbor.yaml");

type Step = fn(&Rig, &Cpus);

/// Runs all steps. They take minutes, because the emulated machine is slow.
pub(crate) fn run_steps() {
    let mut rig = Rig::start_on(Machine::Emulated);
    let cpus = Cpus::read(&rig.node);
    rig.step("the machine", |rig| is_another_machine(rig, &cpus));
    rig.step("images", Rig::import_images);
    rig.step("helm install", |rig| rig.helm("install", &[]));
    let steps: [(&str, Step); 12] = [
        ("ready and placed", ready_and_placed),
        ("NodePlacement says the same", the_api_says_the_same),
        ("paths are relative to the reader", paths_are_relative),
        (
            "a neighbor with four cpus of its own",
            a_neighbor_comes_and_goes,
        ),
        (
            "a resize in the shared cpus",
            resized::a_quota_in_the_shared_cpus,
        ),
        (
            "a resize of exclusive cpus",
            resized::exclusive_cpus_keep_their_size,
        ),
        ("a worker is killed", a_worker_is_killed),
        ("a cpu goes and comes back", a_cpu_goes_and_comes_back),
        ("enforcement is edited", enforcement_is_edited),
        ("the chart's Observe", an_agent_that_only_observes),
        ("the agent's pod is deleted", the_agents_pod_is_deleted),
        ("helm uninstall", uninstall_leaves_no_mask),
    ];
    for (what, step) in steps {
        rig.step(what, |rig| step(rig, &cpus));
    }
}

fn is_another_machine(rig: &Rig, cpus: &Cpus) {
    let read = |path: &str| rig.node.read(path).unwrap();
    let kernel = read("/proc/sys/kernel/osrelease");
    assert!(kernel.starts_with("6.1."), "{kernel}");
    assert!(read("/sys/fs/cgroup/cgroup.controllers").contains("cpuset"));
    assert_eq!(read("/sys/devices/system/node/online").trim(), "0-1");
    assert_eq!((cpus.cores(), cpus.packages()), (4, 2));
}

/// The uid of the server's pod, which its cgroup names contain.
pub(crate) fn uid(rig: &Rig) -> String {
    rig.uid("default", "albacore.dev/deployment=fraud").unwrap()
}

/// Waits until the kernel reports all threads as placed within these CPUs; returns the masks.
#[track_caller]
pub(crate) fn wait_until_placed(rig: &Rig, cpus: &Cpus, cpuset: &str) -> PodMasks {
    let uid = uid(rig);
    rig.wait_until(&format!("placed within {cpuset}"), || {
        let seen = read_masks(&rig.node, &uid);
        (seen.cpuset == cpuset && cpus.is_placed(&seen)).then_some(seen)
    })
}

fn ready_and_placed(rig: &Rig, cpus: &Cpus) {
    rig.apply_fraud();
    for condition in ["Ready", "Placed"] {
        let condition = format!("--for=condition={condition}");
        rig.kubectl(&["wait", "infd/fraud", &condition, "--timeout=300s"]);
    }
    let seen = read_masks(&rig.node, &uid(rig));
    assert!(cpus.is_placed(&seen) && cpus.is_spread(&seen), "{seen:?}");
    assert_eq!(seen.cpuset, "0-7");
    println!("{:?}", seen.masks);
    let answer = rig.predict();
    assert!(answer.contains("\"outputs\""), "{answer}");
}

pub(crate) fn json(rig: &Rig, words: &[&str]) -> Value {
    serde_json::from_str(&rig.kubectl(words)).unwrap()
}

/// The status of the node's NodePlacement, and the pod's entry in it.
pub(crate) fn placement(rig: &Rig) -> (Value, Value) {
    let name = rig.node.name();
    let status = json(rig, &["get", "nodeplacement", name, "-o", "json"])["status"].take();
    let pods = status["pods"].as_array().into_iter().flatten();
    let mut pods = pods.filter(|pod| pod["pod"].as_str().unwrap().starts_with("default/fraud-"));
    let pod = pods.next().cloned().unwrap_or_default();
    (status, pod)
}

/// Compares counts, CPUs and hashes of the NodePlacement, and every thread in the agent's dump,
/// with the kernel.
fn the_api_says_the_same(rig: &Rig, _: &Cpus) {
    let dump: Value = serde_json::from_str(&rig.ask_agent("dump").unwrap()).unwrap();
    let seen = read_masks(&rig.node, &uid(rig));
    let threads = dump[0]["threads"].as_array().unwrap();
    assert_eq!(threads.len(), seen.masks.len(), "{dump}");
    for thread in threads {
        let name = format!("albw{}.{}", thread["worker"], thread["rank"]);
        let (tid, mask) = &seen.masks[&name];
        assert_eq!(thread["tid"], *tid, "{thread}");
        assert_eq!(
            (&thread["mask"], &thread["planned"]),
            (&Value::from(mask.as_str()), &thread["mask"])
        );
        assert_eq!(thread["state"], "verified");
    }
    rig.wait_until("the NodePlacement", || {
        let (status, pod) = placement(rig);
        let is_so = pod["planned"] == 4
            && pod["verified"] == 4
            && pod["workersVerified"] == 2
            && pod["cpuset"] == seen.cpuset.as_str()
            && pod["plan"] == dump[0]["plan"]
            && status["topology"] == dump[0]["topology"];
        is_so.then_some(())
    });
    let (status, _) = placement(rig);
    assert_eq!(condition(&status, "Enforcing"), "True", "{status}");
    assert_eq!(condition(&status, "Degraded"), "", "{status}");
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a str {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|c| c["type"] == kind);
    found.map_or("", |found| found["status"].as_str().unwrap())
}

/// In the agent's cgroup namespace, a worker's cgroup path begins with `/..`: the container is
/// found nevertheless.
fn paths_are_relative(rig: &Rig, _: &Cpus) {
    let agent = rig.node.exec(&["pidof", "albacore-agent"]).unwrap();
    let agent = String::from_utf8(agent.stdout).unwrap();
    let (worker, _) = read_masks(&rig.node, &uid(rig)).masks["albw0.0"];
    let words = ["nsenter", "--target", agent.trim(), "--cgroup", "cat"];
    let output = rig
        .node
        .exec(&[&words[..], &[&format!("/proc/{worker}/cgroup")]].concat());
    let path = String::from_utf8(output.unwrap().stdout).unwrap();
    println!("the agent reads {}", path.trim());
    assert!(path.starts_with("0::/../"), "{path}");
    assert!(path.contains(&uid(rig)), "{path}");
}

/// The kubelet takes four CPUs from the other pods and gives them back; this kernel loses all pins
/// each time.
fn a_neighbor_comes_and_goes(rig: &Rig, cpus: &Cpus) {
    let before = placement(rig).1;
    let watch = Watch::begin(&rig.node, &uid(rig));
    rig.apply("neighbor", NEIGHBOR);
    wait_until_placed(rig, cpus, "0-3");
    rig.kubectl(&[
        "wait",
        "pod/neighbor",
        "--for=condition=Ready",
        "--timeout=300s",
    ]);
    rig.kubectl(&["delete", "pod/neighbor", "--wait", "--timeout=300s"]);
    wait_until_placed(rig, cpus, "0-7");
    let seen = watch.end();
    let gaps = gaps(cpus, &seen);
    for gap in &gaps {
        println!("not placed for {} ms, with masks {:?}", gap.ms, gap.masks);
    }
    // If four pins become the whole cpuset at once, only the kernel can have caused it.
    let is_lost = |cpuset: &str| {
        let is_whole = |one: &PodMasks| one.masks.values().all(|(_, mask)| mask == cpuset);
        seen.iter().any(is_whole)
    };
    assert!(is_lost("0-7"), "this kernel forgets pins: {seen:?}");
    let count = |pod: &Value| pod["drift"]["count"].as_i64().unwrap_or(0);
    rig.wait_until("reported in the NodePlacement", || {
        let (_, pod) = placement(rig);
        let is_reported =
            count(&pod) >= count(&before) + 4 && pod["drift"]["cause"] == "CpusetChange";
        (is_reported && pod["verified"] == 4 && pod["cpuset"] == "0-7").then_some(())
    });
    rig.wait_until("reported as events", || {
        let events = json(rig, &["get", "events", "-o", "json"]);
        let events = events["items"].as_array().unwrap();
        let is_reported = |reason: &str| events.iter().any(|event| event["reason"] == reason);
        (is_reported("PlacementDrifted") && is_reported("MaskWidened")).then_some(())
    });
    let (status, _) = placement(rig);
    assert_ne!(condition(&status, "MasksRemembered"), "True", "{status}");
}

fn a_worker_is_killed(rig: &Rig, cpus: &Cpus) {
    let uid = uid(rig);
    let before = read_masks(&rig.node, &uid);
    let (victim, _) = before.masks["albw1.0"];
    rig.node
        .exec(&["kill", "-KILL", &victim.to_string()])
        .unwrap();
    rig.wait_until("another worker, placed", || {
        let seen = read_masks(&rig.node, &uid);
        let is_new = seen
            .masks
            .get("albw1.0")
            .is_some_and(|(tid, _)| *tid != victim);
        (is_new && cpus.is_placed(&seen)).then_some(())
    });
}

fn a_cpu_goes_and_comes_back(rig: &Rig, cpus: &Cpus) {
    let before = read_masks(&rig.node, &uid(rig));
    let (_, victim) = before.masks.values().find(|(_, mask)| mask != "0").unwrap();
    let (topology, drifts) = {
        let (status, _) = placement(rig);
        (
            status["topology"].clone(),
            status["drifts"].as_i64().unwrap(),
        )
    };
    let switch = |word: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{victim}/online");
        let mut tee = rig.node.begin(&["tee", &path]).unwrap();
        tee.feed(&mut word.as_bytes()).unwrap();
        assert!(tee.end().unwrap().status.success());
    };
    let watch = Watch::begin(&rig.node, &uid(rig));
    switch("0");
    let mut left = list("0-7");
    left.remove(&victim.parse().unwrap());
    rig.wait_until(&format!("placed without cpu {victim}"), || {
        let seen = read_masks(&rig.node, &uid(rig));
        (list(&seen.cpuset) == left && cpus.is_placed(&seen)).then_some(())
    });
    rig.wait_until("reported in the NodePlacement", || {
        let (status, pod) = placement(rig);
        let is_reported =
            status["topology"] != topology && status["drifts"].as_i64().unwrap() > drifts;
        (is_reported && pod["verified"] == 4 && list(pod["cpuset"].as_str().unwrap()) == left)
            .then_some(())
    });
    switch("1");
    wait_until_placed(rig, cpus, "0-7");
    for gap in gaps(cpus, &watch.end()) {
        println!("not placed for {} ms, with masks {:?}", gap.ms, gap.masks);
    }
    rig.wait_until("reported in the NodePlacement", || {
        let (status, pod) = placement(rig);
        (status["topology"] == topology && pod["verified"] == 4).then_some(())
    });
}

/// Waits until all threads may run on all CPUs, and the agent reports that it observes and plans
/// them.
fn wait_until_observed(rig: &Rig) {
    let uid = uid(rig);
    let is_free = || {
        let masks = read_masks(&rig.node, &uid).masks;
        masks.len() == 4 && masks.values().all(|(_, mask)| mask == "0-7")
    };
    rig.wait_until("masks that are given back", || is_free().then_some(()));
    rig.wait_until("an observer that sees all workers", || {
        let (_, pod) = placement(rig);
        let is_seen = pod["observed"] == true
            && pod["workers"] == 2
            && pod["planned"] == 4
            && pod["reason"].is_null();
        is_seen.then_some(())
    });
    assert!(is_free(), "it writes nothing");
}

fn enforcement_is_edited(rig: &Rig, cpus: &Cpus) {
    let enforce = |how: &str| {
        let patch = format!(r#"{{"spec": {{"placement": {{"enforcement": "{how}"}}}}}}"#);
        rig.kubectl(&["patch", "infd/fraud", "--type=merge", "--patch", &patch]);
    };
    enforce("Observe");
    wait_until_observed(rig);
    enforce("Enforce");
    wait_until_placed(rig, cpus, "0-7");
}

/// Without the host's pid namespace: this kernel lists processes outside the namespace as 0.
fn an_agent_that_only_observes(rig: &Rig, cpus: &Cpus) {
    rig.helm("upgrade", &["agent.enforcement=Observe"]);
    wait_until_observed(rig);
    let dump = rig.ask_agent("dump").unwrap();
    // the masks of the workers and of the fronts
    let threads = dump.matches("\"mask\": ").count();
    assert!(threads >= 4, "{dump}");
    let free = dump.matches("\"mask\": \"0-7\"").count();
    assert_eq!(free, threads, "{dump}");
    rig.helm("upgrade", &[]);
    wait_until_placed(rig, cpus, "0-7");
}

/// The agent gives every mask back; the next agent places again.
fn the_agents_pod_is_deleted(rig: &Rig, cpus: &Cpus) {
    let watch = Watch::begin(&rig.node, &uid(rig));
    let uid = rig.uid(AGENT, "app.kubernetes.io/component=agent");
    rig.kubectl(&[
        "delete",
        "pods",
        "--namespace",
        AGENT,
        "--all",
        "--wait",
        "--timeout=300s",
    ]);
    rig.wait_until("another agent", || {
        let other = rig.uid(AGENT, "app.kubernetes.io/component=agent");
        (other.is_some() && other != uid).then_some(())
    });
    rig.wait_for_agent();
    wait_until_placed(rig, cpus, "0-7");
    let seen = watch.end();
    let is_given_back = |one: &PodMasks| one.masks.values().all(|(_, mask)| mask == "0-7");
    assert!(seen.iter().any(is_given_back), "{seen:?}");
}

fn uninstall_leaves_no_mask(rig: &Rig, _: &Cpus) {
    rig.uninstall();
    let seen = read_masks(&rig.node, &uid(rig));
    assert_eq!(seen.masks.len(), 4, "the server goes on: {seen:?}");
    assert!(
        seen.masks.values().all(|(_, mask)| mask == "0-7"),
        "{seen:?}"
    );
}
