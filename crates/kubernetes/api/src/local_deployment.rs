//! Converts an `InferenceDeployment` for `albacore run`: one machine, no Kubernetes.
//!
//! Fields that require a cluster (volumes, Secrets, a model in a claim) are rejected with the field
//! and the remedy. Fields without effect here (replicas, resources, node selectors) produce a
//! notice, so that no field is silently ignored. Pure: no file is opened, no path resolved.

use std::path::{Path, PathBuf};

use albacore_plan::SubjectPolicy;
use albacore_settings::{Settings, Source};
use albacore_trial::TrialSpec;

use crate::container::{self, environment};
use crate::deployment::{InferenceDeployment, InferenceDeploymentSpec};
use crate::notices::notices;
use crate::policy::{policy_of, trial_of};
use crate::server_settings::settings_of;
use crate::uri::ModelPlace;
use crate::violation::Violation;

/// A deployment converted for one machine.
#[derive(Clone, PartialEq, Debug)]
pub struct LocalDeployment {
    /// Name of the deployment.
    pub name: String,
    /// Input of the planner: workers, threads, mode, placement.
    pub policy: SubjectPolicy,
    /// The placements to compare with that of the policy.
    pub trial: Option<TrialSpec>,
    pub server: Server,
    /// Fields without effect on one machine, one sentence each.
    pub notices: Vec<String>,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Server {
    /// `albacore-server`.
    BuiltIn(BuiltInServer),
    /// A user's own server.
    Own(OwnServer),
}

/// The built-in server: its settings, and the options that cannot change while it runs.
#[derive(Clone, PartialEq, Debug)]
pub struct BuiltInServer {
    pub workers: u16,
    pub threads: u16,
    /// Threads of the front end; `None`: derived by the server from its CPUs.
    pub front_threads: Option<u16>,
    /// `--load-reports`; `None`: the server's default.
    pub load_reports: Option<&'static str>,
    pub envoy_health_header: bool,
    pub settings: Settings,
    /// Environment variables that the template adds, in order.
    pub environment: Vec<(String, String)>,
}

impl BuiltInServer {
    /// Whether a process that was started as `before` can be changed to this one by new settings
    /// only.
    pub fn is_same_process(&self, before: &Self) -> bool {
        let fixed = |it: &Self| {
            let front = (it.front_threads, it.load_reports, it.envoy_health_header);
            (it.workers, it.threads, front)
        };
        fixed(self) == fixed(before) && self.environment == before.environment
    }
}

/// A user's own server: the container `server` of the template, as a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnServer {
    /// The program and its arguments; at least the program.
    pub command: Vec<String>,
    /// Environment variables that override inherited ones, in order: thread counts, then those of
    /// the container.
    pub environment: Vec<(String, String)>,
    /// Working directory; `None` for that of `albacore run`.
    pub working_dir: Option<PathBuf>,
}

/// Converts a valid `deployment`; relative paths are resolved against `folder`, that of the YAML
/// file.
///
/// # Errors
/// Every field that cannot be honored on one machine.
pub fn for_one_machine(
    deployment: &InferenceDeployment,
    folder: &Path,
) -> Result<LocalDeployment, Vec<Violation>> {
    let spec = &deployment.spec;
    let mut refused = Vec::new();
    let server = match spec.is_built_in() {
        true => built_in(spec, folder, &mut refused).map(Server::BuiltIn),
        false => own(spec, folder, &mut refused).map(Server::Own),
    };
    match server {
        Some(server) if refused.is_empty() => Ok(LocalDeployment {
            name: deployment.metadata.name.clone().unwrap_or_default(),
            policy: policy_of(spec),
            trial: trial_of(spec),
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
) -> Option<BuiltInServer> {
    let environment = match spec.server_container() {
        Some(container) => environment(spec, container, &[], refused),
        None => Vec::new(),
    };
    match settings_of(spec, |place| source_of(place, folder)) {
        Ok(settings) => Some(BuiltInServer {
            workers: spec.workers,
            threads: spec.threads,
            front_threads: spec.front_threads(),
            load_reports: spec.load_reports(),
            envoy_health_header: spec.envoy_health_header(),
            settings,
            environment,
        }),
        Err(violations) => {
            refused.extend(violations);
            None
        }
    }
}

/// Path of a model's file on this machine: absolute as written, or joined to `folder`.
fn source_of(place: &ModelPlace, folder: &Path) -> Result<Source, String> {
    match place {
        ModelPlace::File { path } => {
            let path = folder.join(path.strip_prefix("./").unwrap_or(path));
            let text = path.to_str().map(str::to_owned);
            let text = text.ok_or_else(|| format!("is {}, which is not UTF-8", path.display()));
            Ok(Source::Path(text?))
        }
        ModelPlace::Url { url } => Ok(Source::Url(url.clone())),
        ModelPlace::Pvc { .. } | ModelPlace::ConfigMap { .. } => Err(format!(
            "is \"{place}\", which needs a cluster; under `albacore run` a model is a file, \
             \"file:///path\" or \"file://./path\" beside the YAML file, or a URL (https://, s3://, gs://, \
             az://)"
        )),
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
        let problem = "is missing; `albacore run` has no image to take it from: write the command \
                       to start, as in \"command: [python3, -m, gunicorn, app:app]\"";
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
