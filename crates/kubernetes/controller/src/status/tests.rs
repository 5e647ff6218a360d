//! Tests of the status for given facts, and of the rules of kstatus for random ones.

use albacore_api::{InferenceDeployment, PodPlacement, ServerLimit, Utilization, read_deployment};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::conditions::{RECONCILING, STALLED};
use super::*;
use crate::observed::ObservedCondition;
use crate::server_state::{
    BatchingChoice, FrontState, KindOutcomes, LatencyFit, ModelLoadState, ModelState,
    RequestOutcomes, ServerState, WorkerStates,
};

const SETTINGS: &str = "in force";

fn deployment() -> InferenceDeployment {
    let object = json!({"apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
        "metadata": {"name": "fraud", "namespace": "bank", "uid": "u", "generation": 3},
        "spec": {"workers": 2, "threads": 4, "models": [
            {"name": "m", "uri": "file:///m", "slo": {"latency": "25ms", "percentile": 99}}]}});
    read_deployment(&object.to_string(), "f.yaml").unwrap()
}

fn workload(desired: i32, updated: i32, available: i32) -> Workload {
    let condition = |status: &str, reason: &str| {
        Some(ObservedCondition {
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: "as condition".to_owned(),
        })
    };
    let is_complete = updated == desired && available == desired;
    Workload {
        replica_failure_condition: None,
        is_observed: true,
        desired,
        replicas: desired,
        updated,
        ready: available,
        available,
        available_condition: condition(
            if available > 0 { "True" } else { "False" },
            "MinimumReplicas",
        ),
        progressing_condition: condition(
            "True",
            if is_complete {
                "NewReplicaSetAvailable"
            } else {
                "ReplicaSetUpdated"
            },
        ),
    }
}

fn state(alive: u32) -> ServerState {
    let model = ModelState {
        name: "m".to_owned(),
        source: deployment().spec.models[0]
            .uri
            .place
            .source_in_pod()
            .to_string(),
        sha256: Some("ab".to_owned()),
        state: ModelLoadState::Loaded,
        error: None,
        latency: vec![LatencyFit {
            kind: "value".to_owned(),
            alpha_us: 1.849,
            beta_us: 1234.0,
            samples: 9,
        }],
        outcomes: None,
        batching: vec![BatchingChoice {
            kind: "value".to_owned(),
            deferred: false,
            explanation: "eager: eager batches sustain the load".to_owned(),
        }],
    };
    ServerState {
        settings_sha256: SETTINGS.to_owned(),
        settings_error: None,
        in_force_sha256: None,
        params: None,
        workers: WorkerStates {
            wanted: 2,
            alive,
            ..WorkerStates::default()
        },
        models: vec![model],
        window_seconds: 60.0,
        goodput_per_second: 1234.0,
        idle_share: 0.4,
        front: Some(FrontState {
            busy: 0.87,
            ..FrontState::default()
        }),
        latency_p99_ms: Some(11.26),
        requests: RequestOutcomes {
            good: 990,
            late: 10,
            shed: 0,
            failed: 0,
        },
        requests_newest: RequestOutcomes::default(),
    }
}

fn pod(name: &str, state: Option<ServerState>) -> ObservedPod {
    let placement = PodPlacement {
        pod: format!("bank/{name}"),
        workers: 2,
        workers_verified: 2,
        planned: 8,
        verified: 8,
        ..PodPlacement::default()
    };
    ObservedPod {
        name: name.to_owned(),
        uid: name.to_owned(),
        is_ready: true,
        state,
        placement: Some(placement),
        ..ObservedPod::default()
    }
}

fn time(second: i64) -> Time {
    Time(Timestamp::from_second(second).unwrap())
}

struct StatusCase {
    deployment: InferenceDeployment,
    outcome: ApplyOutcome,
    workload: Option<Workload>,
    pods: Vec<ObservedPod>,
    respawns: RecentRespawns,
}

impl StatusCase {
    fn healthy() -> Self {
        Self {
            deployment: deployment(),
            outcome: ApplyOutcome::Applied,
            workload: Some(workload(2, 2, 2)),
            pods: vec![pod("a", Some(state(2))), pod("b", Some(state(2)))],
            respawns: RecentRespawns::default(),
        }
    }

