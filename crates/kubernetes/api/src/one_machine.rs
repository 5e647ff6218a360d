//! Converts an `InferenceDeployment` for `albacore run`: one machine, no Kubernetes.
//!
//! What needs a cluster (volumes, Secrets, a model in a claim) is refused with the field and the
//! remedy. What merely has no effect here (replicas, resources, node selectors) gets a notice, so
//! that no field is ignored silently. Pure: no file is opened, no path resolved.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use albacore_plan::Policy;

use crate::container::{self, environment};
use crate::deployment::{
    BatchingPolicy, InferenceDeployment, InferenceDeploymentSpec, Output, Slo,
};
use crate::iterations::Iterations;
use crate::notices::notices;
use crate::policy::policy_of;
use crate::timespan::Timespan;
use crate::uri::ModelPlace;
use crate::violation::Violation;

/// What one machine runs.
#[derive(Clone, PartialEq, Debug)]
pub struct OneMachine {
    /// Name of the deployment.
    pub name: String,
    /// For the planner: workers, threads, mode, placement.
    pub policy: Policy,
    pub server: Server,
    /// Fields without an effect on one machine, one sentence each.
    pub notices: Vec<String>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Server {
    /// `albacore-server` with these settings.
    BuiltIn(ServerSettings),
    /// A server of the user's own.
    Own(OwnServer),
}

/// Settings of the built-in server.
#[derive(Clone, PartialEq, Debug)]
pub struct ServerSettings {
    pub workers: u16,
    pub threads: u16,
    pub models: Vec<ModelFile>,
    /// When waiting rows are released.
    pub release: ReleaseRule,
    /// Most rows of one batch.
    pub batch_rows_max: u32,
    /// Most rows that wait.
    pub queue_rows_max: u32,
    /// Environment that the template adds, in order.
    pub environment: Vec<(String, String)>,
}

/// A model and where its file is.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelFile {
    /// Its name in request paths.
    pub name: String,
    /// Where its file is.
    pub source: ModelSource,
    /// SHA-256 of the file's bytes, 64 lower-case hexadecimal digits; `None` for any bytes.
    pub sha256: Option<String>,
    /// Iterations that predict; `None` for those of the object that saved the file.
    pub iterations: Option<Iterations>,
    /// Its objective, if any.
    pub slo: Option<Slo>,
    /// The outputs that it advertises; empty for the value alone.
    pub outputs: Vec<Output>,
}

/// Where one machine finds a model's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModelSource {
    /// On this machine: absolute as written, or joined to the folder of the YAML file.
    File(PathBuf),
    /// An http or https URL.
    Url(String),
}

/// When waiting rows are released, as far as this version's server goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReleaseRule {
    Auto,
    /// As late as the objective of its model allows.
    Deferred,
    /// As soon as a worker is free.
    Eager,
    /// When the oldest row has waited this long.
    Timeout(Timespan),
}

/// A server of the user's own: the container `server` of the template, as a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnServer {
    /// The program and its arguments; at least the program.
    pub command: Vec<String>,
    /// Environment to set over the inherited one, in order: thread counts, then the container's.
    pub environment: Vec<(String, String)>,
    /// Where to start it; `None` for where `albacore run` was started.
    pub working_dir: Option<PathBuf>,
}

impl ServerSettings {
    /// The arguments of `albacore-server` that cannot change while it runs.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut push = |flag: &str, value: OsString| arguments.extend([flag.into(), value]);
        push("--workers", self.workers.to_string().into());
        push("--threads", self.threads.to_string().into());
        arguments
    }
}

