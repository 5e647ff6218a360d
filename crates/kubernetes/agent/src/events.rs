//! What happened to pods and to the node between two looks, as events. Reasons never change: alerts
//! depend on them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use albacore_api::counted;
use albacore_cluster::{Happening, Severity};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::facts::{Facts, PodFacts};
use crate::journal::Story;
use crate::limits::{MISSING_TIME, THROTTLED_SHARE};
use crate::locate::Absence;
use crate::trial::NO_FIGURES;

/// What was told of one pod.
#[derive(Clone, Debug, Default)]
struct Known {
    is_verified: bool,
    story: Story,
    missing_since: Option<Instant>,
    /// Reasons that hold and were told.
    standing: BTreeSet<&'static str>,
}

/// Tells what is new, each thing once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Teller {
    known: BTreeMap<String, Known>,
    ills: BTreeSet<&'static str>,
}

/// An event in the making.
struct Told {
    severity: Severity,
    reason: &'static str,
    action: &'static str,
    note: String,
}

fn normal(reason: &'static str, action: &'static str, note: String) -> Told {
    Told {
        severity: Severity::Normal,
        reason,
        action,
        note,
    }
}

fn warning(reason: &'static str, action: &'static str, note: String) -> Told {
    Told {
        severity: Severity::Warning,
        ..normal(reason, action, note)
    }
}

impl Told {
    fn of(self, regarding: &ObjectReference) -> Happening {
        Happening {
            regarding: regarding.clone(),
            severity: self.severity,
            reason: self.reason,
            action: self.action,
            note: self.note,
        }
    }
}

impl Teller {
    /// What is new in `facts` at `now`, of pods and of `node`.
    pub(crate) fn happenings(
        &mut self,
        facts: &Facts,
        node: &ObjectReference,
        now: Instant,
    ) -> Vec<Happening> {
        let mut told = Vec::new();
        let mut known = BTreeMap::new();
        for pod in &facts.pods {
            let uid = &pod.wish.pod.uid;
            let mut before = self.known.remove(uid).unwrap_or_default();
            let news = before.news(pod, now);
            told.extend(news.into_iter().map(|n| n.of(&pod.wish.pod.regarding)));
            known.insert(uid.clone(), before);
        }
        self.known = known;
        let ills: BTreeSet<&'static str> =
            facts.health.ills.iter().map(|(word, _)| *word).collect();
        for (word, text) in &facts.health.ills {
            if !self.ills.contains(word) {
                told.push(warning(word, "Place", text.clone()).of(node));
            }
        }
        self.ills = ills;
        told
    }
}

impl Known {
    fn news(&mut self, pod: &PodFacts, now: Instant) -> Vec<Told> {
        let mut told = self.stories(&pod.story);
        self.story = pod.story.clone();
        let counts = pod.counts();
        let is_verified = counts.slots > 0 && counts.verified == counts.slots;
        if is_verified && !self.is_verified {
            let note = format!(
                "verified on the planned cpus: {}",
                counted(counts.verified, "thread")
            );
            told.push(normal("PlacementVerified", "Pin", note));
        }
        self.is_verified = is_verified;
        told.extend(self.standing(pod, now));
        told
    }