    fn status_at(&self, second: i64) -> InferenceDeploymentStatus {
        let facts = DeploymentFacts {
            deployment: &self.deployment,
            outcome: &self.outcome,
            exposed_protocols: match self.outcome {
                ApplyOutcome::Invalid(_) => None,
                _ => Some((true, true)),
            },
            settings_sha256: Some(SETTINGS),
            workload: self.workload.as_ref(),
            pods: &self.pods,
            respawns: self.respawns.clone(),
            server_image: None,
            rollout: None,
            traffic: None,
        };
        status_of(&facts, &time(second))
    }

    fn status(&self) -> InferenceDeploymentStatus {
        self.status_at(100)
    }

    /// `status/reason` of a condition, empty if it is absent.
    fn condition_text(&self, kind: &str) -> String {
        let status = self.status();
        let found = status.conditions.iter().find(|c| c.type_ == kind);
        found
            .map(|c| format!("{}/{}", c.status, c.reason))
            .unwrap_or_default()
    }
}

#[test]
fn a_healthy_deployment_reports_its_url_and_its_placement() {
    let case = StatusCase::healthy();
    let status = case.status();
    assert_eq!(status.observed_generation, Some(3));
    assert_eq!(status.ready.as_deref(), Some("2/2"));
    assert_eq!(status.shape.as_deref(), Some("2x4"));
    assert_eq!(status.pinned.as_deref(), Some("16/16"));
    assert_eq!(
        status.selector.as_deref(),
        Some("albacore.dev/deployment=fraud")
    );
    assert_eq!(status.url.as_deref(), Some("http://fraud.bank.svc:8080"));
    assert_eq!(status.grpc_url.as_deref(), Some("fraud.bank.svc:8081"));
    assert_eq!(status.goodput.as_deref(), Some("2500/s"));
    assert_eq!(status.latency_p99.as_deref(), Some("11ms"));
    assert_eq!(status.bad_rate.as_deref(), Some("1%"));
    // A bad share of 1 % is more than half of what the percentile 99 allows: the autoscaler
    // requests more pods before the objective is missed.
    assert_eq!(status.load_factor.as_deref(), Some("1.1"));
    let utilization = Utilization {
        front: "87%".to_owned(),
        workers: "60%".to_owned(),
        limit: Some(ServerLimit::Front),
    };
    assert_eq!(status.utilization, Some(utilization));
    let counts = status.workers.unwrap();
    assert_eq!(
        (counts.wanted, counts.live, counts.placed, counts.verified),
        (4, 4, 4, 4)
    );
    let model = &status.models[0];
    assert_eq!(
        (model.loaded.as_str(), model.sha256.as_deref()),
        ("2/2", Some("ab"))
    );
    assert_eq!(model.latency[0].per_row, "1.8us");
    assert_eq!(model.latency[0].per_batch, "1.2ms");
    assert_eq!(model.batching[0].deferred, "0/2");
    assert_eq!(
        model.batching[0].reason,
        "eager: eager batches sustain the load"
    );
    for (kind, expected) in [
        ("Ready", "True/Serving"),
        ("Available", "True/MinimumReplicas"),
        ("Progressing", "True/NewReplicaSetAvailable"),
        ("ModelLoaded", "True/Loaded"),
        ("Placed", "True/Verified"),
        ("SLOMet", "True/Met"),
        ("Reconciling", ""),
        ("Stalled", ""),
    ] {
        assert_eq!(case.condition_text(kind), expected, "{kind}");
    }
    assert!(
        status
            .conditions
            .iter()
            .all(|c| c.observed_generation == Some(3))
    );
}

/// A kind with the given numbers of good and bad requests; good ones took up to 2 ms, bad ones 80
/// ms.
fn kind(kind: &str, good: u64, bad: u64) -> KindOutcomes {
    KindOutcomes {
        kind: kind.to_owned(),
        requests: RequestOutcomes {
            good,
            late: bad,
            ..RequestOutcomes::default()
        },
        latency_us: vec![(2000, good), (80_000, bad)],
        ..KindOutcomes::default()
    }
}

