//! The Job: one unprivileged pod on one node that waits for its files.

use albacore_cluster::ObjectKey;
use serde_json::{Value, json};

use crate::limits::{EXPERIMENT_JOB_KEPT, EXPERIMENT_JOB_TIME_MORE};
use crate::pod_settings::PodSettings;

/// The container's name.
pub(crate) const CONTAINER: &str = "laboratory";

/// The program in the image, and its command with which everything begins.
pub(crate) const PROGRAM: [&str; 2] = ["/albacore-lab", "laboratory-job"];

/// Annotation of the Job: SHA-256 of what it was sent.
const DIGEST: &str = "albacore.dev/experiment-digest";

/// The folder of the job, as `albacore-lab` has it.
pub(crate) const WORK: &str = "/work";
pub(crate) const TEMPORARY: &str = "/tmp";

/// User and group of the container, as in the pods of deployments: an id that no node uses.
const USER: i64 = 65_532;

/// What a Job is made from.
pub(crate) struct JobSpec<'a> {
    pub(crate) key: &'a ObjectKey,
    /// `app.kubernetes.io/name`; no label of pods that serve.
    pub(crate) label: &'a str,
    /// `None` for where the settings say.
    pub(crate) node: Option<&'a str>,
    pub(crate) image: Option<&'a str>,
    pub(crate) settings: &'a PodSettings,
    pub(crate) digest: &'a str,
    pub(crate) seconds_max: u64,
}

/// The object, as it is applied.
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
        // the scheduler still refuses a node that is cordoned or full, and says why
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
        // where `albacore run` keeps what only its own server may read
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
