//! Children, the objects that belong to a deployment: their kinds and their desired state.

use serde_json::{Map, Value, json};

use crate::digest::digest_of;
use crate::names::{APPLIED_ANNOTATION, pods_service};

/// The kinds of children. A deployment has at most one child of each kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ChildKind {
    /// The identity of the pods, without a mounted token.
    ServiceAccount,
    /// The settings of the built-in server, or the thread counts of a user's own server.
    ConfigMap,
    Service,
    /// The headless Service: DNS resolves it to the addresses of all ready pods.
    PodsService,
    /// Allows traffic from everywhere to the declared ports of the pods, and to no other port.
    NetworkPolicy,
    /// Limits how many pods can be evicted at once.
    PodDisruptionBudget,
    Deployment,
    /// The scrape configuration for Prometheus, if its operator is installed.
    ServiceMonitor,
}

impl ChildKind {
    /// Every kind, in the order in which children are applied.
    pub const ALL: [Self; 8] = [
        Self::ServiceAccount,
        Self::ConfigMap,
        Self::Service,
        Self::PodsService,
        Self::NetworkPolicy,
        Self::PodDisruptionBudget,
        Self::Deployment,
        Self::ServiceMonitor,
    ];

    /// API version, kind, and plural as used in API paths.
    const fn names(self) -> [&'static str; 3] {
        match self {
            Self::ServiceAccount => ["v1", "ServiceAccount", "serviceaccounts"],
            Self::ConfigMap => ["v1", "ConfigMap", "configmaps"],
            Self::Service | Self::PodsService => ["v1", "Service", "services"],
            Self::NetworkPolicy => ["networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"],
            Self::PodDisruptionBudget => {
                ["policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"]
            }
            Self::Deployment => ["apps/v1", "Deployment", "deployments"],
            Self::ServiceMonitor => [
                "monitoring.coreos.com/v1",
                "ServiceMonitor",
                "servicemonitors",
            ],
        }
    }

    pub const fn api_version(self) -> &'static str {
        self.names()[0]
    }

    pub const fn kind(self) -> &'static str {
        self.names()[1]
    }

    pub const fn plural(self) -> &'static str {
        self.names()[2]
    }

    /// Name of the kind in messages; unlike [`Self::kind`], it is unique.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::PodsService => "headless Service",
            _ => self.kind(),
        }
    }

    /// The name of this child of `deployment`.
    pub fn name_of(self, deployment: &str) -> String {
        match self {
            Self::PodsService => pods_service(deployment),
            _ => deployment.to_owned(),
        }
    }

    /// Whether a deployment can serve without this child if its name is taken.
    pub const fn is_optional(self) -> bool {
        matches!(self, Self::PodsService)
    }
}

/// The desired state of a child.
#[derive(Clone, PartialEq, Debug)]
pub struct ChildObject {
    pub kind: ChildKind,
    /// Exactly the fields that the controller owns, with the annotation that carries `digest`.
    pub body: Value,
    /// Digest of `body` without the annotation. A live child whose annotation has the same digest
    /// was applied from the same body.
    pub digest: String,
}

impl ChildObject {
    /// The name of the deployment.
    pub fn owner(&self) -> &str {
        let owner = &self.body["metadata"]["ownerReferences"][0];
        owner["name"].as_str().unwrap_or_default()
    }

    /// Adds an annotation that `digest` does not cover.
    pub(crate) fn annotate(&mut self, name: &str, value: &str) {
        self.body["metadata"]["annotations"][name] = value.into();
    }

    pub(crate) fn new(kind: ChildKind, metadata: Value, body: Value) -> Self {
        let mut whole = Map::new();
        whole.insert("apiVersion".into(), kind.api_version().into());
        whole.insert("kind".into(), kind.kind().into());
        whole.insert("metadata".into(), metadata);
        if let Value::Object(fields) = body {
            whole.extend(fields);
        }
        let mut body = Value::Object(whole);
        let digest = digest_of(&body);
        body["metadata"]["annotations"] = json!({ APPLIED_ANNOTATION: digest });
        Self { kind, body, digest }
    }
}