/// Two models with objectives of 99 % and 90 %, and the outcomes that two pods report of each.
fn two_models(outcomes: [Vec<KindOutcomes>; 2]) -> StatusCase {
    let mut case = StatusCase::healthy();
    let mut small = case.deployment.spec.models[0].clone();
    small.name = "small".to_owned();
    small.slo.as_mut().unwrap().percentile = 90.0;
    case.deployment.spec.models.push(small);
    for pod in &mut case.pods {
        let mut state = state(2);
        state.models.push(ModelState {
            name: "small".to_owned(),
            ..state.models[0].clone()
        });
        for (model, outcomes) in state.models.iter_mut().zip(outcomes.clone()) {
            model.outcomes = Some(outcomes);
        }
        let of = |count: fn(&RequestOutcomes) -> u64| -> u64 {
            let kinds = outcomes.iter().flatten();
            kinds.map(|kind| count(&kind.requests)).sum()
        };
        state.requests.good = of(|counts| counts.good);
        state.requests.late = of(|counts| counts.late);
        pod.state = Some(state);
    }
    case
}

fn message(status: &InferenceDeploymentStatus, kind: &str) -> String {
    let condition = status.conditions.iter().find(|c| c.type_ == kind);
    condition.unwrap().message.clone()
}

#[test]
fn a_small_model_that_misses_its_objective_is_named_with_its_figures() {
    let case = two_models([
        vec![kind("value", 30_000, 20)],
        vec![kind("value", 30, 0), kind("contribs", 5, 15)],
    ]);
    let status = case.status();
    assert_eq!(status.bad_rate.as_deref(), Some("0.12%"), "over all models");
    assert_eq!(case.condition_text("SLOMet"), "False/Missed");
    assert_eq!(
        message(&status, "SLOMet"),
        "model small, contribs: 75% of 40 requests were late, shed or failed (at most 10% allowed)"
    );
    let [m, small] = status.models.as_slice() else {
        panic!("{:?}", status.models);
    };
    let figures = |model: &albacore_api::ModelStatus| {
        let of = |text: &Option<String>| text.clone().unwrap_or_default();
        let texts = [&model.goodput, &model.p99, &model.bad_rate].map(of);
        (texts.join(" "), model.slo_met)
    };
    assert_eq!(figures(m), ("1000/s 2ms 0.067%".to_owned(), Some(true)));
    assert_eq!(figures(small), ("1.2/s 80ms 30%".to_owned(), Some(false)));
    // The worst model decides: three of four of its requests were bad.
    assert_eq!(status.load_factor.as_deref(), Some("4"));
}

#[test]
fn requests_refused_unread_count_for_their_model() {
    let case = two_models([vec![kind("value", 99, 1)], vec![kind("unread", 0, 7)]]);
    assert_eq!(
        message(&case.status(), "SLOMet"),
        "model small: 100% of 14 requests were late, shed or failed (at most 10% allowed)"
    );
    let idle = two_models([vec![kind("value", 99, 1)], Vec::new()]);
    assert_eq!(idle.condition_text("SLOMet"), "True/Met");
    assert_eq!(idle.status().models[1].slo_met, Some(true));
    let mut free = idle;
    free.deployment.spec.models[1].slo = None;
    assert_eq!(free.status().models[1].slo_met, None);
}

#[test]
fn servers_that_report_no_outcomes_by_model_are_judged_by_all_requests_together() {
    let mut case = two_models([Vec::new(), Vec::new()]);
    for pod in &mut case.pods {
        let state = pod.state.as_mut().unwrap();
        state.models.iter_mut().for_each(|m| m.outcomes = None);
        (state.requests.good, state.requests.late) = (980, 20);
    }
    let status = case.status();
    assert_eq!(
        message(&status, "SLOMet"),
        "all models together: 2% of 2000 requests were late, shed or failed (at most 1% allowed)"
    );
    assert_eq!(status.load_factor.as_deref(), Some("1.1"));
    let absent = |model: &albacore_api::ModelStatus| {
        (&model.goodput, &model.p99, &model.bad_rate, model.slo_met) == (&None, &None, &None, None)
    };
    assert!(status.models.iter().all(absent), "{:?}", status.models);
    // During an upgrade one pod reports them: its models have figures, and all requests count.
    let state = case.pods[1].state.as_mut().unwrap();
    state.models[0].outcomes = Some(vec![kind("value", 980, 0)]);
    state.models[1].outcomes = Some(vec![kind("value", 0, 20)]);
    let status = case.status();
    assert_eq!(status.models[1].bad_rate.as_deref(), Some("100%"));
    assert!(message(&status, "SLOMet").starts_with("model small, value: 100% of 20"));
}

