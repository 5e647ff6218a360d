//! Facts -> the status of this node's NodePlacement. Pure but for what it remembers: since when
//! things are so.

use std::collections::BTreeMap;

use albacore_api::{BirthBucket, Drift, NodePlacementStatus, PodPlacement};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::facts::{Facts, PodFacts};
use crate::journal::BIRTH_ENDS_MS;
use crate::limits::{
    NAME_BYTES_TIGHT, PODS_MAX, REASON_BYTES_MAX, REASON_BYTES_TIGHT, STATUS_BYTES_PER_20_PODS,
    THROTTLED_SHARE,
};
use crate::pods::PodSeen;

/// Makes statuses, one after the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reporter {
    /// The plan of each pod that is verified, and since when; by uid.
    since: BTreeMap<String, (u32, Time)>,
    conditions: Vec<Condition>,
}

impl Reporter {
    /// The status that `facts` come to at `now`.
    pub(crate) fn status(&mut self, facts: &Facts, now: &Time) -> NodePlacementStatus {
        self.note_since(facts, now);
        self.conditions = conditions(facts)
            .into_iter()
            .map(|said| said.at(&self.conditions, now))
            .collect();
        let pods = facts.pods.iter().take(PODS_MAX);
        let mut status = NodePlacementStatus {
            conditions: self.conditions.clone(),
            last_verification_time: facts.verified_at.clone(),
            topology: Some(format!("{:016x}", facts.topology)),
            drifts: count(facts.drifts),
            births: births(&facts.births),
            pods: pods.map(|pod| self.entry(pod, facts.topology)).collect(),
            ..NodePlacementStatus::default()
        };
        status.planned = status.pods.iter().map(|pod| pod.planned).sum();
        status.verified = status.pods.iter().map(|pod| pod.verified).sum();
        fit(&mut status, &facts.pods);
        status
    }

    fn note_since(&mut self, facts: &Facts, now: &Time) {
        let mut since = BTreeMap::new();
        for pod in &facts.pods {
            let counts = pod.counts();
            let is_verified = counts.slots > 0 && counts.verified == counts.slots;
            if let Some(plan) = pod.plan_hash(facts.topology).filter(|_| is_verified) {
                let uid = &pod.wish.pod.uid;
                let before = self.since.remove(uid).filter(|(known, _)| *known == plan);
                since.insert(uid.clone(), before.unwrap_or((plan, now.clone())));
            }
        }
        self.since = since;
    }

    fn entry(&self, pod: &PodFacts, topology: u64) -> PodPlacement {
        let counts = pod.counts();
        let cpuset = pod.story.cpuset.as_ref().filter(|_| pod.is_present);
        PodPlacement {
            pod: name(pod, usize::MAX),
            workers: size(counts.workers),
            workers_verified: size(counts.workers_verified),
            planned: size(counts.planned),
            verified: size(counts.verified),
            quota_threads: pod.quota_threads().map(i32::from),
            cpuset: cpuset.map(ToString::to_string),
            isolation: pod.strain.isolation,
            observed: pod.is_present && !pod.is_enforced(),
            plan: pod.plan_hash(topology).map(|plan| format!("{plan:08x}")),
            since: self.since.get(&pod.wish.pod.uid).map(|(_, at)| at.clone()),
            drift: pod.story.cause.map(|cause| Drift {
                count: count(pod.story.drifts),
                cause,
            }),
            respawns: count(pod.story.respawns),
            reason: pod.reason().map(|reason| cut(&reason, REASON_BYTES_MAX)),
        }
    }
}

