//! Worker and thread counts of pods whose annotation omits them, detected from their process trees
//! and debounced.
//!
//! Problem: a process tree changes constantly. Workers are forked one after another, a worker that
//! exited is missing for some seconds, and the threads of a pool are spawned by the first request.
//!
//! Approach: the first counts come into force after they have been stable for
//! [`COUNTS_SETTLING_TIME`]; different counts replace them after [`COUNTS_CHANGE_TIME`], which is
//! longer than a respawn takes. The thread count never decreases while the container runs, because
//! replaced workers compute with one thread until their first request. No mask is written before
//! both counts are known.

use std::collections::BTreeMap;
use std::time::Instant;

use albacore_api::limits::{SLOTS_MAX, THREADS_MAX, WORKERS_MAX};
use albacore_api::{AnnotatedPod, CountSource, PodPlacement};
use albacore_plan::{Enforcement, ServerShape, SubjectPolicy};

use crate::desired::{CountSources, DesiredPod, PodAction};
use crate::limits::{COUNTS_CHANGE_TIME, COUNTS_SETTLING_TIME};

/// Detected counts of one container under one version of its annotation; a change of either resets
/// them.
#[derive(Clone, Debug)]
struct Detection {
    container: String,
    generation: i64,
    in_force: Option<ServerShape>,
    /// Counts that are observed but not yet in force, and the time since which they have been
    /// stable.
    candidate: Option<(ServerShape, Instant)>,
}

/// Detected counts of all pods of the node, by uid.
#[derive(Clone, Debug, Default)]
pub(crate) struct DetectedCounts {
    pods: BTreeMap<String, Detection>,
    /// Counts from the previous agent's report, until the pods are seen.
    previous: Vec<PodPlacement>,
}

impl DetectedCounts {
    /// Starts with the counts that the previous agent of this node detected, so that its pods stay
    /// placed while they are counted again.
    pub(crate) fn adopt_previous(&mut self, previous: &[PodPlacement]) {
        self.previous = previous.to_vec();
    }

    /// Records the counts observed for each pod; returns true if counts in force changed.
    pub(crate) fn update(
        &mut self,
        desired: &[DesiredPod],
        observed: impl Fn(&DesiredPod) -> Option<ServerShape>,
        now: Instant,
    ) -> bool {
        let mut pods = BTreeMap::new();
        let mut is_changed = false;
        for desired in desired {
            let PodAction::Place {
                container,
                generation,
                counts,
                policy,
                ..
            } = &desired.action
            else {
                continue;
            };
            if !is_detected(counts) {
                continue;
            }
            let uid = &desired.pod.uid;
            let is_same = |d: &Detection| d.container == *container && d.generation == *generation;
            let known = self.pods.remove(uid).filter(is_same);
            let mut detection = known.unwrap_or_else(|| {
                let in_force = self.take_previous(desired, counts);
                is_changed |= in_force.is_some();
                Detection {
                    container: container.clone(),
                    generation: *generation,
                    in_force,
                    candidate: None,
                }
            });
            if let Some(observed) = observed(desired) {
                is_changed |= detection.record(within_limits(observed, counts, policy), now);
            }
            pods.insert(uid.clone(), detection);
        }
        self.pods = pods;
        is_changed
    }

    /// Removes and returns the counts of this pod from the previous report, provided that the
    /// sources of both counts are unchanged.
    fn take_previous(
        &mut self,
        desired: &DesiredPod,
        counts: &CountSources,
    ) -> Option<ServerShape> {
        let (key, uid) = (&desired.pod.key, &desired.pod.uid);
        let is_it = |pod: &PodPlacement| pod.is_of(&key.namespace, &key.name, uid);
        let at = self.previous.iter().position(is_it)?;
        let AnnotatedPod {
            workers,
            workers_from,
            threads,
            threads_from,
            ..
        } = self.previous.swap_remove(at).annotation?;
        let CountSources::Annotation {
            workers: asked_workers,
            threads: asked_threads,
            ..
        } = counts
        else {
            return None;
        };
        let is_same = (workers_from, threads_from) == (*asked_workers, *asked_threads);
        let count = |number: Option<i32>| u16::try_from(number?).ok().filter(|count| *count > 0);
        is_same.then_some(ServerShape {
            workers: count(workers)?,
            threads: count(threads)?,
        })
    }