#[test]
fn the_selector_is_there_from_the_first_reconcile_on() {
    let mut case = StatusCase::healthy();
    case.workload = None;
    case.pods.clear();
    let status = case.status();
    assert_eq!(
        (status.replicas, status.ready.as_deref()),
        (Some(0), Some("0/1"))
    );
    case.deployment.spec.replicas = Some(3);
    assert_eq!(case.status().ready.as_deref(), Some("0/3"));
    // With an autoscaler, the number in the spec may be the default, which is below its bounds.
    case.deployment.spec.replicas = Some(1);
    case.deployment.spec.autoscaling = Some(albacore_api::Autoscaling {
        min_replicas: 2,
        max_replicas: 5,
    });
    assert_eq!(case.status().ready.as_deref(), Some("0/2"));
    assert!(status.selector.is_some());
    assert_eq!(case.condition_text("Ready"), "False/Creating");
    assert_eq!(case.condition_text("Reconciling"), "True/Creating");
}

#[test]
fn without_a_live_worker_nothing_is_ready() {
    let mut case = StatusCase::healthy();
    case.pods = vec![pod("a", Some(state(0))), pod("b", Some(state(0)))];
    assert_eq!(case.condition_text("Ready"), "False/NoLiveWorkers");
    case.pods[1].state = Some(state(1));
    assert_eq!(case.condition_text("Ready"), "True/Serving");
    case.pods = vec![pod("a", None), pod("b", None)];
    assert_eq!(case.condition_text("Ready"), "Unknown/StateUnread");
    assert_eq!(case.condition_text("SLOMet"), "Unknown/StateUnread");
}

#[test]
fn a_rollout_is_not_ready_and_a_change_of_size_is() {
    let mut case = StatusCase::healthy();
    case.workload = Some(workload(2, 1, 2));
    assert_eq!(case.condition_text("Ready"), "False/RollingOut");
    assert_eq!(case.condition_text("Reconciling"), "True/RollingOut");
    let mut scaling = workload(2, 2, 2);
    scaling.desired = 3;
    case.workload = Some(scaling);
    assert_eq!(case.condition_text("Ready"), "True/Serving");
    assert_eq!(case.condition_text("Reconciling"), "True/Scaling");
    let mut stuck = workload(2, 1, 1);
    stuck.progressing_condition.as_mut().unwrap().reason = "ProgressDeadlineExceeded".to_owned();
    case.workload = Some(stuck);
    assert_eq!(
        case.condition_text("Stalled"),
        "True/ProgressDeadlineExceeded"
    );
    assert_eq!(case.condition_text("Reconciling"), "");
}

#[test]
fn at_zero_pods_there_is_nothing_to_be_ready() {
    let mut case = StatusCase::healthy();
    case.workload = Some(workload(0, 0, 0));
    case.pods.clear();
    assert_eq!(case.condition_text("Ready"), "");
    assert_eq!(case.condition_text("Reconciling"), "");
    assert_eq!(case.condition_text("ModelLoaded"), "Unknown/ScaledToZero");
    assert_eq!(case.condition_text("Placed"), "Unknown/ScaledToZero");
}

#[test]
fn every_blocking_problem_is_named() {
    let mut case = StatusCase::healthy();
    case.outcome = ApplyOutcome::NameConflict(ChildKind::Service);
    assert_eq!(case.condition_text("Stalled"), "True/NameTaken");
    assert_eq!(case.condition_text("Ready"), "False/NameTaken");
    case.outcome = ApplyOutcome::Rejected(rejection("ChildRefused", true));
    assert_eq!(case.condition_text("Stalled"), "True/ChildRefused");
    case.outcome = ApplyOutcome::Rejected(rejection("KindNotServed", false));
    assert_eq!(case.condition_text("Stalled"), "");
    assert_eq!(case.condition_text("Reconciling"), "True/KindNotServed");
    case.workload = None;
    assert_eq!(case.condition_text("Ready"), "False/KindNotServed");
    let violation = Violation {
        field: "spec.x".to_owned(),
        problem: "is 1".to_owned(),
        line: None,
    };
    case.outcome = ApplyOutcome::Invalid(vec![violation]);
    let status = case.status();
    let stalled = status
        .conditions
        .iter()
        .find(|c| c.type_ == "Stalled")
        .unwrap();
    assert_eq!(
        (stalled.reason.as_str(), stalled.message.as_str()),
        ("InvalidSpec", "spec.x is 1")
    );
    assert_eq!(status.url, None);
    case.deployment.status = Some(StatusCase::healthy().status());
    assert_eq!(
        case.status().url.as_deref(),
        Some("http://fraud.bank.svc:8080")
    );
    case.outcome = ApplyOutcome::AwaitingGarbageCollection(ChildKind::Service);
    assert_eq!(case.condition_text("Reconciling"), "True/Collecting");
}

