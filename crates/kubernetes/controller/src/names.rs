//! Names that other programs rely on: labels, annotations, ports, paths in the pod, reasons of
//! conditions and events.

use crate::digest::sha256_of;

/// Field manager of the fields that the controller writes.
pub(crate) const FIELD_MANAGER: &str = "albacore-controller";

/// Label of every child and pod with the deployment's name. Selects the pods, and marks them for
/// the agent.
pub(crate) const DEPLOYMENT_LABEL: &str = "albacore.dev/deployment";

/// Label of every pod of the built-in server: whether it receives requests, if the Service selects
/// by it.
pub(crate) const TRAFFIC_LABEL: &str = "albacore.dev/traffic";
/// Pods of a ReplicaSet with a lower cost are deleted first; the default is 0.
pub(crate) const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";

pub(crate) const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
pub(crate) const MANAGED_BY: &str = "albacore";
pub(crate) const NAME_LABEL: &str = "app.kubernetes.io/name";
pub(crate) const NAME: &str = "albacore-server";
pub(crate) const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";

/// Annotation of a child: digest of the body that was applied last.
pub(crate) const APPLIED_ANNOTATION: &str = "albacore.dev/applied";

/// Annotation of the Deployment of the pods: digest of the fields of the `InferenceDeployment` from
/// which its pod template was built. If the template differs but this digest is equal, the operator
/// changed the template.
pub(crate) const POD_FIELDS_ANNOTATION: &str = "albacore.dev/pod-fields";
/// Annotation of the Deployment of the pods: digest of the pod template that was applied last.
pub(crate) const POD_TEMPLATE_ANNOTATION: &str = "albacore.dev/pod-template";
/// Annotation of the Deployment of the pods: when a changed pod template was last applied (RFC
/// 3339).
pub(crate) const ROLLED_ANNOTATION: &str = "albacore.dev/rolled-at";

/// The ports of the built-in server and of the Service of any server.
pub(crate) const HTTP_PORT: u16 = 8080;
pub(crate) const GRPC_PORT: u16 = 8081;
pub(crate) const SERVER: &str = albacore_api::SERVER_CONTAINER;
pub(crate) const HTTP: &str = "http";
pub(crate) const GRPC: &str = "grpc";

/// Mount path of the ConfigMap with the settings.
pub(crate) const SETTINGS_FOLDER: &str = "/etc/albacore";
pub(crate) const SETTINGS_KEY: &str = "settings.yaml";

/// Label of a headless Service, which other programs use to exclude it.
pub(crate) const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// Suffix of the name of a headless Service.
pub(crate) const PODS_SUFFIX: &str = "-pods";

/// Longest name of a Service.
const SERVICE_NAME_CHARS_MAX: usize = 63;

/// Digits of the digest in the name of a headless Service of a deployment with a long name.
const NAME_DIGITS: usize = 8;

/// The name of the headless Service of a deployment: `NAME-pods`. For a name of more than 58
/// characters: its first 49 characters, 8 digits of its SHA-256, and `pods`.
pub(crate) fn pods_service(deployment: &str) -> String {
    let whole = format!("{deployment}{PODS_SUFFIX}");
    if whole.len() <= SERVICE_NAME_CHARS_MAX {
        return whole;
    }
    let digest = sha256_of(deployment.as_bytes());
    let kept = SERVICE_NAME_CHARS_MAX - "-".len() - NAME_DIGITS - PODS_SUFFIX.len();
    // Names of deployments are ASCII, so the precision counts bytes.
    format!("{deployment:.kept$}-{digest:.NAME_DIGITS$}{PODS_SUFFIX}")
}

/// Prefix of the names of the controller's own volumes.
pub(crate) const VOLUME_PREFIX: &str = "albacore-";

/// Variables that set the numbers of workers and threads of the server; only the spec sets them.
pub(crate) const WORKERS_VARIABLE: &str = "ALBACORE_WORKERS";
pub(crate) const THREADS_VARIABLE: &str = "ALBACORE_THREADS";

/// Variable that sets the endpoint of the node's parameters for a built-in server.
pub(crate) const PARAMS_VARIABLE: &str = "ALBACORE_PARAMS";

/// Variable that sets how long a built-in server keeps serving after SIGTERM.
pub(crate) const DRAIN_DELAY_VARIABLE: &str = "ALBACORE_DRAIN_DELAY";

/// Variable that sets whether a built-in server announces its shutdown to Envoy.
pub(crate) const ENVOY_HEALTH_VARIABLE: &str = "ALBACORE_ENVOY_HEALTH_HEADER";

/// Variable that selects the replies that carry a load report.
pub(crate) const LOAD_REPORTS_VARIABLE: &str = "ALBACORE_LOAD_REPORTS";

/// Reason of an unknown `Placed`: agents of the pods' nodes have verified nothing for a minute.
pub(crate) const AGENT_SILENT: &str = "AgentSilent";

/// The path of a built-in server's state.
pub(crate) const STATE_PATH: &str = "/albacore/v1/state";