    /// What the placer's counts say.
    fn stories(&self, story: &Story) -> Vec<Told> {
        let mut told = Vec::new();
        let more = |count: fn(&Story) -> u64| count(story).saturating_sub(count(&self.story));
        let foreign = more(|s| s.foreign);
        let drifts = more(|s| s.drifts).saturating_sub(foreign);
        if drifts > 0 {
            let cause = story.cause.unwrap_or_default().name();
            let note = format!("{} found changed: {cause}", counted(drifts, "mask"));
            told.push(warning("PlacementDrifted", "Verify", note));
        }
        let back_offs = more(|s| s.back_offs);
        let left = story.back_off.as_ref().filter(|_| back_offs > 0);
        if foreign > 0 || back_offs > 0 {
            let note = match left {
                None => format!(
                    "{} changed by somebody else; repaired",
                    counted(foreign, "mask")
                ),
                Some(left) => format!(
                    "somebody else (the kernel does not tell who) changed the mask of a thread {} \
                     times in {} s; threads with such changes are left as they are and tried again \
                     at {}. Stop what sets masks in this pod or on this node (OMP_PROC_BIND, \
                     GOMP_CPU_AFFINITY, KMP_AFFINITY, taskset, another tool that pins), or set \
                     spec.placement.policy: None. An edit of the deployment or a restart of the pod \
                     tries again at once",
                    left.changes,
                    left.seconds,
                    left.retry_at.strftime("%Y-%m-%dT%H:%M:%SZ")
                ),
            };
            told.push(warning("ForeignPinning", "Verify", note));
        }
        let released = story.released.0.saturating_sub(self.story.released.0);
        let failed = story.released.1.saturating_sub(self.story.released.1);
        if released + failed > 0 {
            told.push(given_back(released, failed, "enforcement is Observe"));
        }
        let widened = more(|s| s.widened);
        if widened > 0 {
            let note = format!(
                "{widened} pinned threads were found on their whole cpuset: the kernel widened them \
                 in silence"
            );
            told.push(warning("MaskWidened", "Verify", note));
        }
        if story.is_inherited && !self.story.is_inherited {
            let note = "InheritedAffinity: the container began with a mask narrower than its cpuset (a \
                        fault of some runtimes)";
            told.push(warning("ForeignPinning", "Verify", note.to_owned()));
        }
        told
    }

    /// What lasts: told when it begins.
    fn standing(&mut self, pod: &PodFacts, now: Instant) -> Vec<Told> {
        let mut told = Vec::new();
        let counts = pod.counts();
        let lacks = pod
            .shape()
            .filter(|_| pod.is_present)
            .filter(|(w, _)| counts.workers != usize::from(*w));
        let since = lacks.map(|_| *self.missing_since.get_or_insert(now));
        self.missing_since = since;
        let is_missing = since.is_some_and(|since| now.duration_since(since) >= MISSING_TIME);
        let text = |absence: &Option<Absence>| match absence {
            Some(Absence::Unsupported(text)) => Some(text.clone()),
            _ => None,
        };
        let unsupported = text(&pod.absence);
        let stands: [(&'static str, &'static str, Option<String>); 6] = [
            (
                "WorkersMissing",
                "Observe",
                is_missing.then(|| pod.reason()).flatten(),
            ),
            (
                "CpusetEmpty",
                "Observe",
                pod.is_cpuset_empty()
                    .then(|| "the cpuset has no cpu that is online: its threads wait".to_owned()),
            ),
            (
                "Throttled",
                "Observe",
                (pod.strain.throttled >= THROTTLED_SHARE).then(|| {
                    format!(
                        "the cpu quota held the container back in {:.0} % of the last periods: raise \
                         limits.cpu or leave it out",
                        pod.strain.throttled * 100.0
                    )
                }),
            ),
            ("PlacementWithdrawn", "Restore", pod.withdrawn.clone()),
            (
                "TrialWithoutFigures",
                "Observe",
                pod.is_trial_blind.then(|| NO_FIGURES.to_owned()),
            ),
            ("Unsupported", "Observe", unsupported),
        ];
        for (reason, action, note) in stands {
            match note {
                Some(note) => {
                    if self.standing.insert(reason) {
                        told.push(warning(reason, action, note));
                    }
                }
                None => {
                    self.standing.remove(reason);
                }
            }
        }
        told
    }
}

/// That masks of a pod were given back, and why.
pub(crate) fn restored(
    regarding: &ObjectReference,
    count: usize,
    errors: usize,
    why: &str,
) -> Happening {
    given_back(count, errors, why).of(regarding)
}

fn given_back(count: usize, errors: usize, why: &str) -> Told {
    let note = match errors {
        0 => format!("{} given back: {why}", counted(count, "mask")),
        n => format!("{} given back, {n} failed: {why}", counted(count, "mask")),
    };
    match errors {
        0 => normal("PlacementRestored", "Restore", note),
        _ => warning("PlacementRestored", "Restore", note),
    }
}

#[cfg(test)]
mod tests;