#[test]
fn a_broken_model_is_named_with_its_pod() {
    let mut case = StatusCase::healthy();
    let mut broken = state(2);
    broken.models[0].state = ModelLoadState::Failed;
    broken.models[0].error = Some("no such file".to_owned());
    case.pods[1].state = Some(broken);
    assert_eq!(case.condition_text("Ready"), "False/ModelFailed");
    assert_eq!(case.condition_text("ModelLoaded"), "False/LoadFailed");
    let status = case.status();
    assert_eq!(status.models[0].error.as_deref(), Some("b: no such file"));
    assert_eq!(status.models[0].loaded, "1/2");
}

#[test]
fn settings_that_have_not_arrived_are_reconciled() {
    let mut case = StatusCase::healthy();
    case.pods[0].state.as_mut().unwrap().settings_sha256 = "older".to_owned();
    assert_eq!(case.condition_text("Reconciling"), "True/SettingsPending");
    case.pods[0].state.as_mut().unwrap().settings_error = Some("no".to_owned());
    assert_eq!(case.condition_text("Reconciling"), "True/SettingsRefused");
    assert_eq!(case.condition_text("Ready"), "True/Serving");
}

#[test]
fn settings_from_params_are_in_force_before_the_file_has_them() {
    let mut case = StatusCase::healthy();
    let condition = |generation| {
        Some(crate::server_state::ParamsState {
            generation: Some(generation),
            refused: None,
        })
    };
    let change = |case: &mut StatusCase, change: &dyn Fn(&mut ServerState)| {
        case.pods
            .iter_mut()
            .for_each(|pod| change(pod.state.as_mut().unwrap()));
    };
    change(&mut case, &|state| {
        state.settings_sha256 = "older".to_owned();
        state.in_force_sha256 = Some(SETTINGS.to_owned());
        state.params = condition(3);
    });
    assert_eq!(case.condition_text("Reconciling"), "");
    // The file is updated, but the parameters of the previous spec override it.
    change(&mut case, &|state| {
        state.settings_sha256 = SETTINGS.to_owned();
        state.in_force_sha256 = Some("older".to_owned());
        state.params = condition(2);
    });
    assert_eq!(case.condition_text("Reconciling"), "True/SettingsPending");
    change(&mut case, &|state| {
        state.params.as_mut().unwrap().refused = Some("no".to_owned());
    });
    assert_eq!(case.condition_text("Reconciling"), "True/SettingsRefused");
}

fn unready(name: &str, reason: &str, message: &str) -> ObservedPod {
    ObservedPod {
        is_ready: false,
        state: None,
        problem: Some(albacore_api::PodProblem {
            container: Some("server".to_owned()),
            reason: reason.to_owned(),
            message: message.to_owned(),
        }),
        ..pod(name, None)
    }
}

