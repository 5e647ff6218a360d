//! `albacore status` and `albacore explain`: deployments of a cluster with their pods, workers,
//! threads, cpus and drift, and their problems.
//!
//! Reads with the user's permissions; the report lists objects that could not be read.

mod annotated_pods;
mod findings;
mod report;
mod text;
mod threads;

use std::fmt::Write as _;

use albacore_api::{InferenceDeployment, NodePlacement, ServerLimit, Utilization};
use albacore_cluster::{ApiResource, Cluster, ClusterError, ErrorClass, ObjectKey};
use albacore_command::{Failure, OutputFormat, print, print_json, sentence};
use albacore_topology::CpuSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::args::{ClusterArgs, ExplainArgs, StatusArgs};
use crate::cluster_access::{block_on, connect, read, typed};
use crate::draw::{self, PodStrip};
use annotated_pods::AnnotatedPodReport;
use findings::{Finding, findings};
use report::{
    BatchingReport, ClusterObjects, DEPLOYMENT_LABEL, DeploymentReport, PodReport, StatusReport,
};
use text::count;

/// `albacore status`.
pub(crate) fn run(args: &StatusArgs) -> Result<(), Failure> {
    let request = StatusSelection {
        target: StatusTarget::of(args.name.as_deref()),
        is_everywhere: args.all_namespaces,
        threads: args.threads,
    };
    let report = fetch(&args.cluster, request)?;
    match args.output {
        OutputFormat::Text => print(&text::text(&report, args.name.is_some())),
        OutputFormat::Json => print_json(&report),
        OutputFormat::Svg => print(&picture(&report)),
    }
}

/// `albacore explain`.
pub(crate) fn explain(args: &ExplainArgs) -> Result<(), Failure> {
    let request = StatusSelection {
        target: StatusTarget::of(Some(&args.name)),
        is_everywhere: false,
        threads: false,
    };
    let report = fetch(&args.cluster, request)?;
    let of_deployments = report.deployments.iter().flat_map(findings);
    let of_pods = report.pods.iter().flat_map(AnnotatedPodReport::findings);
    let found: Vec<Finding> = of_deployments.chain(of_pods).collect();
    match args.is_json {
        true => print_json(&StatusExplanation {
            findings: &found,
            utilization: report
                .deployments
                .iter()
                .find_map(|of| of.utilization.as_ref()),
            batching: report.deployments.iter().flat_map(batching).collect(),
            unread: &report.unread,
        }),
        false => print(&in_sentences(&args.name, &found, &report)),
    }
}

#[derive(Serialize)]
struct StatusExplanation<'a> {
    findings: &'a [Finding],
    /// Utilization of front end and workers, and which of them is the bottleneck.
    #[serde(skip_serializing_if = "Option::is_none")]
    utilization: Option<&'a Utilization>,
    /// Choices of the batching policy Auto.
    batching: Vec<BatchingLine<'a>>,
    unread: &'a [String],
}

/// The choice of policy Auto for a model and a kind of output.
#[derive(Serialize)]
struct BatchingLine<'a> {
    model: &'a str,
    #[serde(flatten)]
    choice: &'a BatchingReport,
}

fn batching(of: &DeploymentReport) -> impl Iterator<Item = BatchingLine<'_>> {
    of.models.iter().flat_map(|model| {
        let lines = model.batching.iter();
        lines.map(|choice| BatchingLine {
            model: &model.name,
            choice,
        })
    })
}

