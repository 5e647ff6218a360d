//! Computes the number of replicas to request.

use albacore_api::InferenceDeploymentSpec;
use albacore_batching::{Advice, Nanos, ReplicaBounds};

use crate::model_outcomes::load_of;
use crate::observed::{ObservedPod, Workload};
use crate::record::DeploymentRecord;

/// A change of the number of replicas by the autoscaler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scaling {
    pub(crate) from: i32,
    pub(crate) to: i32,
    pub(crate) advice: Advice,
}

/// The number of replicas to request at `now`; `None` leaves the field to other managers (an
/// autoscaler, `kubectl scale`). With `spec.autoscaling`, Albacore's autoscaler decides, starting
/// from `spec.replicas`; it adds no pods while spare pods can take up the growing load.
pub(crate) fn replicas(
    spec: &InferenceDeploymentSpec,
    pods: &[ObservedPod],
    workload: Option<&Workload>,
    record: &mut DeploymentRecord,
    now: Nanos,
) -> (Option<i32>, Option<Scaling>) {
    let Some(scaling) = spec.autoscaling else {
        record.replicas = None;
        return (spec.replicas, None);
    };
    let count = |n: i32| u32::try_from(n).unwrap_or_default();
    let mut bounds = ReplicaBounds {
        min: count(scaling.min_replicas),
        max: count(scaling.max_replicas),
    };
    // The last decision, because the cached object may be older.
    let current = record
        .replicas
        .or(workload.map(|workload| workload.desired))
        .or(spec.replicas)
        .unwrap_or(scaling.min_replicas);
    if record.traffic.can_absorb_load(pods, now) {
        // Scaling down is still allowed.
        bounds.max = bounds.max.min(count(current)).max(bounds.min);
    }
    let load = load_of(spec, pods.iter());
    let advice = record
        .autoscaler
        .advise(now, &bounds, count(current), &load.worst());
    let desired = i32::try_from(advice.replicas).unwrap_or(i32::MAX);
    record.replicas = Some(desired);
    let change = (desired != current && workload.is_some()).then_some(Scaling {
        from: current,
        to: desired,
        advice,
    });
    (Some(desired), change)
}
