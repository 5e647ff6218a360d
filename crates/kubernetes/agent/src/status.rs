//! Builds the status of this node's NodePlacement. The only state kept are the times since which
//! plans have been verified and conditions unchanged.

use std::collections::BTreeMap;

use albacore_api::{
    AnnotatedPod, ConditionState, CountSource, Drift, FrontPlacement, NodePlacementStatus,
    PodPlacement, SpawnBucket,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::desired::{CountSources, PodAction};
use crate::facts::{NodeFacts, PodFacts};
use crate::limits::{
    NAME_BYTES_TIGHT, PODS_MAX, REASON_BYTES_MAX, REASON_BYTES_TIGHT, STATUS_BYTES_PER_20_PODS,
    THROTTLED_SHARE,
};
use crate::opted_in_pod::{OptedInPod, PlacedContainer};
use crate::placer_stats::SPAWN_BUCKETS_MS;
use crate::plan_input;

/// Builds successive statuses.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusBuilder {
    /// The plan hash of each fully verified pod and the time since which it has been verified, by
    /// uid.
    since: BTreeMap<String, (u32, Time)>,
    conditions: Vec<Condition>,
}

impl StatusBuilder {
    pub(crate) fn build(&mut self, facts: &NodeFacts, now: &Time) -> NodePlacementStatus {
        self.record_since(facts, now);
        self.conditions = conditions(facts)
            .into_iter()
            .map(|(kind, state)| state.condition(kind, None, &self.conditions, now))
            .collect();
        let pods = facts.pods.iter().take(PODS_MAX);
        let members = plan_input::members(facts);
        let mut status = NodePlacementStatus {
            conditions: self.conditions.clone(),
            last_verification_time: facts.verified_at.clone(),
            topology: Some(format!("{:016x}", facts.topology)),
            cpu_topology: plan_input::cpu_topology(facts),
            fixed_threads: plan_input::fixed_threads(facts),
            drifts: count(facts.drifts),
            births: spawn_buckets(&facts.spawns),
            pods: pods
                .map(|pod| PodPlacement {
                    mapping: plan_input::mapping(pod, &members),
                    ..self.entry(pod, facts.topology)
                })
                .collect(),
            ..NodePlacementStatus::default()
        };
        status.planned = status.pods.iter().map(|pod| pod.planned).sum();
        status.verified = status.pods.iter().map(|pod| pod.verified).sum();
        shrink_to_fit(&mut status, &facts.pods);
        status
    }

    fn record_since(&mut self, facts: &NodeFacts, now: &Time) {
        let mut since = BTreeMap::new();
        for pod in &facts.pods {
            let counts = pod.counts();
            let is_verified = counts.slots > 0 && counts.verified == counts.slots;
            if let Some(plan) = pod.plan_hash(facts.topology).filter(|_| is_verified) {
                let uid = &pod.desired.pod.uid;
                let before = self.since.remove(uid).filter(|(known, _)| *known == plan);
                since.insert(uid.clone(), before.unwrap_or((plan, now.clone())));
            }
        }
        self.since = since;
    }

    fn entry(&self, pod: &PodFacts, topology: u64) -> PodPlacement {
        let counts = pod.counts();
        let cpuset = pod.stats.cpuset.as_ref().filter(|_| pod.is_placed);
        PodPlacement {
            pod: name(pod, usize::MAX),
            workers: size(counts.workers),
            workers_verified: size(counts.workers_verified),
            planned: size(counts.planned),
            verified: size(counts.verified),
            front: pod.front().map(|(planned, verified)| FrontPlacement {
                planned: size(planned),
                verified: size(verified),
            }),
            quota_threads: pod.quota_threads().map(i32::from),
            hot_threads: pod.hot_threads().map(size),
            cpuset: cpuset.map(ToString::to_string),
            isolation: pod.throttling.isolation,
            observed: pod.is_placed && !pod.is_enforced(),
            plan: pod.plan_hash(topology).map(|plan| format!("{plan:08x}")),
            since: self
                .since
                .get(&pod.desired.pod.uid)
                .map(|(_, at)| at.clone()),
            drift: pod.stats.cause.map(|cause| Drift {
                count: count(pod.stats.drifts),
                cause,
            }),
            respawns: count(pod.stats.respawns),
            reason: pod.reason().map(|reason| cut(&reason, REASON_BYTES_MAX)),
            trial: pod
                .trial
                .decided
                .as_ref()
                .map(|text| cut(text, REASON_BYTES_MAX)),
            annotation: annotated(pod),
            mapping: None,
        }
    }
}