#[test]
fn a_pod_that_does_not_start_is_named_with_its_container_and_remedy() {
    let mut case = StatusCase::healthy();
    case.workload = Some(workload(4, 0, 0));
    let missing = "configmap \"x\" not found";
    case.pods = vec![
        unready("d", "CreateContainerConfigError", missing),
        unready("b", "OOMKilled", "ended"),
        unready("c", "CreateContainerConfigError", missing),
        unready("a", "CrashLoopBackOff", "ended"),
    ];
    assert_eq!(
        case.condition_text("Ready"),
        "False/CreateContainerConfigError"
    );
    let message = |case: &StatusCase, kind: &str| {
        let conditions = case.status().conditions;
        conditions
            .into_iter()
            .find(|c| c.type_ == kind)
            .unwrap()
            .message
    };
    let first = message(&case, "Ready");
    let begin = "pod c: container server: CreateContainerConfigError: configmap \"x\" not found; \
                 other pods that are not ready: 3; create the ConfigMap";
    assert!(first.starts_with(begin), "{first}");
    case.pods.reverse();
    assert_eq!(
        message(&case, "Ready"),
        first,
        "the order of pods does not matter"
    );
    // Reported during the roll-out, and after the Deployment's deadline was exceeded.
    assert!(message(&case, "Reconciling").contains("pod c: container server"));
    let stalled = case.workload.as_mut().unwrap();
    stalled.progressing_condition.as_mut().unwrap().reason = "ProgressDeadlineExceeded".to_owned();
    assert_eq!(
        case.condition_text("Stalled"),
        "True/ProgressDeadlineExceeded"
    );
    assert!(message(&case, "Stalled").contains("pod c: container server"));
    assert_eq!(
        case.condition_text("Ready"),
        "False/CreateContainerConfigError"
    );
    // The message is bounded for any number of problems and any length of texts.
    case.pods = (0..500)
        .map(|n| unready(&format!("{n}"), "Odd reason", &"ä".repeat(400)))
        .collect();
    assert_eq!(case.condition_text("Ready"), "False/PodNotReady");
    assert!(message(&case, "Ready").chars().count() <= crate::limits::MESSAGE_CHARS_MAX);
    // Pods that cannot even be created.
    case.workload.as_mut().unwrap().replica_failure_condition = Some(ObservedCondition {
        status: "True".to_owned(),
        reason: "FailedCreate".to_owned(),
        message: "exceeded quota".to_owned(),
    });
    assert_eq!(case.condition_text("Ready"), "False/PodsRefused");
    // One pod serves while another one does not start.
    case.workload = Some(workload(2, 2, 1));
    case.workload.as_mut().unwrap().progressing_condition = workload(2, 2, 2).progressing_condition;
    case.pods = vec![pod("a", Some(state(2))), unready("b", "OOMKilled", "ended")];
    assert_eq!(case.condition_text("Ready"), "True/Serving");
    assert!(message(&case, "Reconciling").contains("pod b: container server: OOMKilled"));
}

#[test]
fn a_standby_that_cannot_start_is_a_condition_while_it_lasts() {
    let mut case = StatusCase::healthy();
    assert_eq!(case.condition_text("StandbyMissing"), "");
    let front = case.pods[1].state.as_mut().unwrap().front.as_mut().unwrap();
    front.standby_error = Some("no memory".to_owned());
    assert_eq!(
        case.condition_text("StandbyMissing"),
        "True/StandbyStartFailed"
    );
    let begin = "1 of 2 pods cannot start a standby of their front process, which is retried; b: \
                 no memory";
    assert!(message(&case.status(), "StandbyMissing").starts_with(begin));
    assert_eq!(case.condition_text("Ready"), "True/Serving");
    let front = case.pods[1].state.as_mut().unwrap().front.as_mut().unwrap();
    front.standby_error = None;
    assert_eq!(case.condition_text("StandbyMissing"), "");
}

#[test]
fn workers_that_keep_ending_are_reported() {
    let mut case = StatusCase::healthy();
    let workers = |case: &StatusCase| case.status().workers.unwrap();
    assert_eq!(
        (workers(&case).respawns, workers(&case).last_cause),
        (0, None)
    );
    for (pod, restarts) in case.pods.iter_mut().zip([31, 2]) {
        let workers = &mut pod.state.as_mut().unwrap().workers;
        (workers.restarts, workers.last_exit) = (restarts, Some("signal 9".to_owned()));
    }
    assert_eq!(workers(&case).respawns, 33);
    assert_eq!(workers(&case).last_cause.as_deref(), Some("a: signal 9"));
    assert_eq!(case.condition_text("WorkersRespawning"), "");
    case.respawns = RecentRespawns {
        count: 5,
        last: Some("b: signal 9".to_owned()),
    };
    assert_eq!(workers(&case).last_cause.as_deref(), Some("b: signal 9"));
    assert_eq!(
        case.condition_text("WorkersRespawning"),
        "True/FrequentRespawns"
    );
    // A user's own server: as reported by the agent of its node.
    for pod in &mut case.pods {
        pod.state = None;
        pod.placement.as_mut().unwrap().respawns = 4;
    }
    assert_eq!(workers(&case).respawns, 8);
}

fn rejection(reason: &'static str, is_permanent: bool) -> RejectedWrite {
    RejectedWrite {
        reason,
        message: "spec.x: no".to_owned(),
        is_permanent,
        class: albacore_cluster::ErrorClass::Forbidden,
    }
}

