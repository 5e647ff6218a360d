//! The report of `albacore status`: a pure function of the cluster's objects. Its JSON is a stable
//! interface.

use albacore_api::{
    InferenceDeployment, Isolation, NodePlacement, PodPlacement, PodProblem, TrafficStatus,
    Utilization,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::annotated_pods::AnnotatedPodReport;

/// Pod label with the name of its deployment.
pub(super) const DEPLOYMENT_LABEL: &str = "albacore.dev/deployment";

/// Age of the last verification above which an agent is silent. The agent renews it every 30 to 40
/// s; another 90 s allow for clock skew between the machines.
const REPORT_AGE_MAX: SignedDuration = SignedDuration::from_secs(120);

/// Reports of nodes, and the time at which they were read.
pub(super) type NodesAt<'a> = (&'a [NodePlacement], Timestamp);

/// The objects that the user may read.
#[derive(Default)]
pub(super) struct ClusterObjects {
    pub(super) deployments: Vec<InferenceDeployment>,
    pub(super) pods: Vec<Pod>,
    /// Pods that opted in by annotation, or the pod given on the command line.
    pub(super) annotated: Vec<Pod>,
    pub(super) nodes: Vec<NodePlacement>,
    /// Time of the read, by the local clock.
    pub(super) now: Timestamp,
    /// Objects that could not be read, one sentence each.
    pub(super) unread: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct StatusReport {
    pub(super) deployments: Vec<DeploymentReport>,
    /// Pods that opted in by annotation, or the pod given on the command line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) pods: Vec<AnnotatedPodReport>,
    pub(super) unread: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct DeploymentReport {
    pub(super) namespace: String,
    pub(super) name: String,
    /// State according to kstatus, which Flux and Argo CD also use.
    pub(super) state: DeploymentState,
    pub(super) ready: Option<String>,
    pub(super) mode: String,
    pub(super) workers: u16,
    pub(super) threads: u16,
    pub(super) pinned: Option<String>,
    pub(super) url: Option<String>,
    pub(super) grpc_url: Option<String>,
    pub(super) goodput: Option<String>,
    pub(super) latency_p99: Option<String>,
    pub(super) bad_rate: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) utilization: Option<Utilization>,
    /// Which pods get requests, and why; `None` if all do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) traffic: Option<TrafficStatus>,
    /// Number of worker processes that were replaced, and the pod and cause of the last one.
    pub(super) respawns: i64,
    pub(super) last_cause: Option<String>,
    pub(super) conditions: Vec<ConditionReport>,
    pub(super) models: Vec<ModelReport>,
    pub(super) pods: Vec<PodReport>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DeploymentState {
    Current,
    InProgress,
    Failed,
    Terminating,
}

#[derive(Clone, Serialize)]
pub(super) struct ConditionReport {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
}

#[derive(Serialize)]
pub(super) struct ModelReport {
    pub(super) name: String,
    pub(super) uri: String,
    pub(super) slo: Option<String>,
    pub(super) loaded: Option<String>,
    pub(super) error: Option<String>,
    pub(super) goodput: Option<String>,
    pub(super) p99: Option<String>,
    pub(super) bad_rate: Option<String>,
    pub(super) slo_met: Option<bool>,
    pub(super) latency: Vec<ModelLatencyReport>,
    pub(super) batching: Vec<BatchingReport>,
}

/// The choice of policy Auto for a kind of output.
#[derive(Serialize)]
pub(super) struct BatchingReport {
    pub(super) kind: String,
    /// Pods that defer, out of those that report.
    pub(super) deferred: String,
    pub(super) reason: String,
}

#[derive(Serialize)]
pub(super) struct ModelLatencyReport {
    pub(super) kind: String,
    pub(super) per_row: String,
    pub(super) per_batch: String,
}

#[derive(Serialize)]
pub(super) struct PodReport {
    pub(super) name: String,
    pub(super) phase: String,
    pub(super) is_ready: bool,
    pub(super) restarts: i32,
    pub(super) node: Option<String>,
    /// Why the pod does not run, in the words of the scheduler or the kubelet.
    pub(super) problem: Option<String>,
    /// The same as a one-word reason.
    pub(super) reason: Option<String>,
    pub(super) placement: Option<PlacementReport>,
    /// All threads, if requested and reported by the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) threads: Option<Vec<ThreadReport>>,
}

/// A thread, as reported by its node's agent.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct ThreadReport {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) worker: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rank: Option<u32>,
    /// The event loop of the front end that it runs, if it does not belong to a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) front: Option<u32>,
    pub(super) pid: Option<i32>,
    pub(super) tid: Option<i32>,
    /// CPUs assigned by the plan.
    pub(super) planned: Option<String>,
    /// Current affinity mask.
    pub(super) mask: Option<String>,
    /// The result of applying the plan.
    pub(super) state: String,
}

#[derive(Clone, Serialize)]
pub(super) struct PlacementReport {
    pub(super) workers: i32,
    /// `None` if the node's agent is silent, which means that the value is unknown.
    pub(super) workers_verified: Option<i32>,
    pub(super) threads: i32,
    /// Same as `workers_verified`.
    pub(super) threads_verified: Option<i32>,
    /// Event loops of the front end with a planned mask; `None` without the built-in server.
    pub(super) front: Option<i32>,
    /// Same as `workers_verified`.
    pub(super) front_verified: Option<i32>,
    /// Time at which the node's agent last read all masks back.
    pub(super) last_verification: Option<String>,
    pub(super) cpuset: Option<String>,
    pub(super) isolation: &'static str,
    pub(super) plan: Option<String>,
    pub(super) since: Option<String>,
    pub(super) drifts: i64,
    pub(super) drift_cause: Option<String>,
    /// Threads per worker that the CPU quota lets run at once, if fewer than requested.
    pub(super) quota_threads: Option<i32>,
    /// Worker threads that run or wait for a CPU for at least half of the time.
    pub(super) hot_threads: Option<i32>,
    /// Verdict of its last trial of placements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trial: Option<String>,
    pub(super) reason: Option<String>,
}

impl StatusReport {
    /// The report on `objects`; deployments are ordered by namespace and name, pods by name.
    pub(super) fn of(objects: ClusterObjects) -> Self {
        let ClusterObjects {
            deployments,
            pods,
            annotated,
            nodes,
            now,
            unread,
        } = objects;
        let mut reports: Vec<DeploymentReport> = deployments
            .into_iter()
            .map(|deployment| DeploymentReport::of(deployment, &pods, (&nodes, now)))
            .collect();
        reports.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let annotated = annotated.iter();
        Self {
            deployments: reports,
            pods: annotated
                .map(|pod| AnnotatedPodReport::of(pod, (&nodes, now)))
                .collect(),
            unread,
        }
    }
}

impl DeploymentReport {
    fn of(deployment: InferenceDeployment, pods: &[Pod], nodes: NodesAt<'_>) -> Self {
        let state = DeploymentState::of(&deployment);
        let namespace = deployment.metadata.namespace.unwrap_or_default();
        let name = deployment.metadata.name.unwrap_or_default();
        let (spec, status) = (deployment.spec, deployment.status.unwrap_or_default());
        let workers = status.workers.unwrap_or_default();
        let models = spec.models.iter().map(|model| {
            let reported = status.models.iter().find(|m| m.name == model.name);
            let latency = reported.into_iter().flat_map(|m| &m.latency);
            let batching = reported.into_iter().flat_map(|m| &m.batching);
            ModelReport {
                name: model.name.clone(),
                uri: model.uri.to_string(),
                slo: model.slo.map(|slo| slo.latency.to_string()),
                loaded: reported.map(|m| m.loaded.clone()),
                error: reported.and_then(|m| m.error.clone()),
                goodput: reported.and_then(|m| m.goodput.clone()),
                p99: reported.and_then(|m| m.p99.clone()),
                bad_rate: reported.and_then(|m| m.bad_rate.clone()),
                slo_met: reported.and_then(|m| m.slo_met),
                latency: latency.map(ModelLatencyReport::of).collect(),
                batching: batching.map(BatchingReport::of).collect(),
            }
        });
        let mut reports: Vec<PodReport> = pods
            .iter()
            .filter(|pod| is_of(pod, &namespace, &name))
            .map(|pod| PodReport::of(pod, nodes))
            .collect();
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        let mut placements = reports.iter().filter_map(|pod| pod.placement.as_ref());
        // Without a running controller, the status does not report it.
        let is_unknown = placements.any(PlacementReport::is_unknown);
        let conditions = status.conditions.iter().map(|c| ConditionReport {
            kind: c.type_.clone(),
            status: c.status.clone(),
            reason: c.reason.clone(),
            message: c.message.clone(),
        });
        Self {
            state,
            ready: status.ready,
            mode: format!("{:?}", spec.mode),
            workers: spec.workers,
            threads: spec.threads,
            pinned: match is_unknown {
                true => Some("?".to_owned()),
                false => status.pinned,
            },
            url: status.url,
            grpc_url: status.grpc_url,
            goodput: status.goodput,
            latency_p99: status.latency_p99,
            bad_rate: status.bad_rate,
            utilization: status.utilization,
            traffic: status.traffic,
            respawns: workers.respawns,
            last_cause: workers.last_cause,
            conditions: conditions.collect(),
            models: models.collect(),
            pods: reports,
            namespace,
            name,
        }
    }

