//! Converts a deployment into one that can be built ([`ValidDeployment`]), or returns all
//! violations.
//!
//! The rules of the schema are checked first (an API server with an older schema may have accepted
//! more), then rules that apply in a cluster only: no relative model files, and no template field
//! that would break an invariant of Albacore. Pure.

use albacore_api::{
    InferenceDeployment, InferenceDeploymentSpec, MODELS_FOLDER, ModelPlace, SERVER_CONTAINER,
    SERVER_IMAGE_ANNOTATION, Violation, server_image_of, validate as broken_rules,
};
use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::names::{
    DEPLOYMENT_LABEL, GRPC, GRPC_PORT, HTTP, HTTP_PORT, INSTANCE_LABEL, MANAGED_BY_LABEL,
    NAME_LABEL, PARAMS_VARIABLE, SETTINGS_FOLDER, THREADS_VARIABLE, TRAFFIC_LABEL, VOLUME_PREFIX,
    WORKERS_VARIABLE,
};
use crate::settings::settings_text;

/// A deployment that can be built.
#[derive(Clone, PartialEq, Debug)]
pub struct ValidDeployment {
    /// Its name, a DNS label.
    pub name: String,
    pub namespace: String,
    /// Uid of the owner of the children.
    pub uid: String,
    pub spec: InferenceDeploymentSpec,
    /// The text of `settings.yaml`; `None` for a user's own server.
    pub settings: Option<String>,
    /// The server image in the annotation of the deployment.
    pub server_image: Option<String>,
}

/// Checks whether `deployment` can be built.
///
/// # Errors
/// Returns every invalid field with its remedy.
pub fn validate(deployment: &InferenceDeployment) -> Result<ValidDeployment, Vec<Violation>> {
    let mut violations = broken_rules(deployment);
    let spec = &deployment.spec;
    refuse_relative_files(spec, &mut violations);
    refuse_metadata(deployment, &mut violations);
    if let Some(pod) = spec.template.as_ref().and_then(|t| t.spec.as_ref()) {
        refuse_volumes(pod, &mut violations);
        for (index, container) in pod.containers.iter().enumerate() {
            let at = format!("spec.template.spec.containers[{index}]");
            if container.name == SERVER_CONTAINER {
                refuse_parts_of_server(spec, container, &at, &mut violations);
            }
        }
    }
    let server_image = own_server_image(deployment, &mut violations);
    // Settings can only be computed from a valid spec.
    let settings = match violations.is_empty() && spec.is_built_in() {
        true => match settings_text(spec) {
            Ok(text) => Some(text),
            Err(refused) => return Err(refused),
        },
        false => None,
    };
    if !violations.is_empty() {
        return Err(violations);
    }
    let metadata = &deployment.metadata;
    Ok(ValidDeployment {
        name: metadata.name.clone().unwrap_or_default(),
        namespace: metadata.namespace.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        spec: spec.clone(),
        settings,
        server_image,
    })
}

/// The image of the built-in server in the deployment's annotation.
fn own_server_image(
    deployment: &InferenceDeployment,
    refused: &mut Vec<Violation>,
) -> Option<String> {
    match server_image_of(deployment.metadata.annotations.as_ref()) {
        Ok(Some(_)) if !deployment.spec.is_built_in() => {
            let problem = "names an image of the built-in server, which this deployment does not \
                           run; remove it, and name your image in the container \"server\" of \
                           spec.template";
            let field = format!("metadata.annotations[{SERVER_IMAGE_ANNOTATION}]");
            refused.push(violation(field, problem));
            None
        }
        Ok(image) => image.map(str::to_owned),
        Err(violation) => {
            refused.push(violation);
            None
        }
    }
}

fn violation(field: impl Into<String>, problem: impl Into<String>) -> Violation {
    Violation {
        field: field.into(),
        problem: problem.into(),
        line: None,
    }
}

fn refuse_relative_files(spec: &InferenceDeploymentSpec, refused: &mut Vec<Violation>) {
    for (index, model) in spec.models.iter().enumerate() {
        let field = format!("spec.models[{index}].uri");
        match &model.uri.place {
            ModelPlace::File { path } if !path.starts_with('/') => {
                let problem = format!(
                    "is \"{}\", a file beside the YAML file, which only `albacore run` can read; \
                     in a cluster name a claim (pvc://claim/path), a ConfigMap \
                     (configmap://name/key), a URL or an absolute path in the container",
                    model.uri
                );
                refused.push(violation(field, problem));
            }
            ModelPlace::Pvc { path, .. } if has_parent_component(path) => {
                let problem = format!(
                    "is \"{}\", which leaves its volume by \"..\"; name the file from the root of \
                     the volume",
                    model.uri
                );
                refused.push(violation(field, problem));
            }
            ModelPlace::File { .. }
            | ModelPlace::Pvc { .. }
            | ModelPlace::ConfigMap { .. }
            | ModelPlace::Url { .. } => {}
        }
    }
}

