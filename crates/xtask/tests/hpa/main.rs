//! A real `HorizontalPodAutoscaler` scales a real release by the servers' own metric: kubelet,
//! kube-controller-manager and aggregator are those of Kubernetes, the pods are Albacore's, and the
//! adapter between them is [`adapter`]. The manifests are those of
//! `manifests/examples/autoscaling`, except for the size of the deployment, the limits and the
//! windows. Each pod may use a fifth of a CPU, so that four of them fit on two CPUs, and the load
//! is a multiple of the measured capacity of one pod.
// Takes six minutes: run by `make hpa` and `make e2e`, optimized.
#![cfg(not(debug_assertions))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail loudly"
)]

mod adapter;
#[path = "../node/kernel.rs"]
#[allow(dead_code, reason = "the rig knows it")]
mod kernel;
mod manifests;
#[path = "../node/rig.rs"]
#[allow(dead_code, reason = "some of it is for the test of the node")]
mod rig;
mod timeline;
mod traffic;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adapter::Adapter;
use albacore_testbed::NodeOptions;
use rig::Rig;
use timeline::Timeline;
use traffic::Traffic;

/// The load of the peak and the load after it, as multiples of the capacity of one pod.
const PEAK: f64 = 1.8;
const AFTER: f64 = 0.25;

/// Duration of the peak. Two windows of the servers, which are one minute long: the first window
/// contains requests from before the pods started.
const PEAK_TIME: Duration = Duration::from_secs(120);

/// Duration of the load after the peak: bad requests drop out of the servers' window, larger
/// recommendations out of the HPA's window, and on a busy machine the pods exist for a while
/// longer.
const AFTER_TIME: Duration = Duration::from_secs(180);

#[test]
fn an_hpa_scales_by_the_load_factor() {
    let mut rig = Rig::start_with(NodeOptions {
        manager: vec![format!(
            "--horizontal-pod-autoscaler-sync-period={}s",
            timeline::SYNC_PERIOD.as_secs()
        )],
        // The rest of two CPUs is for pods: four servers and the release.
        reserved_cpu: "100m".into(),
        ..NodeOptions::default()
    });
    rig.step("images", Rig::import_images);
    rig.step("helm install", |rig| rig.helm("install", &[]));
    rig.step("a deployment without replicas", |rig| {
        manifests::deploy(rig);
        assert_eq!(
            manifests::scale(rig),
            (1, "albacore.dev/deployment=fraud".into())
        );
    });
    let traffic = Traffic::measure(&rig);
    let adapter = Adapter::listen(&rig.node, manifests::ADAPTER_HOST);
    let is_over = AtomicBool::new(false);
    let scaled = std::thread::scope(|scope| {
        scope.spawn(|| adapter.run(&is_over));
        let scaled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            manifests::register(&rig, adapter.port());
            manifests::autoscale(&rig);
            scales(&rig, &adapter, &traffic);
        }));
        // Set in any case, because the scope waits for the adapter.
        is_over.store(true, Ordering::Relaxed);
        scaled
    });
    if let Err(panic) = scaled {
        rig.print_state();
        std::panic::resume_unwind(panic);
    }
}

fn scales(rig: &Rig, adapter: &Adapter<'_>, traffic: &Traffic) {
    let load = [(PEAK, PEAK_TIME), (AFTER, AFTER_TIME)];
    let (samples, timeline) = std::thread::scope(|scope| {
        let sending = scope.spawn(|| traffic.send(rig, &load));
        let timeline = Timeline::watch(rig, || sending.is_finished());
        (sending.join().unwrap(), timeline)
    });
    let outcomes = Traffic::report(&samples, &load);
    println!(
        "{}\n{}",
        timeline.table(&adapter.answers()),
        outcomes.table()
    );
    timeline.assert_grows_and_shrinks(PEAK_TIME);
    timeline.assert_within_advice(&adapter.answers());
    outcomes.assert_none_lost();
}
