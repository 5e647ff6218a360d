//! Reconciles one deployment: `observe -> validate -> build -> apply -> report`.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use albacore_api::{
    InferenceDeployment, InferenceDeploymentSpec, InferenceDeploymentStatus, Violation,
    server_image_of,
};
use albacore_batching::Nanos;
use albacore_cluster::{
    Cluster, ClusterError, ErrorClass, EventDraft, EventRecorder, ObjectKey, Resource as _,
    WorkOutcome, WorkQueue,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::apply::{AppliedChanges, ChildApplier};
use crate::autoscale::{Scaling, replicas};
use crate::build::{BuildContext, BuiltInOptions, build, exposed_protocols};
use crate::child_action::is_not_newer;
use crate::children::{ChildKind, ChildObject};
use crate::digest::sha256_of;
use crate::limits::{
    CREATION_REPORTED_TIME_MAX, GARBAGE_COLLECTION_PAUSE, NAME_TAKEN_PAUSE, SCRAPE_PERIOD,
    SKIPPED_PAUSE,
};
use crate::metrics::{ControllerMetrics, ReconcileLabel, ScaleLabel};
use crate::observe::{ObservedDeployment, observe};
use crate::observed::Workload;
use crate::pod_events::PodEvents;
use crate::record::{DeploymentRecord, DeploymentRecords, lock};
use crate::rejected_write::{RejectedWrite, with_remedy};
use crate::report::{
    ReconcileChanges, WriteDecision, events, measurements_pause, status_before, write_decision,
};
use crate::rollout::{RolloutDecision, RolloutInputs, Rollouts, image_of};
use crate::scrape::ServerStates;
use crate::status::{ApplyOutcome, DeploymentFacts, status_of};
use crate::traffic::{
    TrafficInputs, TrafficOutcome, apply_decision, decide, is_spare, selects_traffic,
};
use crate::validate::{ValidDeployment, validate};
use crate::watches::{Watches, deployments_kind};

/// Shared state of all reconciles.
pub(crate) struct Controller {
    pub(crate) cluster: Cluster,
    pub(crate) watches: Watches,
    pub(crate) states: ServerStates,
    pub(crate) records: DeploymentRecords,
    pub(crate) events: EventRecorder,
    pub(crate) metrics: ControllerMetrics,
    pub(crate) pod_events: PodEvents,
    pub(crate) built_in: BuiltInOptions,
    pub(crate) rollouts: Rollouts,
    pub(crate) queue: WorkQueue<ObjectKey>,
    /// How long fewer pods must have been sufficient before some become spare.
    pub(crate) consolidation_delay: Duration,
    /// Start of the autoscaler's clock.
    pub(crate) start: Instant,
}

/// The result of applying a deployment.
struct ApplyResult {
    valid: Option<ValidDeployment>,
    outcome: ApplyOutcome,
    changes: AppliedChanges,
    scaling: Option<Scaling>,
    /// The decision about the roll-out; `None` for an invalid spec.
    decision: Option<RolloutDecision>,
    /// The decision about the pods that receive requests.
    traffic: TrafficOutcome,
}

impl ApplyResult {
    fn invalid(violations: Vec<Violation>, traffic: TrafficOutcome) -> Self {
        Self {
            valid: None,
            outcome: ApplyOutcome::Invalid(violations),
            changes: AppliedChanges::default(),
            scaling: None,
            decision: None,
            traffic,
        }
    }
}

impl Controller {
    /// Reconciles one deployment, and queues those whose roll-out may start now.
    pub(crate) async fn reconcile(&self, key: ObjectKey) -> WorkOutcome {
        let outcome = self.reconcile_once(key).await;
        for due in self.rollouts.due(now().0) {
            self.queue.add(due);
        }
        outcome
    }

    /// Rebuilds the slots of roll-outs from the caches of the watches.
    pub(crate) fn rebuild_rollouts(&self) {
        self.rollouts
            .rebuild(self.watches.pod_deployments(), now().0);
    }

    async fn reconcile_once(&self, key: ObjectKey) -> WorkOutcome {
        let Some(mut observation) = observe(&key, &self.watches, &self.states) else {
            self.records.remove_deployment(&key);
            self.rollouts.release(&key);
            return self.count("gone", WorkOutcome::Done);
        };
        let metadata = &observation.deployment.metadata;
        // Its children are garbage-collected by their owner references.
        if metadata.deletion_timestamp.is_some() {
            self.rollouts.release(&key);
            return self.count("gone", WorkOutcome::Done);
        }
        let record = self
            .records
            .of(&key, metadata.uid.as_deref().unwrap_or_default());
        let result = async {
            let applied = self.apply(&mut observation, &record).await?;
            let after = self.report(&mut observation, &applied, &record).await?;
            Ok::<_, ClusterError>((applied, after))
        };
        match result.await {
            Ok((applied, after)) => self.requeue(&observation.deployment, &applied, after),
            Err(error) => self.handle_error(&key, &observation.deployment, &error),
        }
    }

    fn count(&self, result: &'static str, outcome: WorkOutcome) -> WorkOutcome {
        let reconciles = &self.metrics.reconciles;
        reconciles.get_or_create(&ReconcileLabel { result }).inc();
        outcome
    }

    /// When to requeue the deployment after a reconcile without an error.
    fn requeue(
        &self,
        deployment: &InferenceDeployment,
        applied: &ApplyResult,
        after: Option<Duration>,
    ) -> WorkOutcome {
        let (result, pause) = match &applied.outcome {
            ApplyOutcome::Applied => ("applied", after),
            ApplyOutcome::Invalid(_) => ("invalid", after),
            ApplyOutcome::NameConflict(_) => ("taken", Some(NAME_TAKEN_PAUSE)),
            ApplyOutcome::AwaitingGarbageCollection(_) => {
                ("collecting", Some(GARBAGE_COLLECTION_PAUSE))
            }
            ApplyOutcome::Rejected(rejection) => {
                return self.count("refused", WorkOutcome::Failed(rejection.class));
            }
        };
        // The autoscaler needs a reconcile each period even if nothing changes, because its delay
        // of five minutes before scaling down may expire.
        let is_scaled = deployment.spec.autoscaling.is_some() && applied.valid.is_some();
        let autoscaler_pause = is_scaled.then_some(SCRAPE_PERIOD);
        // Checks a created child at the time by which its watch should have reported it.
        let creation = (!applied.changes.created.is_empty()).then_some(CREATION_REPORTED_TIME_MAX);
        let rollout = applied
            .decision
            .as_ref()
            .and_then(|decision| decision.pause);
        let skipped = (!applied.changes.skipped.is_empty()).then_some(SKIPPED_PAUSE);
        let traffic = applied.traffic.pause;
        let pauses = [pause, autoscaler_pause, creation, rollout, skipped, traffic];
        let outcome = match pauses.into_iter().flatten().min() {
            Some(pause) => WorkOutcome::After(pause),
            None => WorkOutcome::Done,
        };
        self.count(result, outcome)
    }

    /// Handles an error of a status write, or of a request without a response. Rejected writes of
    /// children are outcomes, not errors.
    fn handle_error(
        &self,
        key: &ObjectKey,
        regarding: &InferenceDeployment,
        error: &ClusterError,
    ) -> WorkOutcome {
        let class = error.class();
        let deployment = key.to_string();
        let may_have_taken_effect = matches!(
            class,
            ErrorClass::Conflict | ErrorClass::Transient | ErrorClass::Throttled(_)
        );
        if !may_have_taken_effect {
            self.rollouts.release(key);
        }
        match class {
            // A write conflict or a missing response; both are transient.
            ErrorClass::Conflict | ErrorClass::Transient | ErrorClass::Throttled(_) => {
                tracing::debug!(deployment, %error, ?class, "a reconcile is retried");
            }
            _ => {
                tracing::warn!(deployment, %error, ?class, "a reconcile failed");
                let reason = match class {
                    ErrorClass::Invalid => "SchemaOutdated",
                    _ => "MissingPermission",
                };
                let note = with_remedy(&error.to_string(), reason);
                let event = EventDraft::warning("StatusRefused", "Report", note);
                self.events
                    .record(event.regarding(regarding.object_ref(&())));
            }
        }
        // No watch event of the deployment follows when an outdated schema is replaced, so it is
        // retried like a forbidden write.
        let class = match class {
            ErrorClass::Invalid => ErrorClass::Forbidden,
            class => class,
        };
        self.count("failed", WorkOutcome::Failed(class))
    }

    /// Validates, builds and applies a deployment.
    async fn apply(
        &self,
        observation: &mut ObservedDeployment,
        record: &Mutex<DeploymentRecord>,
    ) -> Result<ApplyResult, ClusterError> {
        let key = ObjectKey::of(&*observation.deployment);
        let validated = self.validate(observation);
        let spec = validated.as_ref().ok().map(|(valid, _)| &valid.spec);
        let traffic = self.direct_traffic(spec, observation, record).await?;
        let (valid, built_in) = match validated {
            Ok(both) => both,
            Err(violations) => {
                self.rollouts.release(&key);
                return Ok(ApplyResult::invalid(violations, traffic));
            }
        };
        let (mut children, scaling) =
            self.desired_children(&valid, built_in, observation, &traffic, record);
        let decision = self.decide_rollout(&key, &valid, observation, &mut children, record);
        let mut applier = ChildApplier {
            cluster: &self.cluster,
            valid: &valid,
            record,
            live: &mut observation.children,
            changes: AppliedChanges::default(),
            is_held: decision.is_held,
        };
        let applied = applier.apply(&children).await;
        let changes = applier.changes;
        let outcome = outcome(applied, &mut lock(record))?;
        // A write that failed with a transient error may have taken effect.
        let may_have_taken_effect = matches!(&outcome, ApplyOutcome::Rejected(rejection) if rejection.class == ErrorClass::Transient);
        if outcome != ApplyOutcome::Applied && !may_have_taken_effect {
            self.rollouts.release(&key);
        }
        Ok(ApplyResult {
            valid: Some(valid),
            outcome,
            changes,
            scaling,
            decision: Some(decision),
            traffic,
        })
    }

    /// Decides which pods receive requests, and updates their labels. Runs before children are
    /// applied, so that pods receive requests again before the Service changes.
    async fn direct_traffic(
        &self,
        spec: Option<&InferenceDeploymentSpec>,
        observation: &mut ObservedDeployment,
        record: &Mutex<DeploymentRecord>,
    ) -> Result<TrafficOutcome, ClusterError> {
        let workload = workload(observation, &lock(record));
        let inputs = TrafficInputs {
            spec,
            workload: workload.as_ref(),
            pods: &observation.pods,
            delay: self.consolidation_delay,
        };
        let decision = decide(&inputs, &mut lock(record).traffic, self.now());
        let namespace = observation.deployment.metadata.namespace.as_deref();
        let namespace = namespace.unwrap_or_default();
        let outcome =
            apply_decision(&self.cluster, namespace, &mut observation.pods, decision).await?;
        let has_spare = observation.pods.iter().any(is_spare);
        for pod in &observation.pods {
            let key = ObjectKey::new(namespace, &pod.name);
            self.states
                .set_serves_spare_load(&key, has_spare && !is_spare(pod));
        }
        Ok(outcome)
    }

    /// Returns the valid deployment, and the options of its built-in server.
    fn validate(
        &self,
        observation: &ObservedDeployment,
    ) -> Result<(ValidDeployment, BuiltInOptions), Vec<Violation>> {
        let valid = validate(&observation.deployment)?;
        let built_in = self.built_in_of_namespace(observation.namespace.as_deref());
        Ok((valid, built_in.map_err(|violation| vec![violation])?))
    }

    /// Returns the children to apply, and the change of the number of pods by the autoscaler.
    fn desired_children(
        &self,
        valid: &ValidDeployment,
        built_in: BuiltInOptions,
        observation: &ObservedDeployment,
        traffic: &TrafficOutcome,
        record: &Mutex<DeploymentRecord>,
    ) -> (Vec<ChildObject>, Option<Scaling>) {
        let live = observation.children.get(&ChildKind::Deployment);
        let workload = live.map(Workload::of);
        let (replicas, scaling) = replicas(
            &valid.spec,
            &observation.pods,
            workload.as_ref(),
            &mut lock(record),
            self.now(),
        );
        let build_context = BuildContext {
            built_in,
            has_service_monitors: self.watches.has(ChildKind::ServiceMonitor),
            replicas,
            selects_traffic: traffic.refused.is_none()
                && selects_traffic(&valid.spec, live, &observation.pods),
        };
        let mut children = build(valid, &build_context);
        // A deployment keeps its name even if the headless Service of another deployment has the
        // same name.
        let pods = ChildKind::PodsService;
        let namesake = ObjectKey::new(&valid.namespace, pods.name_of(&valid.name));
        if self.watches.deployments.get(&namesake).is_some() {
            children.retain(|child| child.kind != pods);
        }
        (children, scaling)
    }

    /// Decides whether the desired Deployment may be applied now.
    fn decide_rollout(
        &self,
        key: &ObjectKey,
        valid: &ValidDeployment,
        observation: &ObservedDeployment,
        children: &mut [ChildObject],
        record: &Mutex<DeploymentRecord>,
    ) -> RolloutDecision {
        let workload = workload(observation, &lock(record));
        let live = observation.children.get(&ChildKind::Deployment);
        let inputs = RolloutInputs {
            key,
            valid,
            live: live.zip(workload.as_ref()),
            is_edited: is_newer_than_status(&observation.deployment),
        };
        self.rollouts.decide(&inputs, children, now().0)
    }

    /// The options of built-in servers in a namespace, which their deployments may override.
    fn built_in_of_namespace(
        &self,
        namespace: Option<&Namespace>,
    ) -> Result<BuiltInOptions, Violation> {
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

    /// Records events, and writes the status if a write is due; otherwise returns when it is due.
    async fn report(
        &self,
        observation: &mut ObservedDeployment,
        applied: &ApplyResult,
        record: &Mutex<DeploymentRecord>,
    ) -> Result<Option<Duration>, ClusterError> {
        let namespace = observation.deployment.metadata.namespace.clone();
        let namespace = namespace.unwrap_or_default();
        let pods = &mut observation.pods;
        let next_read =
            self.pod_events
                .add_problem_from_events(&self.cluster, &namespace, pods, record);
        let next_read = next_read.await;
        let mut deployment = InferenceDeployment::clone(&observation.deployment);
        deployment.status = status_before(&deployment, &lock(record));
        let status = self.status(&deployment, observation, applied, record);
        self.record_events(&deployment, &status, applied, record);
        let due = lock(record).respawns.due(Instant::now());
        let after = next_read.into_iter().chain(due).min();
        let before = deployment.status.as_ref();
        let pause = measurements_pause(self.watches.deployments.count());
        let decision = write_decision(before, &status, &lock(record), Instant::now(), pause);
        match decision {
            WriteDecision::Never => return Ok(after),
            WriteDecision::After(pause) => return Ok(after.into_iter().chain([pause]).min()),
            WriteDecision::Now => {}
        }
        let is_written = self.write_status(&deployment, status, record).await?;
        Ok(if is_written {
            after
        } else {
            Some(GARBAGE_COLLECTION_PAUSE)
        })
    }

    /// Computes the status of `deployment`, which contains its current one. Servers that do not
    /// have the newest settings yet are scraped more often.
    fn status(
        &self,
        deployment: &InferenceDeployment,
        observation: &ObservedDeployment,
        applied: &ApplyResult,
        record: &Mutex<DeploymentRecord>,
    ) -> InferenceDeploymentStatus {
        let workload = workload(observation, &lock(record));
        let valid = applied.valid.as_ref();
        let settings = valid.and_then(|valid| valid.settings.as_deref());
        let settings_sha256 = settings.map(|text| sha256_of(text.as_bytes()));
        let live = observation.children.get(&ChildKind::Deployment);
        let facts = DeploymentFacts {
            deployment,
            outcome: &applied.outcome,
            exposed_protocols: valid.map(exposed_protocols),
            settings_sha256: settings_sha256.as_deref(),
            workload: workload.as_ref(),
            pods: &observation.pods,
            respawns: lock(record)
                .respawns
                .record(&observation.pods, Instant::now()),
            server_image: live.and_then(|live| image_of(&live.body)),
            rollout: applied.decision.as_ref(),
            traffic: applied.traffic.status(&observation.pods),
        };
        for pod in facts.pods {
            let namespace = deployment.metadata.namespace.as_deref().unwrap_or_default();
            let key = ObjectKey::new(namespace, &pod.name);
            self.states.set_pending(&key, facts.has_stale_settings(pod));
        }
        status_of(&facts, &now())
    }

    /// Writes the status and stores it in `record`. Returns false if the deployment was deleted
    /// meanwhile, which the watch reports, or if not every API server serves its kind yet.
    async fn write_status(
        &self,
        deployment: &InferenceDeployment,
        status: InferenceDeploymentStatus,
        record: &Mutex<DeploymentRecord>,
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
            Ok(response) => {
                let version = response.metadata.resource_version.unwrap_or_default();
                lock(record).status = Some((status, version, Instant::now()));
                Ok(true)
            }
            Err(error) if error.class() == ErrorClass::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Records events and counts metrics for the changes between the current status of `deployment`
    /// and `status`.
    fn record_events(
        &self,
        deployment: &InferenceDeployment,
        status: &InferenceDeploymentStatus,
        applied: &ApplyResult,
        record: &Mutex<DeploymentRecord>,
    ) {
        let changes = ReconcileChanges {
            applied: &applied.changes,
            scaling: applied.scaling.as_ref(),
            respawn_note: lock(record).respawns.event(Instant::now()),
            has_traffic_changed: applied.traffic.is_changed,
        };
        let key = ObjectKey::of(deployment).to_string();
        for event in events(deployment, deployment.status.as_ref(), status, changes) {
            let (reason, note) = (event.reason, event.note.as_str());
            tracing::info!(deployment = key, reason, note, "events");
            self.events.record(event);
        }
        if let Some(Scaling { from, to, .. }) = applied.scaling {
            let direction = if to > from { "up" } else { "down" };
            let scalings = &self.metrics.scalings;
            scalings.get_or_create(&ScaleLabel { direction }).inc();
        }
    }

    fn now(&self) -> Nanos {
        let elapsed = self.start.elapsed().as_nanos();
        Nanos(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}

/// Whether the spec was edited after the last status write.
fn is_newer_than_status(deployment: &InferenceDeployment) -> bool {
    let observed = deployment
        .status
        .as_ref()
        .and_then(|s| s.observed_generation);
    deployment.metadata.generation > observed
}

/// The outcome of applying children. A rejected write is an outcome; a transient error (5xx) is one
/// from its second consecutive occurrence.
fn outcome(
    applied: Result<ApplyOutcome, ClusterError>,
    record: &mut DeploymentRecord,
) -> Result<ApplyOutcome, ClusterError> {
    let error = match applied {
        Ok(outcome) => {
            record.failures = 0;
            return Ok(outcome);
        }
        Err(error) => error,
    };
    record.failures = record.failures.saturating_add(1);
    let is_reported = error.class() != ErrorClass::Transient || record.failures > 1;
    match RejectedWrite::of(&error).filter(|_| is_reported) {
        Some(rejection) => Ok(ApplyOutcome::Rejected(rejection)),
        None => Err(error),
    }
}

/// The Deployment of the pods. It counts as not observed by its controller until the watch has
/// reported the last apply.
fn workload(observation: &ObservedDeployment, record: &DeploymentRecord) -> Option<Workload> {
    let live = observation.children.get(&ChildKind::Deployment)?;
    let mut workload = Workload::of(live);
    if let Some(applied) = record.applied(ChildKind::Deployment, true) {
        let is_reported = is_not_newer(&applied.resource_version, &live.resource_version);
        workload.is_observed &= is_reported;
    }
    Some(workload)
}

/// The current time in whole seconds, the resolution that Kubernetes stores.
fn now() -> Time {
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}
