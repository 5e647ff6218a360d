//! Tests that pods that the load does not need become spare, with real servers and with the
//! Kubernetes controllers that create and delete pods.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod rig;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use rig::server::{Pod, model, root, settings};
use rig::{Rig, deployment, wait, wait_or};

const ADDRESSES: [&str; 4] = ["127.77.6.1", "127.77.6.2", "127.77.6.3", "127.77.6.4"];

/// Connections that send more concurrent requests than a queue holds.
const CLIENTS: usize = 24;

type Names = BTreeSet<String>;

/// The pods whose label has this value; all pods if it is empty.
fn pods(rig: &Rig, traffic: &str) -> Names {
    let label = match traffic {
        "" => "albacore.dev/traffic".to_owned(),
        value => format!("albacore.dev/traffic={value}"),
    };
    names(&rig.list("pods", &format!("albacore.dev/deployment=idle,{label}")))
}

/// The pods that the Service selects.
fn served(rig: &Rig) -> Names {
    let service = rig.get("service", "idle").unwrap();
    let labels = service["spec"]["selector"].as_object().unwrap().clone();
    let label = |(name, value): (String, Value)| format!("{name}={}", value.as_str().unwrap());
    let labels: Vec<String> = labels.into_iter().map(label).collect();
    names(&rig.list("pods", &labels.join(",")))
}

fn names(pods: &[Value]) -> Names {
    let name = |pod: &Value| pod["metadata"]["name"].as_str().unwrap().to_owned();
    pods.iter().map(name).collect()
}

#[track_caller]
fn wait_for_traffic(rig: &Rig, wanted: &str) {
    let status = || rig.get("infd", "idle").unwrap()["status"].clone();
    wait_or(
        || status()["traffic"]["serving"].as_str().unwrap_or_default() == wanted,
        || format!("not {wanted}: {:#}", status()),
    );
    assert_eq!(served(rig), pods(rig, "serving"));
}

fn costs(rig: &Rig) -> Vec<(String, Value)> {
    let pods = rig.list("pods", "albacore.dev/deployment=idle");
    let cost = |pod: &Value| {
        let cost = &pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"];
        let traffic = &pod["metadata"]["labels"]["albacore.dev/traffic"];
        (traffic.as_str().unwrap().to_owned(), cost.clone())
    };
    pods.iter().map(cost).collect()
}

/// Sends more concurrent requests than the queue of a server holds; the excess is rejected.
fn overload(server: &Pod) {
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| server.predict_interactions());
        }
    });
}

/// Creates a deployment of four pods with running servers that report their state.
fn serve(rig: &Rig) -> Vec<Pod> {
    let binary = albacore_testbed::product("albacore-server").unwrap();
    let spec = json!({"replicas": 4, "threads": 1, "queue": {"maxRows": 4},
        "models": model(&root().join("examples/fraud.ubj"), "10s"),
        "batching": {"prefer": "IdleWorkers", "window": "20ms", "maxRows": 4}});
    rig.apply(&[deployment("idle", &spec)]);
    wait("there are pods", || pods(rig, "serving").len() == 4);
    let text = settings(rig, "idle");
    let servers = ADDRESSES.map(|address| Pod::start(&binary, address, &text));
    wait("all serve", || {
        servers.iter().all(|pod| pod.predict().contains(" 200 "))
    });
    rig.simulate_kubelet("idle", &ADDRESSES);
    servers.into()
}

#[test]
fn load_concentrates_a_scale_down_takes_an_idle_pod_and_more_load_brings_pods_back() {
    let rig = Rig::start(true);
    let _controller = rig.controller(&["--consolidate-after", "3"]);
    let servers = serve(&rig);
    wait_for_traffic(&rig, "2/4");
    let (serving, spare) = (pods(&rig, "serving"), pods(&rig, "spare"));
    assert_eq!((serving.len(), spare.len()), (2, 2));
    for (traffic, cost) in costs(&rig) {
        let wanted = if traffic == "spare" {
            json!("-1")
        } else {
            Value::Null
        };
        assert_eq!(cost, wanted, "{traffic}");
    }
    // In the settled state nothing is written, however long it lasts.
    rig.wait_for("idle", "Reconciling", "");
    let before = rig.writes();
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(rig.writes(), before);

    // Scales down like an autoscaler. The Deployment controller deletes a spare pod, not a serving
    // one.
    rig.kubectl(&["scale", "infd", "idle", "--replicas=3"]);
    wait("a pod is deleted", || pods(&rig, "").len() == 3);
    wait_for_traffic(&rig, "2/3");
    assert_eq!(pods(&rig, "serving"), serving);
    assert!(pods(&rig, "spare").is_subset(&spare));

    // More load than the serving pods can handle.
    wait("all get requests again", || {
        servers.iter().for_each(overload);
        pods(&rig, "spare").is_empty()
    });
    wait_for_traffic(&rig, "3/3");
    assert!(costs(&rig).iter().all(|(_, cost)| cost.is_null()));
    wait("events tell it", || {
        let events = rig.kubectl(&["get", "events", "-o", "json"]);
        let notes = [
            "2/4: fewer are enough",
            "3/3: requests were late, shed or failed",
        ];
        notes.iter().all(|note| events.contains(note))
    });

    let selector = || rig.get("service", "idle").unwrap()["spec"]["selector"].clone();
    assert_eq!(selector()["albacore.dev/traffic"], "serving");
    let template = || rig.get("deployment", "idle").unwrap()["spec"]["template"].clone();
    let (generation, edit) = (template(), json!({"spec": {"batching": {"prefer": null}}}));
    rig.patch("infd", "idle", &edit);
    wait("the Service takes every pod", || {
        selector()["albacore.dev/traffic"].is_null()
    });
    assert_eq!(template(), generation, "no pod is restarted");
    wait("nothing is said of it", || {
        rig.get("infd", "idle").unwrap()["status"]["traffic"].is_null()
    });
}