#[test]
fn the_objective_is_judged_over_all_pods() {
    let mut case = StatusCase::healthy();
    case.pods[0].state.as_mut().unwrap().requests.late = 11;
    assert_eq!(case.condition_text("SLOMet"), "False/Missed");
    for pod in &mut case.pods {
        pod.state.as_mut().unwrap().requests = RequestOutcomes::default();
    }
    assert_eq!(case.condition_text("SLOMet"), "True/NoRequests");
}

#[test]
fn while_an_agent_is_silent_placement_is_unknown_and_its_node_is_named() {
    let mut case = StatusCase::healthy();
    let silence = |pod: &mut ObservedPod, node: String| {
        pod.placement = None;
        pod.silent_node = Some(node);
    };
    silence(&mut case.pods[1], "node-b".to_owned());
    let status = case.status();
    assert_eq!(status.pinned.as_deref(), Some("?"));
    assert_eq!(
        status.workers.as_ref().unwrap().verified,
        2,
        "of the other node"
    );
    let placed = |status: &InferenceDeploymentStatus| {
        let mut conditions = status.conditions.iter();
        conditions.find(|c| c.type_ == "Placed").cloned().unwrap()
    };
    let condition = placed(&status);
    assert_eq!(
        (condition.status.as_str(), condition.reason.as_str()),
        ("Unknown", "AgentSilent")
    );
    assert!(
        condition.message.starts_with("the agent of node node-b "),
        "{}",
        condition.message
    );
    assert_eq!(case.condition_text("Ready"), "True/Serving");

    // Many nodes: the message is bounded.
    case.pods = (0..12).map(|_| pod("p", Some(state(2)))).collect();
    for (number, pod) in case.pods.iter_mut().enumerate() {
        silence(pod, format!("node-{number:02}"));
    }
    let condition = placed(&case.status());
    assert!(
        condition
            .message
            .starts_with("the agents of nodes node-00, node-01,")
            && condition.message.contains("node-07 and 4 more "),
        "{}",
        condition.message
    );
    // A terminating pod is ignored, and the policy None requires no agent.
    case.pods.truncate(2);
    case.pods[0].is_inactive = true;
    assert!(!placed(&case.status()).message.contains("node-00"));
    case.deployment.spec.placement.policy = albacore_api::PlacementPolicy::None;
    assert_eq!(case.condition_text("Placed"), "True/PolicyNone");
}

#[test]
fn the_placed_condition_names_what_is_missing() {
    let mut case = StatusCase::healthy();
    case.pods[1].placement.as_mut().unwrap().verified = 7;
    case.pods[1].placement.as_mut().unwrap().reason = Some("not enough cpus".to_owned());
    assert_eq!(case.condition_text("Placed"), "False/NotVerified");
    case.pods[1].placement = None;
    assert_eq!(case.condition_text("Placed"), "Unknown/NoReport");
    case.deployment.spec.placement.policy = albacore_api::PlacementPolicy::None;
    assert_eq!(case.condition_text("Placed"), "True/PolicyNone");
}

#[test]
fn a_quota_that_lets_fewer_threads_run_is_reported_as_placed() {
    let mut case = StatusCase::healthy();
    let spec = &case.deployment.spec;
    let (workers, threads) = (i32::from(spec.workers), i32::from(spec.threads));
    for pod in &mut case.pods {
        let placement = pod.placement.as_mut().unwrap();
        placement.quota_threads = Some(threads - 1);
        placement.verified = workers * (threads - 1);
    }
    assert_eq!(case.condition_text("Placed"), "True/QuotaLimited");
    let all = 2 * workers * (threads - 1);
    assert_eq!(case.status().pinned, Some(format!("{all}/{all}")));
    case.pods[1].placement.as_mut().unwrap().verified -= 1;
    assert_eq!(case.condition_text("Placed"), "False/NotVerified");
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let mut case = StatusCase::healthy();
    case.deployment.status = Some(case.status_at(100));
    case.pods[0].state.as_mut().unwrap().requests.late = 500;
    let since = |status: &InferenceDeploymentStatus, kind: &str| {
        let found = status.conditions.iter().find(|c| c.type_ == kind).unwrap();
        found.last_transition_time.clone()
    };
    let status = case.status_at(200);
    assert_eq!(since(&status, "Ready"), time(100));
    assert_eq!(since(&status, "SLOMet"), time(200));
}

