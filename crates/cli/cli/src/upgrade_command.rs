//! `albacore upgrade --dry-run`: shows which pods another version of the operator would restart.
//!
//! It reads the same input as the controller's decision: the image in each pod template, and the
//! annotations of deployments and namespaces. The upgrade itself is done with the tool that
//! installed the operator.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use albacore_api::{InferenceDeployment, SERVER_CONTAINER, counted, server_image_of};
use albacore_cluster::{ApiResource, ObjectKey};
use albacore_command::{Failure, OutputFormat, print, print_json};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Namespace, PodTemplateSpec};
use serde::Serialize;

use crate::args::UpgradeArgs;
use crate::cluster_access::{block_on, connect, read};

/// Label of a Deployment with the name of its InferenceDeployment.
const DEPLOYMENT_LABEL: &str = "albacore.dev/deployment";

/// Selects the controllers of all Helm releases.
const CONTROLLERS: &str =
    "app.kubernetes.io/part-of=albacore,app.kubernetes.io/component=controller";

/// The effect of the upgrade on a deployment.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Debug)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// Its pods are restarted.
    Roll,
    /// Its image is already current.
    Current,
    /// An annotation pins its image.
    Pinned,
    /// It runs the user's own server.
    OwnServer,
    /// Its annotation, or that of its namespace, contains no valid image: the controller rejects
    /// it.
    Invalid,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Self::Roll => "roll",
            Self::Current => "current",
            Self::Pinned => "pinned",
            Self::OwnServer => "own server",
            Self::Invalid => "invalid",
        }
    }
}

/// A deployment affected by an upgrade.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
struct UpgradeRow {
    namespace: String,
    name: String,
    /// Running pods.
    pods: i32,
    /// The current image, if known.
    image: Option<String>,
    /// Image after the upgrade; `None` for a user's own server.
    target: Option<String>,
    action: Action,
}

#[derive(Serialize, Debug)]
struct Upgrade {
    server_image: String,
    /// Most deployments that are rolled out concurrently; `None` if no controller reports it.
    max_concurrent_rollouts: Option<u32>,
    /// Deployments whose pods are restarted.
    rolls: usize,
    pods: i32,
    deployments: Vec<UpgradeRow>,
    /// Errors of reads, one sentence each.
    unread: Vec<String>,
}

pub(crate) fn run(args: &UpgradeArgs) -> Result<(), Failure> {
    if !args.dry_run {
        return Err(Failure::Usage(
            "upgrade only shows what an upgrade restarts: give --dry-run. The upgrade itself is \
             `helm upgrade`, or `kubectl apply --server-side` of crds.yaml and install.yaml"
                .to_owned(),
        ));
    }
    let upgrade = block_on(read_upgrade(args))?;
    match args.output {
        OutputFormat::Json => print_json(&upgrade),
        OutputFormat::Text => print(&text(&upgrade)),
        OutputFormat::Svg => Err(Failure::Usage(
            "--output svg: an upgrade has no picture; use text or json".to_owned(),
        )),
    }
}

async fn read_upgrade(args: &UpgradeArgs) -> Result<Upgrade, Failure> {
    let cluster = connect(
        args.cluster.kubeconfig.as_ref(),
        args.cluster.context.as_ref(),
    )
    .await?;
    let mut unread = Vec::new();
    let workloads = ApiResource::erase::<Deployment>(&());
    let controllers: Vec<Deployment> =
        read(&cluster, &workloads, None, CONTROLLERS, &mut unread).await?;
    let controller = controllers.iter().find_map(controller_of);
    let image = match (
        &args.server_image,
        controller.and_then(argument("--server-image")),
    ) {
        (Some(image), _) => image.clone(),
        (None, Some(installed)) => of_this_version(installed)?,
        (None, None) => {
            return Err(Failure::Usage(format!(
                "--server-image: found no controller with a server image in this cluster: give the \
                 image that the upgrade installs, as in \
                 registry.albacore.dev/albacore/albacore-server:{}",
                env!("CARGO_PKG_VERSION")
            )));
        }
    };
    let max = controller.and_then(argument("--max-concurrent-rollouts"));
    let namespace = args.cluster.namespace.as_deref();
    let kind = ApiResource::erase::<InferenceDeployment>(&());
    let deployments = read(&cluster, &kind, namespace, "", &mut unread).await?;
    let pods: Vec<Deployment> = read(
        &cluster,
        &workloads,
        namespace,
        DEPLOYMENT_LABEL,
        &mut unread,
    )
    .await?;
    let kind = ApiResource::erase::<Namespace>(&());
    let namespaces: Vec<Namespace> = read(&cluster, &kind, None, "", &mut unread).await?;
    let rows = rows(&deployments, &pods, &namespaces, &image);
    let rolled = || rows.iter().filter(|row| row.action == Action::Roll);
    Ok(Upgrade {
        server_image: image,
        max_concurrent_rollouts: max.and_then(|max| max.parse().ok()),
        rolls: rolled().count(),
        pods: rolled().map(|row| row.pods).sum(),
        deployments: rows,
        unread,
    })
}

fn container<'a>(template: &'a PodTemplateSpec, name: &str) -> Option<&'a Container> {
    let containers = &template.spec.as_ref()?.containers;
    containers.iter().find(|container| container.name == name)
}