    /// Writes the counts in force into the policies; a pod whose counts are not known is only
    /// observed.
    pub(crate) fn apply(&self, desired: &mut [DesiredPod]) {
        for DesiredPod { pod, action } in desired {
            let PodAction::Place {
                container,
                policy,
                generation,
                counts:
                    CountSources::Annotation {
                        workers,
                        threads,
                        are_known,
                    },
                ..
            } = action
            else {
                continue;
            };
            if *are_known {
                continue;
            }
            let known = self.pods.get(&pod.uid);
            let known = known.filter(|d| d.container == *container && d.generation == *generation);
            let Some(shape) = known.and_then(|detection| detection.in_force) else {
                policy.enforcement = Enforcement::Observe;
                continue;
            };
            *are_known = true;
            if *workers == CountSource::ProcessTree {
                policy.workers = shape.workers;
            }
            if *threads == CountSource::ProcessTree {
                policy.threads = shape.threads;
            }
        }
    }

    /// Next time at which a candidate may have been stable for long enough.
    pub(crate) fn next(&self) -> Option<Instant> {
        let pods = self.pods.values();
        let waiting = pods.filter_map(|d| Some(d.candidate?.1 + d.time()));
        waiting.min()
    }
}

impl Detection {
    fn time(&self) -> std::time::Duration {
        match self.in_force {
            None => COUNTS_SETTLING_TIME,
            Some(_) => COUNTS_CHANGE_TIME,
        }
    }

    /// Records observed counts; returns true if this brought them into force.
    fn record(&mut self, mut shape: ServerShape, now: Instant) -> bool {
        if let Some(in_force) = self.in_force {
            shape.threads = shape.threads.max(in_force.threads);
        }
        if self.in_force == Some(shape) {
            self.candidate = None;
            return false;
        }
        let candidate = self.candidate.filter(|(known, _)| *known == shape);
        let (_, since) = *self.candidate.insert(candidate.unwrap_or((shape, now)));
        if now.duration_since(since) < self.time() {
            return false;
        }
        (self.in_force, self.candidate) = (Some(shape), None);
        true
    }
}

fn is_detected(counts: &CountSources) -> bool {
    let CountSources::Annotation {
        workers, threads, ..
    } = counts
    else {
        return false;
    };
    [workers, threads].contains(&&CountSource::ProcessTree)
}

/// Clamps observed counts to the bounds of requested ones, because a pod may have more processes
/// than can be placed. Counts that are not detected are those of the policy.
fn within_limits(
    observed: ServerShape,
    counts: &CountSources,
    policy: &SubjectPolicy,
) -> ServerShape {
    let CountSources::Annotation {
        workers, threads, ..
    } = counts
    else {
        return observed;
    };
    let room = |other: u16| u16::try_from(SLOTS_MAX / u32::from(other.max(1))).unwrap_or(u16::MAX);
    let is_threads_found = *threads == CountSource::ProcessTree;
    let workers = match (workers, is_threads_found) {
        (CountSource::ProcessTree, true) => observed.workers.clamp(1, WORKERS_MAX),
        (CountSource::ProcessTree, false) => observed
            .workers
            .clamp(1, WORKERS_MAX.min(room(policy.threads))),
        _ => policy.workers,
    };
    let threads = match is_threads_found {
        true => observed.threads.clamp(1, THREADS_MAX.min(room(workers))),
        false => policy.threads,
    };
    ServerShape { workers, threads }
}

#[cfg(test)]
mod tests;
