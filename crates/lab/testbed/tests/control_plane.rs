//! The control plane itself: it starts, authenticates users, logs requests and survives a crash of
//! the API server.
#![allow(clippy::unwrap_used)] // tests fail by panicking

use albacore_testbed::{ControlPlane, Options};

fn stdout(plane: &ControlPlane, arguments: &[&str]) -> String {
    let output = plane.kubectl(arguments).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "kubectl {arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_control_plane_keeps_its_objects_over_a_crash_of_the_api_server() {
    let mut plane = ControlPlane::start(&Options {
        controller_manager: true,
        ..Options::default()
    })
    .unwrap();
    stdout(
        &plane,
        &["create", "configmap", "kept", "--from-literal=a=1"],
    );
    stdout(&plane, &["create", "deployment", "web", "--image=nothing"]);
    stdout(
        &plane,
        &["rollout", "status", "deployment/web", "--watch=false"],
    );
    plane.restart_api_server().unwrap();
    assert_eq!(
        stdout(
            &plane,
            &["get", "configmap", "kept", "-o", "jsonpath={.data.a}"]
        ),
        "1"
    );
    let kept = "/api/v1/namespaces/default/configmaps/kept";
    assert_eq!(plane.read(kept).unwrap()["data"]["a"], "1");
    let error = plane.read(&kept.replace("kept", "lost")).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.starts_with("404 "), "{cause}");
    let log = plane.audit_log().unwrap();
    let creates = log
        .lines()
        .filter(|line| line.contains(r#""verb":"create""#) && line.contains(r#""name":"kept""#));
    assert_eq!(creates.count(), 1, "one request, one line");
    let user = plane.kubeconfig_of("nobody", None).unwrap();
    let config = format!("--kubeconfig={}", user.display());
    let refused = plane.kubectl(&[&config, "get", "configmaps"]).unwrap();
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("nobody"),
        "a user without rights is named and refused"
    );
}
