//! A release on a real node: kubelet, containerd and kube-proxy beside the API server (`albacore_testbed::Node`), the
//! programs of this workspace in images, the chart as users install it. One node, one test: each step stands on those
//! before it, and says how long it took.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod rig;

use rig::Rig;

#[test]
fn a_release_lives_on_a_node() {
    let mut rig = Rig::start();
    rig.step("images", Rig::import_images);
    rig.step("helm install", |rig| rig.install(&[]));
    rig.step("deployment", |rig| {
        rig.apply_fraud();
        rig.kubectl(&[
            "wait",
            "infd/fraud",
            "--for=condition=Ready",
            "--timeout=120s",
        ]);
    });
    rig.step("prediction", |rig| {
        let answer = rig.predict();
        assert!(answer.contains("\"outputs\""), "{answer}");
    });
    rig.step("helm uninstall", |rig| {
        rig.kubectl(&["delete", "infd/fraud", "--wait", "--timeout=60s"]);
        rig.uninstall();
    });
}