fn controller_of(deployment: &Deployment) -> Option<&Container> {
    container(&deployment.spec.template, "controller")
}

/// Returns the value of an argument `name=value` of a container.
fn argument(name: &str) -> impl Fn(&Container) -> Option<&str> {
    move |container| {
        let mut all = container.args.iter().flatten();
        all.find_map(|argument| argument.strip_prefix(name)?.strip_prefix('='))
    }
}

/// The server image of this program's version, from the registry of `installed`.
fn of_this_version(installed: &str) -> Result<String, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let (path, name) = installed.rsplit_once('/').unwrap_or(("", installed));
    match (installed.contains('@'), name.split_once(':')) {
        (false, Some((name, _))) if path.is_empty() => Ok(format!("{name}:{version}")),
        (false, Some((name, _))) => Ok(format!("{path}/{name}:{version}")),
        _ => Err(Failure::Usage(format!(
            "--server-image: the installed server image ({installed}) has no tag, so the image of \
             version {version} is unknown: give it"
        ))),
    }
}

fn rows(
    deployments: &[InferenceDeployment],
    pods: &[Deployment],
    namespaces: &[Namespace],
    target: &str,
) -> Vec<UpgradeRow> {
    let pods: BTreeMap<ObjectKey, &Deployment> =
        pods.iter().map(|d| (ObjectKey::of(d), d)).collect();
    let of_namespace = |name: &str| {
        let mut all = namespaces.iter();
        let found = all.find(|n| n.metadata.name.as_deref() == Some(name))?;
        found.metadata.annotations.as_ref()
    };
    let row = |deployment: &InferenceDeployment| {
        let key = ObjectKey::of(deployment);
        let pods = pods.get(&key).copied();
        let template = pods.map(|d| &d.spec.template);
        let image = template.and_then(|t| container(t, SERVER_CONTAINER)?.image.clone());
        let own = server_image_of(deployment.metadata.annotations.as_ref());
        let theirs = server_image_of(of_namespace(&key.namespace));
        let (target, action) = match (deployment.spec.is_built_in(), own, theirs) {
            (false, ..) => (None, Action::OwnServer),
            (_, Err(_), _) | (_, Ok(None), Err(_)) => (image.clone(), Action::Invalid),
            (_, Ok(Some(pin)), _) | (_, Ok(None), Ok(Some(pin))) => {
                (Some(pin.to_owned()), Action::Pinned)
            }
            (_, Ok(None), Ok(None)) if image.as_deref() == Some(target) => {
                (image.clone(), Action::Current)
            }
            (_, Ok(None), Ok(None)) => (Some(target.to_owned()), Action::Roll),
        };
        let running = pods.and_then(|d| d.status.as_ref()?.replicas);
        UpgradeRow {
            namespace: key.namespace,
            name: key.name,
            pods: running.unwrap_or_default(),
            image,
            target,
            action,
        }
    };
    let mut rows: Vec<UpgradeRow> = deployments.iter().map(row).collect();
    rows.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    rows
}

fn text(upgrade: &Upgrade) -> String {
    let mut text = format!(
        "server image {}: {} restarted, {}\n",
        upgrade.server_image,
        counted(upgrade.rolls, "deployment"),
        counted(upgrade.pods, "pod")
    );
    if let Some(max) = upgrade.max_concurrent_rollouts {
        let _ = writeln!(text, "at most {} at once", counted(max, "deployment")); // infallible
    }
    let width =
        |of: fn(&UpgradeRow) -> usize| upgrade.deployments.iter().map(of).max().unwrap_or(0);
    let name = width(|row| row.namespace.len() + 1 + row.name.len());
    for row in &upgrade.deployments {
        let key = format!("{}/{}", row.namespace, row.name);
        let image = row.image.as_deref().unwrap_or("image not known");
        let change = match (&row.target, row.action) {
            (Some(target), Action::Roll | Action::Pinned) if row.image.as_ref() != Some(target) => {
                format!("{image} -> {target}")
            }
            _ => image.to_owned(),
        };
        let pods = counted(row.pods, "pod");
        let _ = writeln!(
            text,
            "{:10}  {key:name$}  {pods:>8}  {change}",
            row.action.word()
        ); // infallible
    }
    let is_kept = |row: &UpgradeRow| matches!(row.action, Action::OwnServer | Action::Pinned);
    if upgrade.deployments.iter().any(is_kept) {
        text.push_str(
            "Own servers and pinned ones are restarted only if the new version changes the rest of \
             the pod template.\n",
        );
    }
    let unread: BTreeSet<&String> = upgrade.unread.iter().collect();
    for sentence in unread {
        let _ = writeln!(text, "not read: {sentence}"); // infallible
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_of_this_version_keeps_the_registry() {
        let version = env!("CARGO_PKG_VERSION");
        for (installed, image) in [
            ("albacore-server:0", format!("albacore-server:{version}")),
            (
                "r.io:5000/a/server:0",
                format!("r.io:5000/a/server:{version}"),
            ),
        ] {
            assert_eq!(of_this_version(installed), Ok(image));
        }
        for installed in ["r.io:5000/server", "r.io/server@sha256:00"] {
            assert!(matches!(of_this_version(installed), Err(Failure::Usage(_))));
        }
    }
}
