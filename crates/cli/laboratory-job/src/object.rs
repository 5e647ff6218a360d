//! The Job object: one unprivileged pod on one node that waits for its files.

use albacore_cluster::ObjectKey;
use serde_json::{Value, json};

use crate::limits::{EXPERIMENT_JOB_KEPT, EXPERIMENT_JOB_TIME_MORE};
use crate::pod_settings::PodSettings;

/// Name of the container.
pub(crate) const CONTAINER: &str = "laboratory";

/// The program in the image, and the subcommand that all its commands start with.
pub(crate) const PROGRAM: [&str; 2] = ["/albacore-lab", "laboratory-job"];

/// Annotation of the Job: SHA-256 of its input.
const DIGEST: &str = "albacore.dev/experiment-digest";

/// The working directory of the job, as defined by `albacore-lab`.
pub(crate) const WORK: &str = "/work";
pub(crate) const TEMPORARY: &str = "/tmp";

/// User and group of the container, as in the pods of deployments: an id that no node uses.
const USER: i64 = 65_532;

/// Input for building the Job object.
pub(crate) struct JobSpec<'a> {
    pub(crate) key: &'a ObjectKey,
    /// `app.kubernetes.io/name`, which differs from the label of serving pods.
    pub(crate) label: &'a str,
    /// `None` to let the settings select the node.
    pub(crate) node: Option<&'a str>,
    pub(crate) image: Option<&'a str>,
    pub(crate) settings: &'a PodSettings,
    pub(crate) digest: &'a str,
    pub(crate) seconds_max: u64,
}

/// Builds the object to apply.
pub(crate) fn job(spec: &JobSpec<'_>) -> Value {
    let image = spec
        .image
        .map_or_else(|| spec.settings.image(), str::to_owned);
    let labels = json!({
        "app.kubernetes.io/name": spec.label,
        "app.kubernetes.io/part-of": "albacore",
    });
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
            "template": {"metadata": {"labels": labels}, "spec": pod(spec, &image)},
        },
    })
}

fn pod(spec: &JobSpec<'_>, image: &str) -> Value {
    let settings = spec.settings;
    let mut volumes = vec![
        json!({"name": "albacore-work", "emptyDir": {}}),
        json!({"name": "albacore-tmp", "emptyDir": {}}),
    ];
    volumes.extend(settings.volumes.iter().cloned());
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container(settings, image)],
        "volumes": volumes,
    });
    for (field, value) in &settings.user {
        pod["securityContext"][field] = value.clone();
    }
    for (field, value) in &settings.pod {
        pod[field] = value.clone();
    }
    match spec.node {
        // the scheduler still rejects a cordoned or full node and reports the reason
        Some(node) => {
            let is_node = json!({"key": "metadata.name", "operator": "In", "values": [node]});
            pod["affinity"] = json!({
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchFields": [is_node]}],
                }},
            });
        }
        None => {
            for (field, value) in &settings.nodes {
                pod[field] = value.clone();
            }
        }
    }
    pod
}

fn container(settings: &PodSettings, image: &str) -> Value {
    let [program, command] = PROGRAM;
    let mut mounts = vec![
        json!({"name": "albacore-work", "mountPath": WORK}),
        json!({"name": "albacore-tmp", "mountPath": TEMPORARY}),
    ];
    mounts.extend(settings.mounts.iter().cloned());
    let mut container = json!({
        "name": CONTAINER,
        "image": image,
        "command": [program, command, "run"],
        // `albacore run` stores its private files there
        "env": [{"name": "HOME", "value": TEMPORARY}, {"name": "TMPDIR", "value": TEMPORARY}],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": mounts,
    });
    if !settings.resources.is_null() {
        container["resources"] = settings.resources.clone();
    }
    container
}

/// Digest and node of an existing Job.
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
