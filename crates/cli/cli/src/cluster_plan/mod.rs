//! `albacore plan -f FILE` for a cluster, and `albacore diff`: predicts the plans of the node
//! agents. Reads with the user's permissions and changes nothing.

mod objects;
mod text;

use std::collections::BTreeSet;
use std::path::Path;

use albacore_api::{InferenceDeployment, policy_of, read_deployment, restarting_fields};
use albacore_command::{Failure, OutputFormat, print, print_json, sentence};
use albacore_forecast::{
    DeploymentPlan, DiffReport, Edit, NodeDiff, NodePlan, PlanReport, PodRequirements, RunningPod,
    diff_on, plan_on, running_pods,
};
use albacore_plan::{Enforcement, PlacementMethod};
use k8s_openapi::api::core::v1::Pod;

use crate::args::{DiffArgs, PlanArgs, mode_name};
use crate::cluster_access::block_on;
use objects::PlanSource;

/// `albacore plan` for a cluster.
pub(crate) fn plan(args: &PlanArgs) -> Result<(), Failure> {
    for file in &args.file {
        if let Some(cpuset) = &file.cpuset {
            let path = file.path.display();
            return Err(Failure::Usage(format!(
                "-f {path}@{cpuset}: in a cluster the agents report which cpus a pod may use; \
                 leave @{cpuset} out"
            )));
        }
    }
    refuse_picture(args.output, "plan for a cluster")?;
    let files: Result<Vec<_>, Failure> = args.file.iter().map(|f| read(&f.path)).collect();
    let report = block_on(plans(args, &files?))?;
    match args.output {
        OutputFormat::Json => print_json(&report),
        OutputFormat::Text | OutputFormat::Svg => print(&text::plan_text(&report)),
    }
}

/// `albacore diff`; returns true if something would move.
pub(crate) fn diff(args: &DiffArgs) -> Result<bool, Failure> {
    refuse_picture(args.output, "difference")?;
    let (deployment, file) = read(&args.file)?;
    let found = block_on(difference(args, &deployment, &file)).and_then(|report| {
        match args.output {
            OutputFormat::Json => print_json(&report),
            OutputFormat::Text | OutputFormat::Svg => print(&text::diff_text(&report)),
        }?;
        let unknown: Vec<&str> = report
            .nodes
            .iter()
            .filter(|n| n.why.is_some())
            .map(|n| n.node.as_str())
            .collect();
        match (report.changes, unknown.is_empty()) {
            (true, _) => Ok(true),
            (false, true) => Ok(false),
            (false, false) => Err(Failure::Failed(format!(
                "it is not known whether threads would move on {}",
                unknown.join(", ")
            ))),
        }
    });
    found.map_err(|failure| match failure {
        Failure::Failed(text) => Failure::NotCompared(text),
        other => other,
    })
}

fn refuse_picture(output: OutputFormat, of: &str) -> Result<(), Failure> {
    match output {
        OutputFormat::Svg => Err(Failure::Usage(format!(
            "--output svg: a {of} has no picture; use text or json"
        ))),
        OutputFormat::Text | OutputFormat::Json => Ok(()),
    }
}

fn read(path: &Path) -> Result<(InferenceDeployment, String), Failure> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|e| {
        let advice = "give -f the path of an InferenceDeployment";
        Failure::Usage(format!("{file} cannot be read: {e}; {advice}"))
    })?;
    let read = read_deployment(&text, &file).map_err(|e| Failure::Usage(sentence(&e)))?;
    Ok((read, file))
}

async fn plans(
    args: &PlanArgs,
    files: &[(InferenceDeployment, String)],
) -> Result<PlanReport, Failure> {
    let source = PlanSource::connect(&args.cluster.cluster()).await?;
    let nodes = source.nodes().await?;
    let selected = nodes.selected(&args.cluster.node)?;
    let mut report = PlanReport {
        deployments: Vec::new(),
        unread: nodes.unread.clone(),
    };
    for (deployment, file) in files {
        let key = source.key_of(deployment, file)?;
        let requirements = PodRequirements::of(deployment);
        let own_pods = match source.pods(&key).await {
            Ok(pods) => Some(names_of(&pods)),
            Err(why) => {
                report.unread.push(why);
                None
            }
        };
        let mut plans = Vec::new();
        for name in &selected {
            let seen = match (nodes.view(name), nodes.refuses(name, &requirements)) {
                (Ok(view), None) => {
                    plan_on(&view, &requirements, own_pods.as_ref()).map_err(refused(name))?
                }
                (Ok(view), Some(why)) => {
                    without_plan(name, why, running_pods(&view, own_pods.as_ref()))
                }
                (Err(why), _) => without_plan(name, why, Vec::new()),
            };
            plans.push(seen);
        }
        report.deployments.push(DeploymentPlan {
            namespace: key.namespace,
            name: key.name,
            workers: requirements.policy.workers,
            threads: requirements.policy.threads,
            mode: mode_name(requirements.policy.mode),
            notes: notes(deployment, &requirements),
            nodes: plans,
        });
    }
    Ok(report)
}