fn in_sentences(name: &str, found: &[Finding], report: &StatusReport) -> String {
    let mut text = String::new();
    if found.is_empty() {
        let _ = writeln!(text, "{name} has no problems"); // infallible: a String
    }
    for Finding {
        about,
        message,
        remedy,
    } in found
    {
        let _ = writeln!(text, "{about}: {message}"); // infallible: a String
        if !remedy.is_empty() {
            let _ = writeln!(text, "  -> {remedy}"); // infallible: a String
        }
    }
    for utilization in report
        .deployments
        .iter()
        .filter_map(|of| of.utilization.as_ref())
    {
        let _ = writeln!(text, "{}", limit_in_words(utilization)); // infallible: a String
    }
    for BatchingLine { model, choice } in report.deployments.iter().flat_map(batching) {
        let BatchingReport {
            kind,
            deferred,
            reason,
        } = choice;
        // infallible: a String
        let _ = writeln!(
            text,
            "batching of model {model}, {kind}: {reason} (deferred in {deferred} pods)"
        );
    }
    for sentence in &report.unread {
        let _ = writeln!(text, "not checked: {sentence}"); // infallible: a String
    }
    text
}

/// States whether the front end or the workers are the bottleneck.
fn limit_in_words(utilization: &Utilization) -> String {
    let Utilization {
        front,
        workers,
        limit,
    } = utilization;
    let verdict = match limit {
        None => "neither limits the server",
        Some(ServerLimit::Front) => {
            "the front end is the limit: raise spec.front.threads, send more rows in a request, or \
             add pods"
        }
        Some(ServerLimit::Workers) => "the workers are the limit: add workers, cpus or pods",
    };
    format!("utilization: front end {front} (busiest thread), workers {workers}: {verdict}")
}

fn picture(report: &StatusReport) -> String {
    let mut strips = Vec::new();
    for (index, deployment) in report.deployments.iter().enumerate() {
        for pod in &deployment.pods {
            strips.push(strip(index, &deployment.namespace, pod));
        }
    }
    for (index, of) in report.pods.iter().enumerate() {
        strips.push(strip(
            report.deployments.len() + index,
            &of.namespace,
            &of.pod,
        ));
    }
    draw::status_svg("Albacore: pods and their cpus", &strips)
}

fn strip(deployment: usize, namespace: &str, pod: &PodReport) -> PodStrip {
    let placement = pod.placement.as_ref();
    let (verdict, is_good) = match placement {
        Some(p) => (
            format!(
                "{} of {} threads verified",
                count(p.threads_verified),
                p.threads
            ),
            p.threads > 0 && p.threads_verified == Some(p.threads),
        ),
        None => ("not placed".to_owned(), false),
    };
    PodStrip {
        deployment,
        node: pod.node.clone(),
        label: format!("{namespace}/{}", pod.name),
        verdict,
        is_good,
        cpuset: placement
            .and_then(|p| p.cpuset.as_deref())
            .and_then(|list| list.parse::<CpuSet>().ok()),
    }
}

/// The objects selected on the command line.
#[derive(Clone, Copy)]
enum StatusTarget<'a> {
    /// All deployments and all annotated pods.
    All,
    Deployment(&'a str),
    /// Given as `pod/NAME`.
    Pod(&'a str),
}

impl<'a> StatusTarget<'a> {
    fn of(name: Option<&'a str>) -> Self {
        match name {
            None => Self::All,
            Some(name) => match name.strip_prefix("pod/") {
                Some(pod) => Self::Pod(pod),
                None => Self::Deployment(name),
            },
        }
    }
}

/// The selection on the command line.
#[derive(Clone, Copy)]
struct StatusSelection<'a> {
    target: StatusTarget<'a>,
    is_everywhere: bool,
    threads: bool,
}

/// Reads all objects that the report needs.
fn fetch(args: &ClusterArgs, request: StatusSelection<'_>) -> Result<StatusReport, Failure> {
    block_on(fetch_report(args, request))
}

