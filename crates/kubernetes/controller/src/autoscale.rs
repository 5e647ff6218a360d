//! How many pods are asked for.

use albacore_api::InferenceDeploymentSpec;
use albacore_batching::{Advice, Nanos, ReplicaBounds};

use crate::memory::Memory;
use crate::observed::{PodSeen, Workload};
use crate::status::load_of;

/// A number of pods that the rule changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scaling {
    pub(crate) from: i32,
    pub(crate) to: i32,
    pub(crate) advice: Advice,
}

/// The number of pods to ask for at `now`; `None` to leave it to others. Under `spec.autoscaling`
/// the rule decides, and `spec.replicas` is the number to start with.
pub(crate) fn replicas(
    spec: &InferenceDeploymentSpec,
    pods: &[PodSeen],
    workload: Option<&Workload>,
    memory: &mut Memory,
    now: Nanos,
) -> (Option<i32>, Option<Scaling>) {
    let Some(scaling) = spec.autoscaling else {
        memory.replicas = None;
        return (spec.replicas, None);
    };
    let count = |n: i32| u32::try_from(n).unwrap_or_default();
    let bounds = ReplicaBounds {
        min: count(scaling.min_replicas),
        max: count(scaling.max_replicas),
    };
    // What was decided last and not what the watch shows: that may be older.
    let current = memory
        .replicas
        .or(workload.map(|workload| workload.wanted))
        .or(spec.replicas)
        .unwrap_or(scaling.min_replicas);
    let load = load_of(spec, pods);
    let advice = memory
        .autoscaler
        .advise(now, &bounds, count(current), &load);
    let wanted = i32::try_from(advice.replicas).unwrap_or(i32::MAX);
    memory.replicas = Some(wanted);
    let change = (wanted != current && workload.is_some()).then_some(Scaling {
        from: current,
        to: wanted,
        advice,
    });
    (Some(wanted), change)
}