/// The failure for a node whose problem the solver rejects.
fn refused<E: std::error::Error>(node: &str) -> impl Fn(E) -> Failure {
    move |error| Failure::Failed(format!("node {node}: {}", sentence(&error)))
}

fn without_plan(node: &str, why: String, now: Vec<RunningPod>) -> NodePlan {
    NodePlan {
        node: node.to_owned(),
        plan: None,
        why: Some(why),
        assumptions: Vec::new(),
        now,
    }
}

/// `namespace/name` of each pod.
fn names_of(pods: &[Pod]) -> BTreeSet<String> {
    let text = |name: &Option<String>| name.clone().unwrap_or_default();
    let names = pods.iter().map(|pod| {
        let metadata = &pod.metadata;
        format!("{}/{}", text(&metadata.namespace), text(&metadata.name))
    });
    names.collect()
}

/// Notes on a deployment that apply to every node.
fn notes(deployment: &InferenceDeployment, requirements: &PodRequirements) -> Vec<String> {
    let mut notes = Vec::new();
    let (placed, requested) = (requirements.policy.threads, requirements.threads_requested);
    if placed < requested {
        notes.push(format!(
            "the cpu limit lets {placed} of {requested} threads of each worker run at once: these are \
             placed, the others share the cpus of their worker"
        ));
    }
    if requirements.policy.enforcement == Enforcement::Observe {
        notes.push("spec.placement.enforcement is Observe: no mask is written".to_owned());
    }
    if requirements.policy.placement == PlacementMethod::RoundRobin {
        notes.push(
            "spec.placement.policy is RoundRobin: cpus are assigned in turn, without a search"
                .to_owned(),
        );
    }
    if deployment.spec.placement.trial.is_some() {
        notes.push(
            "spec.placement.trial: each pod keeps the placement that its trial finds best"
                .to_owned(),
        );
    }
    notes
}

async fn difference(
    args: &DiffArgs,
    deployment: &InferenceDeployment,
    file: &str,
) -> Result<DiffReport, Failure> {
    let source = PlanSource::connect(&args.cluster).await?;
    let key = source.key_of(deployment, file)?;
    let live = source.deployment(&key).await?;
    let pods = source.pods(&key).await.map_err(Failure::Failed)?;
    let nodes = source.nodes().await?;
    let selected = nodes.selected(&args.node)?;
    let restarting = restarting_fields(&live, deployment);
    let (before, after) = (policy_of(&live.spec), policy_of(&deployment.spec));
    let requirements = PodRequirements::of(deployment);
    let mut notes = notes(deployment, &requirements);
    let is_main_changed = before.main_thread != after.main_thread;
    if is_main_changed {
        notes.push(
            "spec.placement.mainThread differs: main threads get other masks on the same plan"
                .to_owned(),
        );
    }
    let replicas = (live.spec.replicas, deployment.spec.replicas);
    if replicas.0 != replicas.1 && replicas.1.is_some() {
        notes.push(
            "spec.replicas differs: where pods are added and removed is the scheduler's decision \
             and not shown; `kubectl albacore plan` shows what a new pod would get"
                .to_owned(),
        );
    }
    let edit = Edit {
        after: requirements,
        restarts: !restarting.is_empty(),
        is_replanned: Edit::is_replanned(&before, &after),
    };
    let own_pods = names_of(&pods);
    let placed_on = |name: &str| {
        let mut nodes = pods
            .iter()
            .filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref());
        nodes.any(|node| node == name)
    };
    let mut diffs = Vec::new();
    for name in selected.iter().filter(|name| placed_on(name)) {
        diffs.push(match nodes.view(name) {
            Ok(view) => diff_on(&view, &edit, &own_pods).map_err(refused(name))?,
            Err(why) => NodeDiff {
                node: name.clone(),
                why: Some(why),
                assumptions: Vec::new(),
                objective_before: None,
                after: None,
                pods: Vec::new(),
            },
        });
    }
    if diffs.is_empty() {
        notes.push("no pod of it runs on these nodes".to_owned());
    }
    let is_moved = diffs
        .iter()
        .flat_map(|node| &node.pods)
        .any(|pod| !pod.is_empty());
    let is_running = !diffs.is_empty();
    Ok(DiffReport {
        namespace: key.namespace,
        name: key.name,
        changes: is_running && (is_moved || edit.restarts || is_main_changed),
        restarting_fields: restarting,
        notes,
        nodes: diffs,
        unread: nodes.unread,
    })
}