async fn fetch_report(
    args: &ClusterArgs,
    request: StatusSelection<'_>,
) -> Result<StatusReport, Failure> {
    let StatusSelection {
        target,
        is_everywhere,
        threads,
    } = request;
    let cluster = connect(args.kubeconfig.as_ref(), args.context.as_ref()).await?;
    let own = args.namespace.as_deref().unwrap_or(cluster.namespace());
    let namespace = (!is_everywhere).then_some(own);
    let mut objects = ClusterObjects::default();
    match target {
        StatusTarget::All => read_deployments(&cluster, namespace, &mut objects).await?,
        StatusTarget::Deployment(name) => {
            read_deployment(&cluster, &ObjectKey::new(own, name), &mut objects).await?;
        }
        StatusTarget::Pod(name) => {
            let key = ObjectKey::new(own, name);
            objects.annotated = vec![annotated_pods::read_one(&cluster, &key).await?];
        }
    }
    let nodes = ApiResource::erase::<NodePlacement>(&());
    objects.nodes = read(&cluster, &nodes, None, "", &mut objects.unread).await?;
    if matches!(target, StatusTarget::All) {
        let unread = &mut objects.unread;
        objects.annotated = annotated_pods::read_annotated(&cluster, namespace, unread).await;
    }
    objects.now = Timestamp::now();
    let mut report = StatusReport::of(objects);
    if threads {
        threads::add(&cluster, &mut report).await;
    }
    Ok(report)
}

/// Reads all deployments of one or all namespaces, and their pods.
async fn read_deployments(
    cluster: &Cluster,
    namespace: Option<&str>,
    objects: &mut ClusterObjects,
) -> Result<(), Failure> {
    let kind = ApiResource::erase::<InferenceDeployment>(&());
    let found = cluster.list(&kind, namespace, "").await.map_err(unread)?;
    objects.deployments = typed(found, &mut objects.unread);
    let pods = ApiResource::erase::<Pod>(&());
    let labels = DEPLOYMENT_LABEL;
    objects.pods = read(cluster, &pods, namespace, labels, &mut objects.unread).await?;
    Ok(())
}

/// Reads one deployment and its pods.
async fn read_deployment(
    cluster: &Cluster,
    key: &ObjectKey,
    objects: &mut ClusterObjects,
) -> Result<(), Failure> {
    let ObjectKey { namespace, name } = key;
    let kind = ApiResource::erase::<InferenceDeployment>(&());
    let Some(found) = cluster.get(&kind, key).await.map_err(unread)? else {
        return Err(Failure::Failed(format!(
            "there is no InferenceDeployment \"{name}\" in namespace \"{namespace}\"; `albacore \
             status -A` lists those of all namespaces, and pod/{name} names a pod"
        )));
    };
    objects.deployments = typed(vec![found], &mut objects.unread);
    let pods = ApiResource::erase::<Pod>(&());
    let labels = format!("{DEPLOYMENT_LABEL}={name}");
    objects.pods = read(
        cluster,
        &pods,
        Some(namespace),
        &labels,
        &mut objects.unread,
    )
    .await?;
    Ok(())
}

fn unread(error: ClusterError) -> Failure {
    match error.class() {
        ErrorClass::NotFound => Failure::Failed(
            "this cluster has no InferenceDeployments: Albacore is not installed (helm install \
             albacore charts/albacore)"
                .to_owned(),
        ),
        _ => Failure::Failed(sentence(&error)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_auto_chose_is_explained_with_its_reason() {
        let deployment = json!({
            "apiVersion": "albacore.dev/v1beta1", "kind": "InferenceDeployment",
            "metadata": {"name": "fraud", "namespace": "bank"},
            "spec": {"models": [{"name": "m", "uri": "pvc://models/m.ubj"}]},
            "status": {"models": [{"name": "m", "loaded": "2/2", "batching": [
                {"kind": "contribs", "deferred": "1/2", "reason": "deferred: for a reason"}]}]}});
        let report = StatusReport::of(ClusterObjects {
            deployments: vec![serde_json::from_value(deployment).unwrap()],
            ..ClusterObjects::default()
        });
        let text = in_sentences("fraud", &[], &report);
        let line = "batching of model m, contribs: deferred: for a reason (deferred in 1/2 pods)";
        assert_eq!(text, format!("fraud has no problems\n{line}\n"));
        let lines: Vec<_> = report.deployments.iter().flat_map(batching).collect();
        assert_eq!(
            serde_json::to_value(&lines).unwrap(),
            json!([{"model": "m", "kind": "contribs", "deferred": "1/2",
                "reason": "deferred: for a reason"}])
        );
    }
}
