//! Publishes the state of the node as events, metrics, NodePlacement status and parameters for
//! albacore-params.

use std::time::Instant;

use albacore_cluster::{EventRecorder, MetricsRegistry};
use albacore_placer::RestoreSummary;
use albacore_settings::agent_stream::ServingPod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;

use crate::cluster_view::ClusterView;
use crate::desired::{DesiredPod, PodAction};
use crate::events::{EventTracker, restored_event};
use crate::facts::NodeFacts;
use crate::metrics::AgentMetrics;
use crate::params_pipe::{ParamsPipe, params_pods};
use crate::status::StatusBuilder;
use crate::status_writer::DesiredStatus;

pub(crate) struct Publisher {
    pub(crate) params: Option<ParamsPipe>,
    pub(crate) metrics: MetricsRegistry,
    pub(crate) agent_metrics: AgentMetrics,
    pub(crate) events: EventRecorder,
    pub(crate) status: watch::Sender<DesiredStatus>,
    pub(crate) state: PublishState,
}

/// State of the previous publication, to detect changes.
#[derive(Default)]
pub(crate) struct PublishState {
    status_builder: StatusBuilder,
    event_tracker: EventTracker,
    params_pods: Vec<ServingPod>,
}

impl Publisher {
    pub(crate) fn agent_metrics(&self) -> &AgentMetrics {
        &self.agent_metrics
    }

    /// Publishes `facts`; requests to the API server are made asynchronously.
    pub(crate) fn publish(&mut self, facts: &NodeFacts, cluster: &ClusterView, now: Instant) {
        let node = cluster.node_reference();
        for event in self.state.event_tracker.new_events(facts, &node, now) {
            self.events.record(event);
        }
        self.agent_metrics.set_facts(facts);
        self.state.params_pods = params_pods(&facts.pods, |pod| {
            let pod = &pod.desired.pod;
            cluster.deployment(&pod.key.namespace, pod.opt_in.deployment()?)
        });
        let status = self.build_status(facts);
        let desired = DesiredStatus {
            status: Some(status),
            node_uid: cluster.node_uid(),
            deletions: cluster.report_deletions(),
        };
        self.status.send_if_modified(|before| {
            let differs = *before != desired;
            if differs {
                *before = desired;
            }
            differs
        });
    }

    /// Publishes the last status of an agent that stops.
    pub(crate) fn publish_last(&mut self, facts: &NodeFacts) {
        let status = self.build_status(facts);
        self.status
            .send_modify(|desired| desired.status = Some(status));
    }

    fn build_status(&mut self, facts: &NodeFacts) -> albacore_api::NodePlacementStatus {
        let now = Time(Timestamp::now());
        self.state.status_builder.build(facts, &now)
    }

    /// Sends changed parameters, and a periodic refresh, to albacore-params.
    pub(crate) fn send_params(&mut self, now: Instant) {
        let Some(params) = &mut self.params else {
            return;
        };
        if params.is_due(&self.state.params_pods, now) {
            self.agent_metrics.set_cpu_time();
            let metrics = self.metrics.text().unwrap_or_default();
            let metrics = metrics.trim_end().trim_end_matches("# EOF").to_owned();
            params.write(self.state.params_pods.clone(), metrics, now);
        } else {
            params.flush();
        }
    }

    /// Time of the next call of [`Publisher::send_params`].
    pub(crate) fn next_params(&self, now: Instant) -> Option<Instant> {
        self.params.as_ref().map(|params| params.next(now))
    }

    /// Records an event for each pod, by uid, whose masks were given back because it is no longer
    /// placed.
    pub(crate) fn record_restored<'a>(
        &self,
        desired: impl Iterator<Item = &'a DesiredPod> + Clone,
        all: Vec<(String, RestoreSummary)>,
    ) {
        for (uid, restored) in all {
            let Some(desired) = desired.clone().find(|desired| desired.pod.uid == uid) else {
                continue;
            };
            if let PodAction::Release { reason }
            | PodAction::Refuse { reason }
            | PodAction::Keep { reason } = &desired.action
            {
                let event = restored_event(&desired.pod.regarding, &restored, reason);
                self.events.record(event);
            }
        }
    }
}