/// Converts a valid `deployment`; relative paths are below `folder`, that of the YAML file.
///
/// # Errors
/// Every field that one machine cannot honor.
pub fn for_one_machine(
    deployment: &InferenceDeployment,
    folder: &Path,
) -> Result<OneMachine, Vec<Violation>> {
    let spec = &deployment.spec;
    let mut refused = Vec::new();
    let server = match spec.is_built_in() {
        true => built_in(spec, folder, &mut refused).map(Server::BuiltIn),
        false => own(spec, folder, &mut refused).map(Server::Own),
    };
    match server {
        Some(server) if refused.is_empty() => Ok(OneMachine {
            name: deployment.metadata.name.clone().unwrap_or_default(),
            policy: policy_of(spec),
            server,
            notices: notices(spec),
        }),
        _ => Err(refused),
    }
}

fn built_in(
    spec: &InferenceDeploymentSpec,
    folder: &Path,
    refused: &mut Vec<Violation>,
) -> Option<ServerSettings> {
    let mut models = Vec::with_capacity(spec.models.len());
    for (index, model) in spec.models.iter().enumerate() {
        let source = match &model.uri.place {
            ModelPlace::File { path } => {
                ModelSource::File(folder.join(path.strip_prefix("./").unwrap_or(path)))
            }
            ModelPlace::Http { url } => ModelSource::Url(url.clone()),
            other @ (ModelPlace::Pvc { .. } | ModelPlace::ConfigMap { .. }) => {
                let problem = format!(
                    "is \"{other}\", which needs a cluster; under `albacore run` a model is a \
                     file, \"file:///path\" or \"file://./path\" beside the YAML file, or an \
                     http or https URL"
                );
                refused.push(Violation::new(format!("spec.models[{index}].uri"), problem));
                continue;
            }
        };
        models.push(ModelFile {
            name: model.name.clone(),
            source,
            sha256: model.uri.sha256.clone(),
            iterations: model.iterations,
            slo: model.slo,
            outputs: model.outputs.clone(),
        });
    }
    let release = release_rule(spec, refused)?;
    let environment = match spec.server_container() {
        Some(container) => environment(spec, container, &[], refused),
        None => Vec::new(),
    };
    Some(ServerSettings {
        workers: spec.workers,
        threads: spec.threads,
        models,
        release,
        batch_rows_max: spec.batching.max_rows,
        queue_rows_max: spec.queue.max_rows,
        environment,
    })
}

fn release_rule(
    spec: &InferenceDeploymentSpec,
    refused: &mut Vec<Violation>,
) -> Option<ReleaseRule> {
    match (spec.batching.policy, spec.batching.max_delay) {
        (BatchingPolicy::Auto, _) => Some(ReleaseRule::Auto),
        (BatchingPolicy::Deferred, _) => Some(ReleaseRule::Deferred),
        (BatchingPolicy::Eager, _) => Some(ReleaseRule::Eager),
        (BatchingPolicy::Timeout, Some(delay)) => Some(ReleaseRule::Timeout(delay)),
        (BatchingPolicy::Timeout, None) => {
            let problem = "is missing; policy Timeout needs it, as in \"maxDelay: 2ms\"";
            refused.push(Violation::new("spec.batching.maxDelay", problem));
            None
        }
    }
}

fn own(
    spec: &InferenceDeploymentSpec,
    folder: &Path,
    refused: &mut Vec<Violation>,
) -> Option<OwnServer> {
    let container = spec.server_container()?;
    let counts = container::thread_counts(spec.workers, spec.threads);
    let environment = environment(spec, container, &counts, refused);
    let words = container.command.iter().chain(&container.args).flatten();
    let command: Vec<String> = words
        .map(|word| container::expand(word, &environment))
        .collect();
    if container.command.as_ref().is_none_or(Vec::is_empty) {
        let problem = "is missing; there is no image to take it from under `albacore run`: say \
                       what to start, as in \"command: [python3, -m, gunicorn, app:app]\"";
        refused.push(Violation::new(spec.server_field("command"), problem));
        return None;
    }
    let working_dir = container.working_dir.as_deref().map(|dir| folder.join(dir));
    Some(OwnServer {
        command,
        environment,
        working_dir,
    })
}