/// What a condition says, without when.
struct Said {
    kind: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Said {
    /// As a condition; the time of its last change is taken over from `before` where nothing
    /// changed.
    fn at(self, before: &[Condition], now: &Time) -> Condition {
        let known = before.iter().find(|c| c.type_ == self.kind);
        let same = known.filter(|c| c.status == self.status);
        Condition {
            type_: self.kind.to_owned(),
            status: self.status.to_owned(),
            reason: self.reason.to_owned(),
            message: cut(&self.message, REASON_BYTES_MAX),
            last_transition_time: same.map_or(now, |c| &c.last_transition_time).clone(),
            observed_generation: None,
        }
    }
}

fn conditions(facts: &Facts) -> Vec<Said> {
    let health = &facts.health;
    let (status, reason, message) = match &health.idle {
        None => ("True", "MasksWritten", String::new()),
        Some((reason, message)) => ("False", *reason, message.clone()),
    };
    let mut all = vec![Said {
        kind: "Enforcing",
        status,
        reason,
        message,
    }];
    if let Some((status, reason, message)) = &health.memory {
        all.push(Said {
            kind: "MasksRemembered",
            status,
            reason,
            message: message.clone(),
        });
    }
    if let Some((reason, _)) = health.ills.first() {
        let texts: Vec<&str> = health.ills.iter().map(|(_, text)| text.as_str()).collect();
        all.push(Said {
            kind: "Degraded",
            status: "True",
            reason,
            message: texts.join("; "),
        });
    }
    let mut tell = |kind, reason, names: Vec<String>| {
        if !names.is_empty() {
            all.push(Said {
                kind,
                status: "True",
                reason,
                message: names.join(", "),
            });
        }
    };
    let named = |is_so: fn(&PodFacts) -> bool| -> Vec<String> {
        let pods = facts.pods.iter().filter(|pod| is_so(pod));
        pods.map(|pod| pod.wish.pod.key.to_string()).collect()
    };
    let throttled = named(|pod| pod.strain.throttled >= THROTTLED_SHARE);
    tell("Throttled", "CpuQuota", throttled);
    tell(
        "CpusetEmpty",
        "NoOnlineCpu",
        named(PodFacts::is_cpuset_empty),
    );
    all
}

fn births(counts: &[u64]) -> Vec<BirthBucket> {
    if counts.iter().all(|count| *count == 0) {
        return Vec::new();
    }
    let ends = BIRTH_ENDS_MS.iter().copied().map(Some).chain([None]);
    let buckets = ends.zip(counts).map(|(within_ms, &threads)| BirthBucket {
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

/// The beginning of a text, at most `bytes` long with the mark that something is missing, fit to be
/// printed.
pub(crate) fn cut(text: &str, bytes: usize) -> String {
    let is_short = text.len() <= bytes;
    let mut shown = String::new();
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
        if !is_short && shown.len() + c.len_utf8() > bytes.saturating_sub(MORE.len_utf8()) {
            shown.push(MORE);
            break;
        }
        shown.push(c);
    }
    shown
}

const MORE: char = '…';

/// The name of a pod in a report, in so many bytes.
fn name(pod: &PodFacts, bytes: usize) -> String {
    let PodSeen { key, uid, .. } = &pod.wish.pod;
    PodPlacement::short_name(&key.namespace, &key.name, uid, bytes)
}

/// Leaves out what matters least until the report is as small as promised: `dump` has it all.
fn fit(status: &mut NodePlacementStatus, pods: &[PodFacts]) {
    let max = STATUS_BYTES_PER_20_PODS * status.pods.len().div_ceil(20).max(1);
    let shrinks: [fn(&mut PodPlacement, &PodFacts); 9] = [
        |entry, _| entry.since = None,
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
        |entry, _| (entry.drift, entry.respawns) = (None, 0),
        |entry, _| entry.reason = entry.reason.take().map(|_| "see agent dump".to_owned()),
        |entry, pod| entry.pod = name(pod, pod.wish.pod.uid.len() + 1),
    ];
    for shrink in shrinks {
        if bytes(status) <= max {
            return;
        }
        for (entry, pod) in status.pods.iter_mut().zip(pods) {
            shrink(entry, pod);
        }
    }
    // Metrics tell the births as well, and the words of a condition are its reason.
    if bytes(status) > max {
        status.births.clear();
    }
    if bytes(status) > max {
        for condition in &mut status.conditions {
            condition.message = cut(&condition.message, REASON_BYTES_TIGHT);
        }
    }
}

/// Its size as JSON.
pub(crate) fn bytes(status: &NodePlacementStatus) -> usize {
    // infallible: strings, numbers and lists of them.
    serde_json::to_vec(status).map_or(0, |json| json.len())
}

/// What two statuses differ in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Difference {
    None,
    /// The time of the last verification alone.
    Time,
    /// That and counters, which can wait.
    Figures,
    Placement,
}

/// What `after` says that `before` does not.
pub(crate) fn difference(before: &NodePlacementStatus, after: &NodePlacementStatus) -> Difference {
    let without_time = |status: &NodePlacementStatus| NodePlacementStatus {
        last_verification_time: None,
        ..status.clone()
    };
    let without_figures = |status: &NodePlacementStatus| NodePlacementStatus {
        drifts: 0,
        births: Vec::new(),
        ..without_time(status)
    };
    if before == after {
        Difference::None
    } else if without_time(before) == without_time(after) {
        Difference::Time
    } else if without_figures(before) == without_figures(after) {
        Difference::Figures
    } else {
        Difference::Placement
    }
}

#[cfg(test)]
mod tests;
