//! Tests upgrades of the operator against a real API server: one deployment rolls at a time, edits
//! never wait, a restart of the controller loses no state, and pinned images are kept.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod rig;

use serde_json::{Value, json};

use rig::{Rig, deployment, wait};

const OLD: &str = "albacore-server:old";
const NEW: &str = "albacore-server:new";
const NAMES: [&str; 3] = ["a", "b", "c"];

/// The server image in a deployment's pod template.
fn image(rig: &Rig, name: &str) -> String {
    let found = rig.get("deployment", name).unwrap_or_default();
    let image = &found["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap_or_default().to_owned()
}

/// The deployments of `names` whose template has `image`.
fn with_image<'a>(rig: &Rig, names: &[&'a str], wanted: &str) -> Vec<&'a str> {
    let mut names = names.to_vec();
    names.retain(|name| image(rig, name) == wanted);
    names
}

/// Makes the pods of a deployment ready until all of them have its template.
#[track_caller]
fn finish(rig: &Rig, name: &str) {
    wait("its pods are available", || {
        rig.simulate_kubelet(name, &[]);
        let found = rig.get("deployment", name).unwrap();
        let status = &found["status"];
        status["observedGeneration"] == found["metadata"]["generation"]
            && status["updatedReplicas"] == 1
            && status["replicas"] == 1
            && status["availableReplicas"] == 1
    });
}

fn status(rig: &Rig, name: &str) -> Value {
    rig.get("infd", name).unwrap()["status"].take()
}

/// Three deployments of one pod each, all available with [`OLD`].
fn settled() -> Rig {
    let rig = Rig::start(true);
    let controller = rig.controller(&["--server-image", OLD]);
    rig.apply(&NAMES.map(|name| deployment(name, &json!({"replicas": 1}))));
    for name in NAMES {
        wait("there is a pod", || {
            rig.list("pods", &format!("albacore.dev/deployment={name}"))
                .len()
                == 1
        });
        finish(&rig, name);
        rig.wait_for(name, "Reconciling", "");
    }
    assert_eq!(status(&rig, "a")["serverImage"], OLD);
    assert_eq!(controller.stop().code(), Some(0));
    rig
}

#[test]
fn an_upgrade_rolls_one_deployment_at_a_time_and_edits_never_wait() {
    let rig = settled();
    let controller = rig.controller(&["--server-image", NEW]);
    wait("one begins, and the others say that they wait", || {
        let waiting = |name: &&&str| rig.condition_text(name, "UpgradePending") == "True/Waiting";
        with_image(&rig, &NAMES, NEW).len() == 1 && NAMES.iter().filter(waiting).count() == 2
    });
    let first = with_image(&rig, &NAMES, NEW)[0];
    let others: Vec<&str> = NAMES.into_iter().filter(|name| *name != first).collect();
    let (second, third) = (others[0], others[1]);
    // A waiting deployment is healthy: GitOps tools do not block on it, and a change of its number
    // of pods is applied.
    assert_eq!(rig.condition_text(second, "Reconciling"), "");
    assert_eq!(status(&rig, second)["serverImage"], OLD);
    let pending = status(&rig, second);
    let words = format!("image {NEW} waits until the pods of default/{first} are available");
    assert!(pending.to_string().contains(&words), "{pending}");
    rig.patch("infd", second, &json!({"spec": {"replicas": 2}}));
    wait("its pods are two", || {
        rig.get("deployment", second).unwrap()["spec"]["replicas"] == 2
    });
    rig.patch("infd", second, &json!({"spec": {"replicas": 1}}));
    wait("its pod is one", || {
        rig.get("deployment", second).unwrap()["spec"]["replicas"] == 1
    });
    assert_eq!(image(&rig, second), OLD);

    // An edit is applied immediately, with the new image.
    rig.patch("infd", third, &json!({"spec": {"threads": 3}}));
    wait("the edit is applied", || image(&rig, third) == NEW);
    assert_eq!(image(&rig, second), OLD);

    // A new controller continues the roll-out of the previous one.
    drop(controller);
    let controller = rig.controller(&["--server-image", NEW]);
    wait("it leads", || {
        controller.log().contains("this process is the leader")
    });
    finish(&rig, first);
    rig.wait_for(first, "Reconciling", "");
    assert_eq!(rig.condition_text(second, "UpgradePending"), "True/Waiting");
    assert_eq!(image(&rig, second), OLD, "{third} still rolls");
    finish(&rig, third);
    wait("the last one begins", || image(&rig, second) == NEW);
    finish(&rig, second);
    for name in NAMES {
        rig.wait_for(name, "UpgradePending", "");
        rig.wait_for(name, "Reconciling", "");
        assert_eq!(status(&rig, name)["serverImage"], NEW);
    }
}

#[test]
fn pins_hold_the_image_of_a_deployment_and_of_a_namespace() {
    let rig = settled();
    let annotate = |kind: &str, name: &str, image: &str| {
        let value = format!("albacore.dev/server-image={image}");
        rig.kubectl(&["annotate", "--overwrite", kind, name, &value]);
    };
    annotate("infd", "a", OLD);
    annotate("namespace", "default", "albacore-server:kept");
    let _controller = rig.controller(&["--server-image", NEW]);
    // The namespace's image differs from theirs: one starts to roll, and never the pinned one.
    wait("one of the namespace rolls to its image", || {
        with_image(&rig, &["b", "c"], "albacore-server:kept").len() == 1
    });
    let first = with_image(&rig, &["b", "c"], "albacore-server:kept")[0];
    finish(&rig, first);
    wait("so does the other", || {
        with_image(&rig, &["b", "c"], "albacore-server:kept").len() == 2
    });
    assert_eq!(image(&rig, "a"), OLD);
    ["b", "c"].into_iter().for_each(|name| finish(&rig, name));

    // A change of the pin is an edit; an invalid image is rejected by name.
    annotate("infd", "a", "albacore-server:other");
    wait("the pin is followed", || {
        image(&rig, "a") == "albacore-server:other"
    });
    annotate("infd", "a", "no image");
    rig.wait_for("a", "Stalled", "True/InvalidSpec");
    let said = status(&rig, "a").to_string();
    assert!(
        said.contains("metadata.annotations[albacore.dev/server-image] is"),
        "{said}"
    );
    assert_eq!(image(&rig, "a"), "albacore-server:other");
    // Without the namespace's annotation they use the operator's image again.
    rig.kubectl(&[
        "annotate",
        "namespace",
        "default",
        "albacore.dev/server-image-",
    ]);
    wait("one follows", || {
        with_image(&rig, &["b", "c"], NEW).len() == 1
    });
}

#[test]
fn an_installation_checks_itself() {
    let rig = Rig::start(false);
    let controller = rig.controller(&[]);
    wait("it leads", || {
        controller.http("/metrics").contains("albacore_leading 1\n")
    });
    let mut check = rig.launch(&["--check"]);
    assert_eq!(check.wait_for_exit().code(), Some(0), "{}", check.log());
    assert_eq!(controller.stop().code(), Some(0));
}