fn has_parent_component(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// Labels, annotations and finalizers of a template's metadata are used for pods; some labels are
/// reserved.
fn refuse_metadata(deployment: &InferenceDeployment, refused: &mut Vec<Violation>) {
    let template = deployment.spec.template.as_ref();
    let Some(metadata) = template.and_then(|t| t.metadata.as_ref()) else {
        return;
    };
    let field = |part: &str| format!("spec.template.metadata.{part}");
    let taken = serde_json::to_value(metadata).unwrap_or_default();
    let takes = ["labels", "annotations", "finalizers"];
    let parts = taken.as_object().into_iter().flatten();
    for (part, _) in parts.filter(|(part, _)| !takes.contains(&part.as_str())) {
        let problem = "is not copied to pods, which get labels, annotations and finalizers only; \
                       remove it";
        refused.push(violation(field(part), problem));
    }
    let reserved = [
        DEPLOYMENT_LABEL,
        NAME_LABEL,
        INSTANCE_LABEL,
        MANAGED_BY_LABEL,
        TRAFFIC_LABEL,
    ];
    for (label, _) in metadata.labels.iter().flatten() {
        if reserved.contains(&label.as_str()) {
            let problem = "is set by Albacore to select its pods; remove it";
            refused.push(violation(field(&format!("labels[{label}]")), problem));
        }
    }
}

fn refuse_volumes(pod: &PodSpec, refused: &mut Vec<Violation>) {
    for (index, volume) in pod.volumes.iter().flatten().enumerate() {
        if volume.name.starts_with(VOLUME_PREFIX) {
            let problem = format!(
                "is \"{}\"; names that begin with \"{VOLUME_PREFIX}\" are reserved for Albacore; \
                 choose another one",
                volume.name
            );
            let field = format!("spec.template.spec.volumes[{index}].name");
            refused.push(violation(field, problem));
        }
    }
}

fn refuse_parts_of_server(
    spec: &InferenceDeploymentSpec,
    server: &Container,
    at: &str,
    refused: &mut Vec<Violation>,
) {
    for (index, variable) in server.env.iter().flatten().enumerate() {
        let instead = match variable.name.as_str() {
            WORKERS_VARIABLE => "spec.workers",
            THREADS_VARIABLE => "spec.threads",
            _ => continue,
        };
        let problem = format!("is {}; set {instead} instead", variable.name);
        refused.push(violation(format!("{at}.env[{index}].name"), problem));
    }
    if spec.resources.is_some() && server.resources.is_some() {
        let problem = "conflicts with spec.resources, which sets the same; remove one of the two";
        refused.push(violation(format!("{at}.resources"), problem));
    }
    if spec.is_built_in() {
        refuse_parts_of_built_in(server, at, refused);
    }
}

fn refuse_parts_of_built_in(server: &Container, at: &str, refused: &mut Vec<Violation>) {
    for (index, mount) in server.volume_mounts.iter().flatten().enumerate() {
        let is_below = |folder: &str| {
            let rest = mount.mount_path.strip_prefix(folder);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let reserved = [
            SETTINGS_FOLDER.to_owned(),
            format!("{MODELS_FOLDER}/pvc"),
            format!("{MODELS_FOLDER}/configmap"),
        ];
        if reserved.iter().any(|folder| is_below(folder)) {
            let problem = format!(
                "is \"{}\", where Albacore mounts settings and models itself; choose another \
                 folder",
                mount.mount_path
            );
            let field = format!("{at}.volumeMounts[{index}].mountPath");
            refused.push(violation(field, problem));
        }
    }
    for (index, port) in server.ports.iter().flatten().enumerate() {
        let named = [(HTTP, HTTP_PORT), (GRPC, GRPC_PORT)];
        let clashes = named.iter().any(|&(name, number)| {
            let is_named = port.name.as_deref() == Some(name);
            let is_number = port.container_port == i32::from(number);
            is_named != is_number
        });
        if clashes {
            let problem = format!(
                "is {} with the name \"{}\"; the built-in server has {HTTP_PORT} as \"{HTTP}\" and \
                 {GRPC_PORT} as \"{GRPC}\", and the Service finds them by name; remove it",
                port.container_port,
                port.name.as_deref().unwrap_or_default()
            );
            refused.push(violation(format!("{at}.ports[{index}]"), problem));
        }
    }
    for (index, variable) in server.env.iter().flatten().enumerate() {
        if let Some(instead) = instead_of_variable(&variable.name) {
            let problem = format!("is {}; {instead}", variable.name);
            refused.push(violation(format!("{at}.env[{index}].name"), problem));
        }
    }
}

/// The alternative to setting a variable of the built-in server that the spec or the controller
/// sets.
fn instead_of_variable(name: &str) -> Option<&'static str> {
    match name {
        "ALBACORE_HTTP" | "ALBACORE_GRPC" => {
            Some("the Service and the probes rely on the default ports; remove it")
        }
        "ALBACORE_POLICY" => Some("set spec.batching.policy instead"),
        PARAMS_VARIABLE => Some("the controller sets it with its flag --params-url; remove it"),
        "ALBACORE_MAX_ROWS" => Some("set spec.batching.maxRows instead"),
        "ALBACORE_PREFER" => Some("set spec.batching.prefer instead"),
        "ALBACORE_MAX_DELAY" => Some("set spec.batching.maxDelay instead"),
        "ALBACORE_QUEUE_ROWS" => Some("set spec.queue.maxRows instead"),
        _ => None,
    }
}
