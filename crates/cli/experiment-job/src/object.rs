//! The Job: one unprivileged pod on one node that waits for its files.

use albacore_api::{InferenceDeployment, SERVER_CONTAINER};
use albacore_cluster::ObjectKey;
use albacore_command::Failure;
use serde_json::{Value, json};

use crate::limits::{EXPERIMENT_JOB_KEPT, EXPERIMENT_JOB_TIME_MORE, JOB_NAME_BYTES_MAX};

/// The container's name.
pub(crate) const CONTAINER: &str = "experiment";

/// The program in the image, and its command with which everything begins.
pub(crate) const PROGRAM: [&str; 2] = ["/albacore-lab", "experiment-job"];

/// Annotation of the Job: SHA-256 of experiment and models.
const DIGEST: &str = "albacore.dev/experiment-digest";

const REGISTRY: &str = "registry.albacore.dev/albacore";

/// User and group of the container, as in the pods of deployments: an id that no node uses.
const USER: i64 = 65_532;

/// Fields of a deployment's pod template that the pod of the Job has, too.
const POD_FIELDS: [&str; 6] = [
    "imagePullSecrets",
    "priorityClassName",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
];

/// What the pod has of a deployment; nothing without one.
#[derive(Debug, Default)]
pub(crate) struct DeploymentSettings {
    /// The image of its built-in server.
    server_image: Option<String>,
    /// Of the container.
    resources: Value,
    /// [`POD_FIELDS`] that are set.
    pod: serde_json::Map<String, Value>,
}

impl DeploymentSettings {
    pub(crate) fn of(deployment: &InferenceDeployment) -> Self {
        let spec = serde_json::to_value(&deployment.spec).unwrap_or_default();
        let template = &spec["template"]["spec"];
        let containers = template["containers"].as_array();
        let server = containers.into_iter().flatten();
        let server = server.clone().find(|c| c["name"] == SERVER_CONTAINER);
        let own = server.map(|server| server["resources"].clone());
        let resources = own.filter(|own| !own.is_null());
        let pod = POD_FIELDS
            .into_iter()
            .filter(|field| !template[*field].is_null())
            .map(|field| (field.to_owned(), template[field].clone()));
        Self {
            server_image: deployment
                .status
                .as_ref()
                .and_then(|status| status.server_image.clone()),
            resources: resources.unwrap_or_else(|| spec["resources"].clone()),
            pod: pod.collect(),
        }
    }

    /// The image of this version, from where the deployment's server comes.
    fn image(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let server = self.server_image.as_deref().unwrap_or_default();
        let registry = server.rsplit_once("/albacore-server:");
        let registry = registry.map_or(REGISTRY, |(registry, _)| registry);
        format!("{registry}/albacore-experiment:{version}")
    }
}

/// What a Job is made from.
pub(crate) struct JobSpec<'a> {
    pub(crate) key: &'a ObjectKey,
    pub(crate) node: &'a str,
    pub(crate) image: Option<&'a str>,
    pub(crate) settings: &'a DeploymentSettings,
    pub(crate) digest: &'a str,
    pub(crate) seconds_max: u64,
}

/// The name of an experiment's Job.
pub(crate) fn job_name(experiment: &str) -> Result<String, Failure> {
    let name = format!(
        "albacore-experiment-{}",
        experiment.replace(['_', '.'], "-")
    );
    let ends_well = name.ends_with(|c: char| c.is_ascii_alphanumeric());
    if name.len() <= JOB_NAME_BYTES_MAX && ends_well {
        return Ok(name);
    }
    Err(Failure::Usage(format!(
        "name: {experiment}: its Job would be {name}, which takes at most {JOB_NAME_BYTES_MAX} characters, a \
         letter or digit at the end: change name in the experiment's file"
    )))
}

/// The object, as it is applied.
pub(crate) fn job(spec: &JobSpec<'_>) -> Value {
    let image = spec
        .image
        .map_or_else(|| spec.settings.image(), str::to_owned);
    let labels = json!({
        "app.kubernetes.io/name": "albacore-experiment",
        "app.kubernetes.io/part-of": "albacore",
    });
    let [program, command] = PROGRAM;
    let mut container = json!({
        "name": CONTAINER,
        "image": image,
        "command": [program, command, "run"],
        // where `albacore run` keeps what only its own server may read
        "env": [{"name": "HOME", "value": "/tmp"}, {"name": "TMPDIR", "value": "/tmp"}],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [{"name": "work", "mountPath": "/work"}, {"name": "tmp", "mountPath": "/tmp"}],
    });
    if !spec.settings.resources.is_null() {
        container["resources"] = spec.settings.resources.clone();
    }
    let is_node = json!({"key": "metadata.name", "operator": "In", "values": [spec.node]});
    let mut pod = json!({
        "restartPolicy": "Never",
        // the scheduler still refuses a node that is cordoned or full, and says why
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [is_node]}],
        }}},
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "work", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}],
    });
    for (field, value) in &spec.settings.pod {
        pod[field] = value.clone();
    }
    let deadline = spec.seconds_max + EXPERIMENT_JOB_TIME_MORE.as_secs();
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": spec.key.name,
            "namespace": spec.key.namespace,
            "labels": labels,
            "annotations": {DIGEST: spec.digest},
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": deadline,
            "ttlSecondsAfterFinished": EXPERIMENT_JOB_KEPT.as_secs(),
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    })
}

/// Digest and node of a Job as it was made.
pub(crate) fn identity(job: &Value) -> (&str, &str) {
    let digest = &job["metadata"]["annotations"][DIGEST];
    let node = job.pointer(
        "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
         /nodeSelectorTerms/0/matchFields/0/values/0",
    );
    (
        digest.as_str().unwrap_or_default(),
        node.and_then(Value::as_str).unwrap_or_default(),
    )
}