/// The request in a pod's annotation, with the known counts; `None` for a pod of a deployment.
fn annotated(pod: &PodFacts) -> Option<AnnotatedPod> {
    let container = match &pod.desired.pod.container {
        PlacedContainer::Running { name, .. } | PlacedContainer::NotRunning { name } => name,
        PlacedContainer::Missing { .. } => return None,
    };
    let PodAction::Place {
        policy,
        counts:
            CountSources::Annotation {
                workers,
                threads,
                are_known,
            },
        ..
    } = &pod.desired.action
    else {
        return None;
    };
    let known = |source: &CountSource, number: u16| {
        let is_known = *are_known || *source != CountSource::ProcessTree;
        is_known.then_some(i32::from(number))
    };
    Some(AnnotatedPod {
        container: container.clone(),
        workers: known(workers, policy.workers),
        workers_from: *workers,
        threads: known(threads, policy.threads),
        threads_from: *threads,
        mode: policy.mode.into(),
    })
}

/// The conditions by type; Degraded, Throttled and CpusetEmpty are present only while they are
/// true.
fn conditions(facts: &NodeFacts) -> Vec<(&'static str, ConditionState)> {
    let health = &facts.health;
    let enforcing = match &health.not_enforcing {
        None => state("True", "MasksWritten", ""),
        Some(reason) => state("False", reason.code, &reason.message),
    };
    let memory = health.mask_restoration_state.as_ref();
    let memory = memory.map(|m| state(m.status, m.reason.code, &m.reason.message));
    let degraded = health.degraded.first().map(|first| {
        let all: Vec<&str> = health.degraded.iter().map(|r| r.message.as_str()).collect();
        state("True", first.code, &all.join("; "))
    });
    let throttled = pods_where(facts, |pod| pod.throttling.throttled >= THROTTLED_SHARE);
    let throttled = throttled.map(|pods| state("True", "CpuQuota", &pods));
    let empty = pods_where(facts, PodFacts::is_cpuset_empty);
    let empty = empty.map(|pods| state("True", "NoOnlineCpu", &pods));
    let conditions = [
        ("Enforcing", Some(enforcing)),
        ("MasksRemembered", memory),
        ("Degraded", degraded),
        ("Throttled", throttled),
        ("CpusetEmpty", empty),
    ];
    let present = conditions.into_iter();
    present
        .filter_map(|(kind, state)| Some((kind, state?)))
        .chain(plan_input::omitted(facts))
        .collect()
}

fn state(status: &'static str, reason: &str, message: &str) -> ConditionState {
    ConditionState::new(status, reason, cut(message, REASON_BYTES_MAX))
}

