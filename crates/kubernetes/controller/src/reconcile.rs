//! One deployment: `dereference -> validate -> build -> apply -> report`.

use std::time::Instant;

use albacore_api::{InferenceDeployment, InferenceDeploymentStatus, Violation, server_image_of};
use albacore_batching::Nanos;
use albacore_cluster::{
    Cluster, ClusterError, ErrorClass, Events, Happening, Key, Outcome, Queue, Resource as _,
    Severity,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::apply::{Applying, Done};
use crate::autoscale::{Scaling, replicas};
use crate::build::{BuiltIn, Surroundings, build, served};
use crate::children::ChildKind;
use crate::dereference::{Observation, dereference};
use crate::digest::sha256_of;
use crate::limits::{BIRTH_TIME_MAX, COLLECTING_PAUSE, SCRAPE_PERIOD, TAKEN_PAUSE};
use crate::memory::{Memories, Memory, lock};
use crate::metrics::{Counts, Reconciled, Scaled};
use crate::observed::Workload;
use crate::pod_events::PodEvents;
use crate::refusal::{Refusal, with_remedy};
use crate::report::{Writing, happenings, status_before, writing};
use crate::rollout::{self, Case, Paced, Rollouts};
use crate::scrape::States;
use crate::status::{Facts, Verdict, status_of};
use crate::step::is_not_newer;
use crate::validate::{Valid, validate};
use crate::watches::{Watches, deployments_kind};

/// Everything that a reconcile uses.
pub(crate) struct Controller {
    pub(crate) cluster: Cluster,
    pub(crate) watches: Watches,
    pub(crate) states: States,
    pub(crate) memories: Memories,
    pub(crate) events: Events,
    pub(crate) counts: Counts,
    pub(crate) pod_events: PodEvents,
    pub(crate) built_in: BuiltIn,
    pub(crate) rollouts: Rollouts,
    pub(crate) queue: Queue<Key>,
    /// Where the monotonic clock began.
    pub(crate) start: Instant,
}

/// What came of applying a deployment.
struct Applied {
    valid: Option<Valid>,
    verdict: Verdict,
    done: Done,
    scaling: Option<Scaling>,
    /// How its roll-out stands; `None` for a spec that is not valid.
    paced: Option<Paced>,
}

impl Applied {
    fn invalid(violations: Vec<Violation>) -> Self {
        Self {
            valid: None,
            verdict: Verdict::Invalid(violations),
            done: Done::default(),
            scaling: None,
            paced: None,
        }
    }
}

impl Controller {
    /// Brings one deployment nearer to what it asks for.
    pub(crate) async fn reconcile(&self, key: Key) -> Outcome {
        let outcome = self.bring_nearer(key).await;
        for due in self.rollouts.due(now().0) {
            self.queue.add(due);
        }
        outcome
    }

    /// Takes over the roll-outs that are under way, as the watches show them.
    pub(crate) fn rebuild_rollouts(&self) {
        self.rollouts
            .rebuild(self.watches.pods_deployments(), now().0);
    }

    async fn bring_nearer(&self, key: Key) -> Outcome {
        let Some(mut observation) = dereference(&key, &self.watches, &self.states) else {
            self.memories.drop_key(&key);
            self.rollouts.release(&key);
            return self.count("gone", Outcome::Done);
        };
        let metadata = &observation.deployment.metadata;
        // Its children are collected by their owner references.
        if metadata.deletion_timestamp.is_some() {
            self.rollouts.release(&key);
            return self.count("gone", Outcome::Done);
        }
        let memory = self
            .memories
            .of(&key, metadata.uid.as_deref().unwrap_or_default());
        let result = async {
            let applied = self.apply(&mut observation, &memory).await?;
            let after = self.report(&mut observation, &applied, &memory).await?;
            Ok::<_, ClusterError>((applied, after))
        };
        match result.await {
            Ok((applied, after)) => self.settle(&observation.deployment, &applied, after),
            Err(error) => self.fail(&key, &observation.deployment, &error),
        }
    }

    fn count(&self, result: &'static str, outcome: Outcome) -> Outcome {
        self.counts
            .reconciles
            .get_or_create(&Reconciled { result })
            .inc();
        outcome
    }

    /// When to look again at what went well, or as well as it could.
    fn settle(
        &self,
        deployment: &InferenceDeployment,
        applied: &Applied,
        after: Option<std::time::Duration>,
    ) -> Outcome {
        let (result, pause) = match &applied.verdict {
            Verdict::Applied => ("applied", after),
            Verdict::Invalid(_) => ("invalid", after),
            Verdict::Taken(_) => ("taken", Some(TAKEN_PAUSE)),
            Verdict::Collecting(_) => ("collecting", Some(COLLECTING_PAUSE)),
            Verdict::Refused(refusal) => {
                return self.count("refused", Outcome::Failed(refusal.class));
            }
        };
        // The rule goes on while nothing new is told: its five minutes pass.
        let is_scaled = deployment.spec.autoscaling.is_some() && applied.valid.is_some();
        let turn = is_scaled.then_some(SCRAPE_PERIOD);
        // A child that was created is looked for when its watch should have told of it.
        let births = (!applied.done.created.is_empty()).then_some(BIRTH_TIME_MAX);
        let rollout = applied.paced.as_ref().and_then(|paced| paced.pause);
        let pauses = [pause, turn, births, rollout];
        let outcome = match pauses.into_iter().flatten().min() {
            Some(pause) => Outcome::After(pause),
            None => Outcome::Done,
        };
        self.count(result, outcome)
    }

    /// What a reconcile ends with that could not be finished: what the API server says against
    /// children is a verdict, so this is about the status, or there is no answer.
    fn fail(&self, key: &Key, regarding: &InferenceDeployment, error: &ClusterError) -> Outcome {
        let class = error.class();
        let deployment = key.to_string();
        let may_have_come = matches!(
            class,
            ErrorClass::Conflict | ErrorClass::Transient | ErrorClass::Throttled(_)
        );
        if !may_have_come {
            self.rollouts.release(key);
        }
        match class {
            // Somebody was faster, or nobody answers: both pass.
            ErrorClass::Conflict | ErrorClass::Transient | ErrorClass::Throttled(_) => {
                tracing::debug!(deployment, %error, ?class, "a reconcile is tried again");
            }
            _ => {
                tracing::warn!(deployment, %error, ?class, "a reconcile failed");
                let reason = match class {
                    ErrorClass::Invalid => "SchemaOutdated",
                    _ => "MissingPermission",
                };
                self.events.tell(Happening {
                    regarding: regarding.object_ref(&()),
                    severity: Severity::Warning,
                    reason: "StatusRefused",
                    action: "Report",
                    note: with_remedy(&error.to_string(), reason),
                });
            }
        }
        // An older schema is replaced without a change of any deployment.
        let class = match class {
            ErrorClass::Invalid => ErrorClass::Forbidden,
            class => class,
        };
        self.count("failed", Outcome::Failed(class))
    }

    async fn apply(
        &self,
        observation: &mut Observation,
        memory: &std::sync::Mutex<Memory>,
    ) -> Result<Applied, ClusterError> {
        let valid = match validate(&observation.deployment) {
            Ok(valid) => valid,
            Err(violations) => {
                self.rollouts.release(&Key::of(&*observation.deployment));
                return Ok(Applied::invalid(violations));
            }
        };
        let built_in = match self.built_in_in(observation.namespace.as_deref()) {
            Ok(built_in) => built_in,
            Err(violation) => {
                self.rollouts.release(&Key::of(&*observation.deployment));
                return Ok(Applied::invalid(vec![violation]));
            }
        };
        let workload = observation
            .children
            .get(&ChildKind::Deployment)
            .map(Workload::of);
        let (replicas, scaling) = replicas(
            &valid.spec,
            &observation.pods,
            workload.as_ref(),
            &mut lock(memory),
            self.now(),
        );
        let surroundings = Surroundings {
            built_in,
            has_service_monitors: self.watches.has(ChildKind::ServiceMonitor),
            replicas,
        };
        let mut children = build(&valid, &surroundings);
        let key = Key::of(&*observation.deployment);
        let told = self::workload(observation, &lock(memory));
        let live = observation.children.get(&ChildKind::Deployment);
        let case = Case {
            key: &key,
            valid: &valid,
            live: live.zip(told.as_ref()),
            is_edited: is_newer_than_status(&observation.deployment),
        };
        let paced = self.rollouts.pace(&case, &mut children, now().0);
        let mut applying = Applying {
            cluster: &self.cluster,
            valid: &valid,
            memory,
            live: &mut observation.children,
            done: Done::default(),
            is_held: paced.is_held,
        };
        let applied = applying.apply(&children).await;
        let done = applying.done;
        let verdict = verdict(applied, &mut lock(memory))?;
        // The write of what usually passes may have come all the same.
        let may_have_come =
            matches!(&verdict, Verdict::Refused(refusal) if refusal.class == ErrorClass::Transient);
        if verdict != Verdict::Applied && !may_have_come {
            self.rollouts.release(&key);
        }
        Ok(Applied {
            valid: Some(valid),
            verdict,
            done,
            scaling,
            paced: Some(paced),
        })
    }

    /// What built-in servers of a namespace get, unless their deployment says otherwise.
    fn built_in_in(&self, namespace: Option<&Namespace>) -> Result<BuiltIn, Violation> {
        let annotations = namespace.and_then(|n| n.metadata.annotations.as_ref());
        let image = server_image_of(annotations).map_err(|violation| Violation {
            field: format!("the namespace's {}", violation.field),
            ..violation
        })?;
        let mut built_in = self.built_in.clone();
        if let Some(image) = image {
            image.clone_into(&mut built_in.image);
        }
        Ok(built_in)
    }

    /// Asks more often of those servers that have yet to take the newest settings.
    fn hurry(&self, facts: &Facts<'_>) {
        let namespace = facts.deployment.metadata.namespace.clone();
        let namespace = namespace.unwrap_or_default();
        for pod in facts.pods {
            let key = Key::new(&namespace, &pod.name);
            self.states.set_pending(&key, facts.is_behind(pod));
        }
    }

    /// Writes the status if it is time; returns when to come back for it otherwise.
    async fn report(
        &self,
        observation: &mut Observation,
        applied: &Applied,
        memory: &std::sync::Mutex<Memory>,
    ) -> Result<Option<std::time::Duration>, ClusterError> {
        let namespace = observation.deployment.metadata.namespace.clone();
        let namespace = namespace.unwrap_or_default();
        let explained =
            self.pod_events
                .explain(&self.cluster, &namespace, &mut observation.pods, memory);
        let explained = explained.await;
        let respawns = lock(memory)
            .respawns
            .note(&observation.pods, Instant::now());
        let mut deployment = InferenceDeployment::clone(&observation.deployment);
        deployment.status = status_before(&deployment, &lock(memory));
        let workload = workload(observation, &lock(memory));
        let settings = applied
            .valid
            .as_ref()
            .and_then(|valid| valid.settings.as_deref());
        let settings_sha256 = settings.map(|text| sha256_of(text.as_bytes()));
        let facts = Facts {
            deployment: &deployment,
            verdict: &applied.verdict,
            served: applied.valid.as_ref().map(served),
            settings_sha256: settings_sha256.as_deref(),
            workload: workload.as_ref(),
            pods: &observation.pods,
            respawns,
        };
        let now = now();
        let mut status = status_of(&facts, &now);
        rollout::report(
            &mut status,
            deployment.status.as_ref(),
            observation.children.get(&ChildKind::Deployment),
            applied.paced.as_ref(),
            &now,
        );
        self.hurry(&facts);
        let before = deployment.status.as_ref();
        let (done, scaling) = (&applied.done, applied.scaling.as_ref());
        let mut told = happenings(&deployment, before, &status, done, scaling);
        let respawned = lock(memory).respawns.event(Instant::now());
        told.extend(respawned.map(|note| Happening {
            regarding: deployment.object_ref(&()),
            severity: Severity::Warning,
            reason: "WorkersRespawned",
            action: "Serve",
            note,
        }));
        told.extend(rollout::happening(&deployment, before, &status));
        self.tell(&deployment, &told, applied);
        let due = lock(memory).respawns.due(Instant::now());
        let after = explained.into_iter().chain(due).min();
        match writing(before, &status, &lock(memory), Instant::now()) {
            Writing::Never => return Ok(after),
            Writing::After(pause) => return Ok(after.into_iter().chain([pause]).min()),
            Writing::Now => {}
        }
        let is_written = self.write_status(&deployment, status, memory).await?;
        Ok(if is_written {
            after
        } else {
            Some(COLLECTING_PAUSE)
        })
    }

    /// Writes the status and notes it in `memory`. False: the object was deleted meanwhile, which
    /// the watch
    /// reports, or its kind is not served by every API server yet.
    async fn write_status(
        &self,
        deployment: &InferenceDeployment,
        status: InferenceDeploymentStatus,
        memory: &std::sync::Mutex<Memory>,
    ) -> Result<bool, ClusterError> {
        let body = json!({
            "apiVersion": "albacore.dev/v1alpha1",
            "kind": "InferenceDeployment",
            "metadata": {
                "name": deployment.metadata.name,
                "namespace": deployment.metadata.namespace,
                "uid": deployment.metadata.uid,
            },
            "status": status,
        });
        match self.cluster.apply_status(&deployments_kind(), &body).await {
            Ok(answer) => {
                let version = answer.metadata.resource_version.unwrap_or_default();
                lock(memory).status = Some((status, version, Instant::now()));
                Ok(true)
            }
            Err(error) if error.class() == ErrorClass::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn tell(&self, deployment: &InferenceDeployment, happenings: &[Happening], applied: &Applied) {
        let key = Key::of(deployment).to_string();
        for happening in happenings {
            let (reason, note) = (happening.reason, happening.note.as_str());
            tracing::info!(deployment = key, reason, note, "told");
            self.events.tell(happening.clone());
        }
        if let Some(scaling) = applied.scaling {
            let direction = if scaling.to > scaling.from {
                "up"
            } else {
                "down"
            };
            self.counts
                .scalings
                .get_or_create(&Scaled { direction })
                .inc();
        }
    }

    fn now(&self) -> Nanos {
        let elapsed = self.start.elapsed().as_nanos();
        Nanos(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}

/// Whether the spec was edited after the status was written.
fn is_newer_than_status(deployment: &InferenceDeployment) -> bool {
    let seen = deployment
        .status
        .as_ref()
        .and_then(|s| s.observed_generation);
    deployment.metadata.generation > seen
}

/// What came of applying children: what the API server says against one is a verdict. What usually
/// passes (an answer 5xx) is one when it did not pass by the second try.
fn verdict(
    applied: Result<Verdict, ClusterError>,
    memory: &mut Memory,
) -> Result<Verdict, ClusterError> {
    let error = match applied {
        Ok(verdict) => {
            memory.failures = 0;
            return Ok(verdict);
        }
        Err(error) => error,
    };
    memory.failures = memory.failures.saturating_add(1);
    let is_told = error.class() != ErrorClass::Transient || memory.failures > 1;
    match Refusal::of(&error).filter(|_| is_told) {
        Some(refusal) => Ok(Verdict::Refused(refusal)),
        None => Err(error),
    }
}

/// The Deployment of the pods; not observed by its controller while the watch has not told of what
/// was applied last.
fn workload(observation: &Observation, memory: &Memory) -> Option<Workload> {
    let live = observation.children.get(&ChildKind::Deployment)?;
    let mut workload = Workload::of(live);
    if let Some(applied) = memory.applied(ChildKind::Deployment, true) {
        let is_told = is_not_newer(&applied.resource_version, &live.resource_version);
        workload.is_observed &= is_told;
    }
    Some(workload)
}

/// Now, in whole seconds: what Kubernetes keeps of a time.
fn now() -> Time {
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}
