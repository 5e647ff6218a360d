//! Differences between the built-in server and a user's own server: command, ports, probes and
//! ConfigMap.

use albacore_api::thread_counts;
use serde_json::{Map, Value, json};

use super::BuiltInOptions;
use crate::limits::{DRAIN_DELAY_SECONDS, LIVENESS_MISSES_MAX, PROBE_SECONDS, STARTUP_PROBES_MAX};
use crate::names::{
    DRAIN_DELAY_VARIABLE, ENVOY_HEALTH_VARIABLE, GRPC, GRPC_PORT, HTTP, HTTP_PORT,
    LOAD_REPORTS_VARIABLE, PARAMS_VARIABLE, SETTINGS_FOLDER, SETTINGS_KEY, THREADS_VARIABLE,
    VOLUME_PREFIX, WORKERS_VARIABLE,
};
use crate::settings::{ModelVolume, model_volumes};
use crate::validate::ValidDeployment;

/// The settings of the built-in server, or the thread counts of a user's own server whose
/// environment also has other sources; otherwise `None`.
pub(super) fn config_map(valid: &ValidDeployment) -> Option<Value> {
    if let Some(settings) = &valid.settings {
        return Some(json!({"data": {SETTINGS_KEY: settings}}));
    }
    reads_environment(valid).then(|| {
        let counts = thread_counts(valid.spec.workers, valid.spec.threads).into_iter();
        let data: Map<_, _> = counts.map(|(name, count)| (name, count.into())).collect();
        json!({ "data": data })
    })
}

/// Whether the server's environment also has ConfigMaps or Secrets as sources, whose variable names
/// are unknown here.
fn reads_environment(valid: &ValidDeployment) -> bool {
    let server = valid.spec.server_container();
    server.is_some_and(|c| c.env_from.as_ref().is_some_and(|from| !from.is_empty()))
}

/// The container `server` before the user's template is merged over it.
pub(super) fn container(valid: &ValidDeployment, built_in: &BuiltInOptions) -> Value {
    let mut container = match valid.spec.is_built_in() {
        true => built_in_container(valid, built_in),
        false => user_container(valid),
    };
    if let Some(resources) = &valid.spec.resources {
        container["resources"] = serde_json::to_value(resources).unwrap_or_default();
    }
    container
}

/// Of the settings, only the numbers of workers and threads, including those of the front end, are
/// part of the template; everything else may change without a restart.
fn built_in_container(valid: &ValidDeployment, built_in: &BuiltInOptions) -> Value {
    let mut mounts = vec![json!({
        "name": format!("{VOLUME_PREFIX}settings"), "mountPath": SETTINGS_FOLDER, "readOnly": true,
    })];
    for (index, folder) in model_volumes(&valid.spec.models).into_values().enumerate() {
        mounts.push(json!({
            "name": model_volume_name(index), "mountPath": folder, "readOnly": true,
        }));
    }
    let mut variables = vec![
        json!({"name": WORKERS_VARIABLE, "value": valid.spec.workers.to_string()}),
        json!({"name": THREADS_VARIABLE, "value": valid.spec.threads.to_string()}),
    ];
    if let Some(url) = &built_in.params_url {
        variables.push(json!({"name": PARAMS_VARIABLE, "value": url}));
    }
    let delay = format!("{DRAIN_DELAY_SECONDS}s");
    variables.push(json!({"name": DRAIN_DELAY_VARIABLE, "value": delay}));
    if valid.spec.envoy_health_header() {
        variables.push(json!({"name": ENVOY_HEALTH_VARIABLE, "value": "true"}));
    }
    if let Some(mode) = valid.spec.load_reports() {
        variables.push(json!({"name": LOAD_REPORTS_VARIABLE, "value": mode}));
    }
    let mut arguments = vec![
        "--settings".to_owned(),
        format!("{SETTINGS_FOLDER}/{SETTINGS_KEY}"),
    ];
    if let Some(threads) = valid.spec.front_threads() {
        arguments.extend(["--front-threads".to_owned(), threads.to_string()]);
    }
    let probe = |path: &str| json!({"path": path, "port": HTTP});
    json!({
        "name": "server",
        "image": valid.server_image.as_ref().unwrap_or(&built_in.image),
        "args": arguments,
        "ports": [
            {"name": HTTP, "containerPort": HTTP_PORT, "protocol": "TCP"},
            {"name": GRPC, "containerPort": GRPC_PORT, "protocol": "TCP"},
        ],
        "env": variables,
        "volumeMounts": mounts,
        "startupProbe": {
            "httpGet": probe("/v2/health/live"),
            "periodSeconds": 1,
            "failureThreshold": STARTUP_PROBES_MAX,
        },
        "readinessProbe": {
            "httpGet": probe("/v2/health/ready"),
            "periodSeconds": PROBE_SECONDS,
            "failureThreshold": 2,
        },
        "livenessProbe": {
            "httpGet": probe("/v2/health/live"),
            "periodSeconds": PROBE_SECONDS,
            "timeoutSeconds": PROBE_SECONDS,
            "failureThreshold": LIVENESS_MISSES_MAX,
        },
    })
}

/// Sets the thread counts as variables. If the user's variables may come from other sources, the
/// thread counts are the first source, because later sources and variables override earlier ones.
fn user_container(valid: &ValidDeployment) -> Value {
    let (workers, threads) = (valid.spec.workers, valid.spec.threads);
    let is_in_template = |name: &str| [WORKERS_VARIABLE, THREADS_VARIABLE].contains(&name);
    let counts = thread_counts(workers, threads).into_iter();
    // Numbers of workers and threads are always part of the template, because a change of them must
    // replace the pods.
    let variables: Vec<Value> = counts
        .filter(|(name, _)| is_in_template(name) || !reads_environment(valid))
        .map(|(name, count)| json!({"name": name, "value": count}))
        .collect();
    let mut container = json!({
        "name": "server",
        "env": variables,
        "volumeMounts": [{"name": temporary_volume_name(), "mountPath": "/tmp"}],
    });
    if reads_environment(valid) {
        container["envFrom"] = json!([{"configMapRef": {"name": valid.name}}]);
    }
    let server = valid.spec.server_container();
    let ports = server.and_then(|c| c.ports.as_ref());
    if let Some(port) = ports.and_then(|ports| ports.first()) {
        container["readinessProbe"] = json!({
            "tcpSocket": {"port": port.container_port},
            "periodSeconds": PROBE_SECONDS,
            "failureThreshold": 2,
        });
    }
    container
}

/// The volumes that [`container`] mounts.
pub(super) fn volumes(valid: &ValidDeployment) -> Vec<Value> {
    if !valid.spec.is_built_in() {
        return vec![json!({"name": temporary_volume_name(), "emptyDir": {}})];
    }
    let settings = json!({
        "name": format!("{VOLUME_PREFIX}settings"), "configMap": {"name": valid.name},
    });
    let models = model_volumes(&valid.spec.models).into_keys().enumerate();
    let models = models.map(|(index, volume)| {
        let name = model_volume_name(index);
        match volume {
            ModelVolume::Claim(claim) => {
                json!({"name": name, "persistentVolumeClaim": {"claimName": claim, "readOnly": true}})
            }
            ModelVolume::ConfigMap(map) => json!({"name": name, "configMap": {"name": map}}),
        }
    });
    std::iter::once(settings).chain(models).collect()
}

fn model_volume_name(index: usize) -> String {
    format!("{VOLUME_PREFIX}model-{index}")
}

fn temporary_volume_name() -> String {
    format!("{VOLUME_PREFIX}tmp")
}
