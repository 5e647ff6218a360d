//! Names that others rely on: labels, ports, folders of the pod, reasons of conditions and events.

/// Owns the fields that the controller writes.
pub(crate) const FIELD_MANAGER: &str = "albacore-controller";

/// The label of every child and pod whose value is the deployment's name; it selects the pods and
/// is how the agent knows them.
pub(crate) const DEPLOYMENT_LABEL: &str = "albacore.dev/deployment";

/// Who made an object.
pub(crate) const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
pub(crate) const MANAGED_BY: &str = "albacore";
pub(crate) const NAME_LABEL: &str = "app.kubernetes.io/name";
pub(crate) const NAME: &str = "albacore-server";
pub(crate) const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// On a child: hash of what the controller wants of it, as it was last applied.
pub(crate) const APPLIED_ANNOTATION: &str = "albacore.dev/applied";

/// On the Deployment of the pods: hash of the fields of the `InferenceDeployment` that its pod
/// template was made of. A template that differs while this is equal is a change of the operator's.
pub(crate) const POD_FIELDS_ANNOTATION: &str = "albacore.dev/pod-fields";
/// On the Deployment of the pods: hash of the pod template as it was last applied.
pub(crate) const POD_TEMPLATE_ANNOTATION: &str = "albacore.dev/pod-template";
/// On the Deployment of the pods: when a changed pod template was last applied (RFC 3339).
pub(crate) const ROLLED_ANNOTATION: &str = "albacore.dev/rolled-at";

/// The ports of the built-in server and, for any server, of its Service.
pub(crate) const HTTP_PORT: u16 = 8080;
pub(crate) const GRPC_PORT: u16 = 8081;
/// The container that serves.
pub(crate) const SERVER: &str = albacore_api::SERVER_CONTAINER;
pub(crate) const HTTP: &str = "http";
pub(crate) const GRPC: &str = "grpc";

/// Where the ConfigMap of the settings is mounted, and the settings in it.
pub(crate) const SETTINGS_FOLDER: &str = "/etc/albacore";
pub(crate) const SETTINGS_KEY: &str = "settings.yaml";

/// Below it every claim and ConfigMap that a model names is mounted.
pub(crate) const MODELS_FOLDER: &str = "/models";

/// Volumes whose names begin so are the controller's.
pub(crate) const VOLUME_PREFIX: &str = "albacore-";

/// W and T reach the server by these; both are the spec's to set.
pub(crate) const WORKERS_VARIABLE: &str = "ALBACORE_WORKERS";
pub(crate) const THREADS_VARIABLE: &str = "ALBACORE_THREADS";

/// Where a built-in server gets the parameters of its node.
pub(crate) const PARAMS_VARIABLE: &str = "ALBACORE_PARAMS";

/// Why `Placed` is unknown: agents of the pods' nodes have verified nothing for a minute.
pub(crate) const AGENT_SILENT: &str = "AgentSilent";

/// Where a server of ours says how it is.
pub(crate) const STATE_PATH: &str = "/albacore/v1/state";