/// Names of the pods for which `is_true` returns true; `None` if there is none.
fn pods_where(facts: &NodeFacts, is_true: fn(&PodFacts) -> bool) -> Option<String> {
    let pods = facts.pods.iter().filter(|pod| is_true(pod));
    let names: Vec<String> = pods.map(|pod| pod.desired.pod.key.to_string()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn spawn_buckets(counts: &[u64]) -> Vec<SpawnBucket> {
    if counts.iter().all(|count| *count == 0) {
        return Vec::new();
    }
    let ends = SPAWN_BUCKETS_MS.iter().copied().map(Some).chain([None]);
    let buckets = ends.zip(counts).map(|(within_ms, &threads)| SpawnBucket {
        within_ms,
        threads: count(threads),
    });
    buckets.collect()
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn size(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Truncates a text to `bytes` bytes including the ellipsis; control characters become spaces.
pub(crate) fn cut(text: &str, bytes: usize) -> String {
    let is_short = text.len() <= bytes;
    let mut short = String::new();
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
        if !is_short && short.len() + c.len_utf8() > bytes.saturating_sub(ELLIPSIS.len_utf8()) {
            short.push(ELLIPSIS);
            break;
        }
        short.push(c);
    }
    short
}

const ELLIPSIS: char = '…';

/// The name of a pod in a report, in at most `bytes` bytes.
fn name(pod: &PodFacts, bytes: usize) -> String {
    let OptedInPod { key, uid, .. } = &pod.desired.pod;
    PodPlacement::short_name(&key.namespace, &key.name, uid, bytes)
}

/// Drops the least important parts until the status fits its limit; `dump` shows them all. Plan
/// inputs have their own limit; annotation requests are kept, because the next agent starts from
/// them.
fn shrink_to_fit(status: &mut NodePlacementStatus, pods: &[PodFacts]) {
    let max = plan_input::limit(status)
        + annotation_bytes(status)
        + STATUS_BYTES_PER_20_PODS * status.pods.len().div_ceil(20).max(1);
    let shrinks: [fn(&mut PodPlacement, &PodFacts); 11] = [
        |entry, _| entry.trial = None,
        |entry, _| entry.since = None,
        |entry, _| entry.front = entry.front.filter(|front| front.verified < front.planned),
        |entry, _| {
            entry.cpuset = entry
                .cpuset
                .take()
                .map(|cpuset| cut(&cpuset, REASON_BYTES_TIGHT))
        },
        |entry, _| {
            entry.reason = entry
                .reason
                .take()
                .map(|reason| cut(&reason, REASON_BYTES_TIGHT))
        },
        |entry, pod| entry.pod = name(pod, NAME_BYTES_TIGHT),
        |entry, _| entry.cpuset = None,
        |entry, _| entry.plan = None,
        |entry, _| (entry.drift, entry.respawns, entry.front) = (None, 0, None),
        |entry, _| {
            entry.reason = entry
                .reason
                .take()
                .map(|_| "see albacore-agent dump".to_owned())
        },
        |entry, pod| entry.pod = name(pod, pod.desired.pod.uid.len() + 1),
    ];
    for shrink in shrinks {
        if json_bytes(status) <= max {
            return;
        }
        for (entry, pod) in status.pods.iter_mut().zip(pods) {
            shrink(entry, pod);
        }
    }
    // Spawn times are also exported as metrics, and a condition's reason is more important than its
    // message.
    if json_bytes(status) > max {
        status.births.clear();
    }
    if json_bytes(status) > max {
        for condition in &mut status.conditions {
            condition.message = cut(&condition.message, REASON_BYTES_TIGHT);
        }
    }
}

/// Size of the annotation requests: at most 230 bytes per pod, with the longest container name.
fn annotation_bytes(status: &NodePlacementStatus) -> usize {
    let annotations = status.pods.iter().filter_map(|pod| pod.annotation.as_ref());
    // infallible: strings and numbers.
    annotations
        .map(|annotation| serde_json::to_vec(annotation).map_or(0, |json| json.len()))
        .sum()
}

pub(crate) fn json_bytes(status: &NodePlacementStatus) -> usize {
    // infallible: strings, numbers and lists of them.
    serde_json::to_vec(status).map_or(0, |json| json.len())
}

/// The most important difference between two statuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StatusChange {
    None,
    /// Only the time of the last verification.
    Time,
    /// Also counters, whose update may be delayed.
    Counters,
    Placement,
}

pub(crate) fn status_change(
    before: &NodePlacementStatus,
    after: &NodePlacementStatus,
) -> StatusChange {
    let without_time = |status: &NodePlacementStatus| NodePlacementStatus {
        last_verification_time: None,
        ..status.clone()
    };
    let without_counters = |status: &NodePlacementStatus| NodePlacementStatus {
        drifts: 0,
        births: Vec::new(),
        ..without_time(status)
    };
    if before == after {
        StatusChange::None
    } else if without_time(before) == without_time(after) {
        StatusChange::Time
    } else if without_counters(before) == without_counters(after) {
        StatusChange::Counters
    } else {
        StatusChange::Placement
    }
}

#[cfg(test)]
mod tests;
