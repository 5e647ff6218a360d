//! Settings that the pod of a Job takes from the pods of a deployment.

use albacore_api::{InferenceDeployment, SERVER_CONTAINER};
use albacore_command::Failure;
use serde_json::{Map, Value, json};

use crate::object::{TEMPORARY, WORK};

const REGISTRY: &str = "registry.albacore.dev/albacore";

/// Fields of a deployment's pod template that are copied into the pod of a Job.
const POD_FIELDS: [&str; 6] = [
    "imagePullSecrets",
    "priorityClassName",
    "resources",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
];

/// Fields for name resolution, copied into a pod that loads models like those of the deployment.
const NAME_FIELDS: [&str; 3] = ["dnsConfig", "dnsPolicy", "hostAliases"];

/// Fields of the security context that affect access to files.
const USER_FIELDS: [&str; 7] = [
    "fsGroup",
    "fsGroupChangePolicy",
    "runAsGroup",
    "runAsUser",
    "seLinuxOptions",
    "supplementalGroups",
    "supplementalGroupsPolicy",
];

/// The volume that only the servers of the serving pods read.
const SETTINGS_VOLUME: &str = "albacore-settings";

/// Settings taken from a deployment; empty without a deployment.
#[derive(Debug, Default)]
pub(crate) struct PodSettings {
    /// The image of the deployment's built-in server.
    server_image: Option<String>,
    /// Resources of the container.
    pub(crate) resources: Value,
    /// Fields of the pod spec that are set.
    pub(crate) pod: Map<String, Value>,
    /// Fields of the pod spec that select the node, used if no node is given.
    pub(crate) nodes: Map<String, Value>,
    /// Fields of the pod's security context.
    pub(crate) user: Map<String, Value>,
    pub(crate) volumes: Vec<Value>,
    pub(crate) mounts: Vec<Value>,
}

impl PodSettings {
    /// Settings for an experiment, which provides its own models.
    pub(crate) fn of(deployment: &InferenceDeployment) -> Self {
        let spec = serde_json::to_value(&deployment.spec).unwrap_or_default();
        let template = &spec["template"]["spec"];
        let own = server_of(template).map(|server| server["resources"].clone());
        let resources = own.filter(|own| !own.is_null());
        Self {
            server_image: deployment
                .status
                .as_ref()
                .and_then(|status| status.server_image.clone()),
            resources: resources.unwrap_or_else(|| spec["resources"].clone()),
            pod: fields(template, &POD_FIELDS),
            ..Self::default()
        }
    }

    /// Settings for a pod like those of `name`; `pod` is the pod spec in the template of the
    /// Deployment created by the controller.
    ///
    /// # Errors
    /// The pod would need something that only the serving pods have.
    pub(crate) fn of_serving_pods(name: &str, pod: &Value) -> Result<Self, Failure> {
        let refused = |field: &str, what: &str| {
            Failure::Usage(format!(
                "{name}: spec.template.spec.{field}: {what}: tune its file with `albacore tune -f FILE`"
            ))
        };
        for (field, what) in [
            (
                "initContainers",
                "the measured pod does not run them, and their results may be missing",
            ),
            ("resourceClaims", "the measured pod gets no devices"),
        ] {
            if pod[field].as_array().is_some_and(|list| !list.is_empty()) {
                return Err(refused(field, what));
            }
        }
        let server = server_of(pod).ok_or_else(|| {
            Failure::Failed(format!(
                "Deployment {name}: it has no container {SERVER_CONTAINER}: it was not created by \
                 Albacore's controller"
            ))
        })?;
        let (mut mounts, mut volumes) = (Vec::new(), Vec::new());
        for mount in server["volumeMounts"].as_array().into_iter().flatten() {
            let path = mount["mountPath"].as_str().unwrap_or_default();
            if mount["name"] == SETTINGS_VOLUME || path == TEMPORARY {
                continue;
            }
            if path == WORK || path.starts_with("/work/") {
                let what = "the measured pod keeps its own files in /work";
                return Err(refused("containers", what));
            }
            mounts.push(mount.clone());
        }
        for volume in pod["volumes"].as_array().into_iter().flatten() {
            if !mounts.iter().any(|mount| mount["name"] == volume["name"]) {
                continue;
            }
            let sources = volume["projected"]["sources"].as_array();
            let mut sources = sources.into_iter().flatten();
            if sources.any(|source| !source["serviceAccountToken"].is_null()) {
                let what = "the measured pod gets no token of a service account";
                return Err(refused("volumes", what));
            }
            volumes.push(volume.clone());
        }
        let mut nodes = fields(pod, &["nodeSelector"]);
        let of_nodes = &pod["affinity"]["nodeAffinity"];
        if !of_nodes.is_null() {
            nodes.insert("affinity".to_owned(), json!({ "nodeAffinity": of_nodes }));
        }
        Ok(Self {
            server_image: server["image"].as_str().map(str::to_owned),
            resources: server["resources"].clone(),
            pod: fields(pod, &[&POD_FIELDS[..], &NAME_FIELDS].concat()),
            nodes,
            user: fields(&pod["securityContext"], &USER_FIELDS),
            volumes,
            mounts,
        })
    }

    /// The image of this version, from the registry of the deployment's server.
    pub(crate) fn image(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let server = self.server_image.as_deref().unwrap_or_default();
        let registry = server.rsplit_once("/albacore-server:");
        let registry = registry.map_or(REGISTRY, |(registry, _)| registry);
        format!("{registry}/albacore-experiment:{version}")
    }
}

fn server_of(pod: &Value) -> Option<&Value> {
    let mut containers = pod["containers"].as_array().into_iter().flatten();
    containers.find(|container| container["name"] == SERVER_CONTAINER)
}

/// The fields of an object that are set.
fn fields(object: &Value, names: &[&str]) -> Map<String, Value> {
    let set = names.iter().filter(|name| !object[**name].is_null());
    set.map(|name| ((*name).to_owned(), object[*name].clone()))
        .collect()
}