#[test]
fn numbers_have_two_digits() {
    for (number, text) in [
        (0.0, "0"),
        (1234.0, "1200"),
        (0.012345, "0.012"),
        (9.96, "10"),
        (99.6, "100"),
        (7.0, "7"),
        (0.1, "0.1"),
        (f64::NAN, "0"),
        (1e9, "1000000000"),
        (-3.16, "-3.2"),
    ] {
        assert_eq!(measurements::two_digits(number), text, "{number}");
    }
}

/// Computes the status of an object like the library kstatus (Flux, kpt, `kustomize apply`).
fn kstatus(deployment: &InferenceDeployment, status: &InferenceDeploymentStatus) -> &'static str {
    let is = |kind: &str, value: &str| {
        status
            .conditions
            .iter()
            .any(|c| c.type_ == kind && c.status == value)
    };
    let has = |kind: &str| status.conditions.iter().any(|c| c.type_ == kind);
    match () {
        () if status.observed_generation != deployment.metadata.generation => "InProgress",
        () if is("Reconciling", "True") => "InProgress",
        () if is("Stalled", "True") => "Failed",
        () if has("Ready") && !is("Ready", "True") => "InProgress",
        () => "Current",
    }
}

fn any_verdict() -> impl Strategy<Value = ApplyOutcome> {
    prop_oneof![
        6 => Just(ApplyOutcome::Applied),
        1 => Just(ApplyOutcome::Invalid(Vec::new())),
        1 => Just(ApplyOutcome::NameConflict(ChildKind::Service)),
        1 => Just(ApplyOutcome::AwaitingGarbageCollection(ChildKind::Service)),
        1 => Just(ApplyOutcome::Rejected(rejection("ChildRefused", true))),
        1 => Just(ApplyOutcome::Rejected(rejection("KindNotServed", false))),
    ]
}

fn any_pod() -> impl Strategy<Value = ObservedPod> {
    (
        any::<bool>(),
        any::<bool>(),
        prop::option::of(0..3u32),
        any::<bool>(),
        0..4u64,
    )
        .prop_map(|(is_ready, is_inactive, alive, is_reported, late)| {
            let mut pod = pod("p", alive.map(state));
            pod.is_ready = is_ready;
            pod.is_inactive = is_inactive;
            if let Some(state) = &mut pod.state {
                state.requests.late *= late;
            }
            pod.placement = pod.placement.filter(|_| is_reported);
            pod
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_status_never_contradicts_itself(
        outcome in any_verdict(),
        counts in prop::option::of((0..4i32, 0..4i32, 0..4i32)),
        pods in prop::collection::vec(any_pod(), 0..4),
    ) {
        let case = StatusCase {
            deployment: deployment(),
            outcome,
            workload: counts.map(|(wanted, updated, available)| workload(wanted, updated, available)),
            pods,
            respawns: RecentRespawns::default(),
        };
        let status = case.status();
        let is = |kind: &str, value: &str| {
            status.conditions.iter().any(|c| c.type_ == kind && c.status == value)
        };
        // Abnormal conditions exist only while they are true, and exclude each other.
        for kind in [RECONCILING, STALLED] {
            prop_assert!(!is(kind, "False") && !is(kind, "Unknown"), "{kind}");
        }
        prop_assert!(!(is(RECONCILING, "True") && is(STALLED, "True")));
        // Ready is never true without a live worker or while anything is stalled.
        let alive: i32 = status.workers.as_ref().map_or(0, |w| w.live);
        if is("Ready", "True") {
            prop_assert!(alive > 0);
            prop_assert!(!is(STALLED, "True"));
        }
        match kstatus(&case.deployment, &status) {
            "Current" => {
                let is_at_zero = case.workload.as_ref().is_some_and(|w| w.desired == 0);
                prop_assert!(is("Ready", "True") || is_at_zero, "{:?}", status.conditions);
            }
            "Failed" => prop_assert!(is(STALLED, "True")),
            _ => prop_assert!(is(RECONCILING, "True") || !is("Ready", "True")),
        }
        // The same facts later, with that status: nothing is written.
        let mut later = case;
        later.deployment.status = Some(status.clone());
        prop_assert_eq!(later.status_at(900), status);
    }
}