    /// The condition of this type.
    pub(super) fn condition(&self, kind: &str) -> Option<&ConditionReport> {
        self.conditions.iter().find(|c| c.kind == kind)
    }
}

impl ModelReport {
    /// Measurements of its pods, as in `goodput 10/s  p99 2ms  bad 0%`; empty without a report.
    pub(super) fn figures(&self) -> String {
        let figures = [
            ("goodput", &self.goodput),
            ("p99", &self.p99),
            ("bad", &self.bad_rate),
        ];
        let known = figures.iter().filter_map(|(label, value)| {
            let value = value.as_ref()?;
            Some(format!("{label} {value}"))
        });
        known.collect::<Vec<_>>().join("  ")
    }

    pub(super) fn is_slo_missed(&self) -> bool {
        self.slo_met == Some(false)
    }
}

impl ModelLatencyReport {
    fn of(model: &albacore_api::LatencyModel) -> Self {
        Self {
            kind: model.kind.clone(),
            per_row: model.per_row.clone(),
            per_batch: model.per_batch.clone(),
        }
    }
}

impl BatchingReport {
    fn of(status: &albacore_api::BatchingStatus) -> Self {
        Self {
            kind: status.kind.clone(),
            deferred: status.deferred.clone(),
            reason: status.reason.clone(),
        }
    }
}

impl DeploymentState {
    /// The state by the rules of kstatus.
    fn of(deployment: &InferenceDeployment) -> Self {
        let status = deployment.status.as_ref();
        let is = |kind: &str, value: &str| {
            status
                .into_iter()
                .flat_map(|s| &s.conditions)
                .any(|c| c.type_ == kind && c.status == value)
        };
        let observed = status.and_then(|s| s.observed_generation);
        if deployment.metadata.deletion_timestamp.is_some() {
            Self::Terminating
        } else if is("Stalled", "True") {
            Self::Failed
        } else if observed != deployment.metadata.generation
            || is("Reconciling", "True")
            || !is("Ready", "True")
        {
            Self::InProgress
        } else {
            Self::Current
        }
    }
}

fn is_of(pod: &Pod, namespace: &str, name: &str) -> bool {
    let labels = pod.metadata.labels.as_ref();
    pod.metadata.namespace.as_deref() == Some(namespace)
        && labels
            .and_then(|labels| labels.get(DEPLOYMENT_LABEL))
            .is_some_and(|l| l == name)
}

impl PodReport {
    pub(super) fn of(pod: &Pod, (nodes, now): NodesAt<'_>) -> Self {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let problem = PodProblem::of(pod);
        let status = pod.status.clone().unwrap_or_default();
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let containers = status.container_statuses.as_deref().unwrap_or_default();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        // An entry of another node belongs to an earlier pod with this name.
        let placements = nodes
            .iter()
            .filter(|placement| placement.metadata.name == node)
            .flat_map(|placement| &placement.status)
            .flat_map(|s| {
                s.pods
                    .iter()
                    .map(move |pod| (pod, &s.last_verification_time))
            });
        Self {
            is_ready: conditions
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True"),
            restarts: containers.iter().map(|c| c.restart_count).sum(),
            problem: problem.as_ref().map(ToString::to_string),
            reason: problem.map(|problem| problem.reason),
            phase: match pod.metadata.deletion_timestamp {
                Some(_) => "Terminating".to_owned(),
                None => status.phase.unwrap_or_else(|| "Unknown".to_owned()),
            },
            placement: placements
                .filter(|(p, _)| p.is_of(namespace, &name, uid))
                .map(|(p, at)| PlacementReport::of(p, at.as_ref().map(|at| at.0), now))
                .next(),
            threads: None,
            node,
            name,
        }
    }
}

impl ThreadReport {
    /// Label of the thread in a table.
    pub(super) fn label(&self) -> String {
        let number = |value: Option<u32>| value.map_or_else(|| "?".to_owned(), |n| n.to_string());
        match self.front {
            Some(front) => format!("front {front}"),
            None => format!("{}.{}", number(self.worker), number(self.rank)),
        }
    }
}

impl PlacementReport {
    /// The placement of a pod in the report of a node that was last verified at `at`.
    fn of(placement: &PodPlacement, at: Option<Timestamp>, now: Timestamp) -> Self {
        let is_silent = at.is_some_and(|at| now.duration_since(at) > REPORT_AGE_MAX);
        let known = |count| (!is_silent).then_some(count);
        Self {
            workers: placement.workers,
            workers_verified: known(placement.workers_verified),
            threads: placement.planned,
            threads_verified: known(placement.verified),
            front: placement.front.map(|front| front.planned),
            front_verified: placement.front.and_then(|front| known(front.verified)),
            last_verification: at.map(|at| at.to_string()),
            cpuset: placement.cpuset.clone(),
            isolation: match placement.isolation {
                Isolation::None => "none",
                Isolation::SharedPool => "shared_pool",
                Isolation::Exclusive => "exclusive",
            },
            plan: placement.plan.clone(),
            since: placement.since.as_ref().map(|time| time.0.to_string()),
            drifts: placement.drift.as_ref().map_or(0, |drift| drift.count),
            drift_cause: placement
                .drift
                .as_ref()
                .map(|drift| drift.cause.name().to_owned()),
            quota_threads: placement.quota_threads,
            hot_threads: placement.hot_threads,
            trial: placement.trial.clone(),
            reason: placement.reason.clone(),
        }
    }

    /// Whether the placement is unknown because the node's agent is silent.
    pub(super) fn is_unknown(&self) -> bool {
        self.threads_verified.is_none()
    }
}
