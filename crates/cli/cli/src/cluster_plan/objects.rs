//! The objects of the cluster that plans depend on, as far as the user may read them.

use std::collections::{BTreeMap, BTreeSet};

use albacore_api::{InferenceDeployment, NodePlacement, cpus_of_quantity};
use albacore_cluster::{ApiResource, Cluster, ErrorClass, ObjectKey};
use albacore_command::{Failure, sentence};
use albacore_forecast::{NodeView, PodRequirements};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;

use crate::args::ClusterArgs;
use crate::cluster_access::{connect, read, typed};

/// Pod label with the name of its deployment.
const DEPLOYMENT_LABEL: &str = "albacore.dev/deployment";

/// Nodes and the reports of their agents.
pub(super) struct ClusterNodes {
    reports: BTreeMap<String, NodePlacement>,
    /// Empty if the user has no permission to read nodes.
    objects: BTreeMap<String, Node>,
    now: Timestamp,
    pub(super) unread: Vec<String>,
}

/// A cluster and the selected namespace.
pub(super) struct PlanSource {
    cluster: Cluster,
    namespace: Option<String>,
}

impl PlanSource {
    pub(super) async fn connect(args: &ClusterArgs) -> Result<Self, Failure> {
        let cluster = connect(args.kubeconfig.as_ref(), args.context.as_ref()).await?;
        Ok(Self {
            cluster,
            namespace: args.namespace.clone(),
        })
    }

    /// Key of the deployment in a file; its namespace is the one in the file, that of `--namespace`
    /// or that of the context.
    pub(super) fn key_of(
        &self,
        deployment: &InferenceDeployment,
        file: &str,
    ) -> Result<ObjectKey, Failure> {
        let metadata = &deployment.metadata;
        let Some(name) = metadata.name.as_deref().filter(|name| !name.is_empty()) else {
            let what = "metadata.name is missing: a deployment in a cluster needs a name";
            return Err(Failure::Usage(format!("{file}: {what}")));
        };
        let namespace = match (&metadata.namespace, &self.namespace) {
            (Some(own), Some(requested)) if own != requested => {
                return Err(Failure::Usage(format!(
                    "--namespace {requested}: {file} has metadata.namespace \"{own}\"; leave one of \
                     them out"
                )));
            }
            (Some(own), _) => own.as_str(),
            (None, Some(requested)) => requested.as_str(),
            (None, None) => self.cluster.namespace(),
        };
        Ok(ObjectKey::new(namespace, name))
    }

    /// Reads the reports of all agents, and the node objects if permitted.
    pub(super) async fn nodes(&self) -> Result<ClusterNodes, Failure> {
        let kind = ApiResource::erase::<NodePlacement>(&());
        let found = self.cluster.list(&kind, None, "").await;
        let found = found.map_err(|error| match error.class() {
            ErrorClass::NotFound => Failure::Failed(
                "this cluster has no NodePlacements: Albacore is not installed (helm install \
                 albacore charts/albacore)"
                    .to_owned(),
            ),
            ErrorClass::Forbidden => Failure::Failed(format!(
                "{}; plans are made from what the agents report: get and list \
                 nodeplacements.albacore.dev, a resource without a namespace, are needed \
                 (docs/operate/plan-before-apply.md)",
                sentence(&error)
            )),
            _ => Failure::Failed(sentence(&error)),
        })?;
        let mut unread = Vec::new();
        let reports: Vec<NodePlacement> = typed(found, &mut unread);
        let kind = ApiResource::erase::<Node>(&());
        let objects: Vec<Node> = read(&self.cluster, &kind, None, "", &mut unread).await?;
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        Ok(ClusterNodes {
            reports: reports
                .into_iter()
                .map(|n| (name(&n.metadata.name), n))
                .collect(),
            objects: objects
                .into_iter()
                .map(|n| (name(&n.metadata.name), n))
                .collect(),
            now: Timestamp::now(),
            unread,
        })
    }

    /// The pods of a deployment.
    ///
    /// # Errors
    /// The pods cannot be read.
    pub(super) async fn pods(&self, key: &ObjectKey) -> Result<Vec<Pod>, String> {
        let kind = ApiResource::erase::<Pod>(&());
        let labels = format!("{DEPLOYMENT_LABEL}={}", key.name);
        let found = self
            .cluster
            .list(&kind, Some(&key.namespace), &labels)
            .await;
        let found = found.map_err(|error| sentence(&error))?;
        Ok(typed(found, &mut Vec::new()))
    }

    /// Reads the existing deployment.
    pub(super) async fn deployment(&self, key: &ObjectKey) -> Result<InferenceDeployment, Failure> {
        let kind = ApiResource::erase::<InferenceDeployment>(&());
        let ObjectKey { namespace, name } = key;
        match self.cluster.get(&kind, key).await {
            Ok(Some(found)) => {
                let mut unread = Vec::new();
                let found = typed(vec![found], &mut unread).pop();
                found.ok_or_else(|| Failure::Failed(unread.join("; ")))
            }
            Ok(None) => Err(Failure::Failed(format!(
                "there is no InferenceDeployment \"{name}\" in namespace \"{namespace}\" to compare \
                 with; `kubectl albacore plan -f` shows what a new one would get"
            ))),
            Err(error) if error.class() == ErrorClass::NotFound => Err(Failure::Failed(
                "this cluster has no InferenceDeployments: Albacore is not installed (helm install \
                 albacore charts/albacore)"
                    .to_owned(),
            )),
            Err(error) => Err(Failure::Failed(sentence(&error))),
        }
    }
}

impl ClusterNodes {
    /// The nodes selected by `--node`, or all nodes.
    pub(super) fn selected(&self, requested: &[String]) -> Result<Vec<String>, Failure> {
        let known: BTreeSet<&String> = self.reports.keys().chain(self.objects.keys()).collect();
        for name in requested {
            if !known.contains(name) {
                let known: Vec<&str> = known.iter().map(|name| name.as_str()).collect();
                let known = match known.is_empty() {
                    true => "no agent has reported a node yet".to_owned(),
                    false => format!("there are {}", known.join(", ")),
                };
                return Err(Failure::Failed(format!(
                    "--node {name}: there is no node \"{name}\"; {known}"
                )));
            }
        }
        Ok(match requested.is_empty() {
            true => known.into_iter().cloned().collect(),
            false => requested.to_vec(),
        })
    }

    /// The placer's view of a node, or the reason why it cannot be planned for.
    pub(super) fn view(&self, name: &str) -> Result<NodeView, String> {
        let report = self.reports.get(name);
        let report = report.ok_or("it has no NodePlacement: no agent of Albacore runs there")?;
        NodeView::of(report, self.now)
    }

    /// Why the node cannot run a new pod, as far as the node object shows.
    pub(super) fn refuses(&self, name: &str, requirements: &PodRequirements) -> Option<String> {
        let node = self.objects.get(name)?;
        if node.spec.as_ref()?.unschedulable == Some(true) {
            return Some("it is unschedulable (kubectl cordon)".to_owned());
        }
        let allocatable = node.status.as_ref()?.allocatable.as_ref()?.get("cpu")?;
        let cpus = cpus_of_quantity(&allocatable.0)?;
        let requested = requirements.requested;
        (requested > cpus).then(|| {
            format!("insufficient cpus: the pod requests {requested}, {cpus} are allocatable")
        })
    }
}
