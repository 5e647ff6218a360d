//! Tests of which pods opt in, and of which of their containers is placed.

use serde_json::{Value, json};

use super::*;

fn pod_with(change: impl FnOnce(&mut Value)) -> Option<OptedInPod> {
    let status = |name: &str, id: &str| {
        json!({"name": name, "containerID": format!("containerd://{id}"), "state": {"running": {}},
            "image": "", "imageID": "", "ready": true, "restartCount": 0})
    };
    let mut pod = json!({
        "metadata": {"name": "a-1", "namespace": "x", "uid": "u-1",
            "labels": {"albacore.dev/deployment": "a"}},
        "spec": {"containers": [{"name": "proxy"}, {"name": "server"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "containerStatuses": [status("proxy", "p"), status("server", "c1")]}});
    change(&mut pod);
    let mut pod: Pod = serde_json::from_value(pod).unwrap();
    trim_pod(&mut pod);
    OptedInPod::of(&pod, true)
}

/// A pod without the label, with this annotation.
fn annotated(text: &str, change: impl FnOnce(&mut Value)) -> OptedInPod {
    let pod = pod_with(|pod| {
        pod["metadata"]["labels"] = json!({});
        pod["metadata"]["annotations"] = json!({"albacore.dev/place": text});
        change(pod);
    });
    pod.unwrap()
}

fn name(pod: &OptedInPod) -> &str {
    match &pod.container {
        PlacedContainer::Running { name, .. } | PlacedContainer::NotRunning { name } => name,
        PlacedContainer::Missing { reason } => reason,
    }
}

#[test]
fn only_the_container_named_server_of_a_deployment_is_placed() {
    let pod = pod_with(|_| {}).unwrap();
    let running = PlacedContainer::Running {
        name: "server".to_owned(),
        id: "c1".to_owned(),
    };
    assert_eq!(pod.container, running);
    assert_eq!(pod.addresses, ["10.0.0.1", "fd00::1"]);
    assert_eq!(pod.key, ObjectKey::new("x", "a-1"));
    let not_running = PlacedContainer::NotRunning {
        name: "server".to_owned(),
    };
    let waiting = pod_with(|pod| {
        pod["status"]["containerStatuses"][1]["state"] = json!({"waiting": {}});
    });
    assert_eq!(waiting.unwrap().container, not_running);
    let absent = pod_with(|pod| pod["spec"]["containers"][1]["name"] = json!("other"));
    let absent = absent.unwrap();
    assert_eq!(
        name(&absent),
        "the pod has no container named server, only proxy, other"
    );
    // An init container of that name is in its own list and is not the server.
    let init = pod_with(|pod| {
        let list = pod["status"]["containerStatuses"].take();
        pod["status"]["initContainerStatuses"] = list;
    });
    assert_eq!(init.unwrap().container, not_running);
}

#[test]
fn pods_of_the_kubelet_are_static_and_pods_that_did_not_opt_in_are_ignored() {
    assert!(pod_with(|pod| pod["metadata"]["labels"] = json!({"app": "a"})).is_none());
    assert!(!pod_with(|_| {}).unwrap().is_static);
    for annotations in [
        json!({"kubernetes.io/config.mirror": "0123"}),
        json!({"kubernetes.io/config.source": "file"}),
    ] {
        let pod = pod_with(|pod| pod["metadata"]["annotations"] = annotations);
        assert!(pod.unwrap().is_static);
    }
    let api = json!({"kubernetes.io/config.source": "api"});
    let pod = pod_with(|pod| pod["metadata"]["annotations"] = api);
    assert!(!pod.unwrap().is_static);
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "n"}]);
    let pod = pod_with(|pod| pod["metadata"]["ownerReferences"] = owner);
    assert!(pod.unwrap().is_static);
    let over = pod_with(|pod| pod["status"]["phase"] = json!("Failed"));
    assert!(over.unwrap().has_ended);
}

#[test]
fn an_annotation_opts_in_unless_annotations_are_ignored() {
    let pod = annotated("{}", |_| {});
    assert!(matches!(
        pod.opt_in,
        OptIn::Annotation {
            annotation: Ok(_),
            ..
        }
    ));
    let wrong = annotated("4", |_| {});
    assert!(matches!(
        wrong.opt_in,
        OptIn::Annotation {
            annotation: Err(_),
            ..
        }
    ));
    let both = pod_with(|pod| {
        pod["metadata"]["annotations"] = json!({"albacore.dev/place": "{}"});
    });
    let both = both.unwrap();
    assert_eq!(both.opt_in.deployment(), Some("a"));
    let mut pod = Pod::default();
    pod.metadata.uid = Some("u".to_owned());
    let annotation = (PLACE_ANNOTATION.to_owned(), "{}".to_owned());
    pod.metadata.annotations = Some([annotation].into());
    assert!(OptedInPod::of(&pod, true).is_some());
    assert!(OptedInPod::of(&pod, false).is_none(), "agent.optIn is off");
}

#[test]
fn the_container_is_the_named_one_the_default_or_the_only_one() {
    let named = annotated(r#"{"container": "server"}"#, |_| {});
    assert_eq!(name(&named), "server");
    let default = annotated("{}", |pod| {
        pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = json!("proxy");
    });
    assert_eq!(name(&default), "proxy");
    let only = annotated("{}", |pod| {
        pod["spec"]["containers"] = json!([{"name": "server"}])
    });
    assert_eq!(name(&only), "server");
    let several = annotated("{}", |_| {});
    let says = name(&several);
    assert!(says.contains("proxy, server") && says.contains("'{\"container\": \"proxy\"}'"));
    let wrong = annotated(r#"{"container": "app"}"#, |_| {});
    assert!(name(&wrong).contains("no container named app"));
}

#[test]
fn the_threads_of_openmp_are_read_from_the_container_alone() {
    let threads = |server: Value, proxy: Value| {
        let pod = annotated(r#"{"container": "server"}"#, |pod| {
            pod["spec"]["containers"] = json!([
                {"name": "proxy", "env": proxy}, {"name": "server", "env": server}]);
        });
        match pod.opt_in {
            OptIn::Annotation { omp_threads, .. } => omp_threads,
            OptIn::Deployment { .. } => None,
        }
    };
    let value = |text: &str| json!([{"name": "X"}, {"name": "OMP_NUM_THREADS", "value": text}]);
    assert_eq!(threads(value("4"), json!([])), Some(4));
    assert_eq!(threads(value(" 4,2"), json!([])), Some(4));
    assert_eq!(threads(json!([]), value("4")), None);
    for text in ["", "0", "-1", "many", "257", "99999999999"] {
        assert_eq!(threads(value(text), json!([])), None, "{text}");
    }
}
