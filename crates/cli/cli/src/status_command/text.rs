//! The report as text: a tree from deployment to pod to placement.

use albacore_api::{TrafficStatus, counted};

use super::annotated_pods::AnnotatedPodReport;
use super::report::{
    DeploymentReport, DeploymentState, ModelReport, PlacementReport, PodReport, StatusReport,
    ThreadReport,
};

/// The report as text; `is_single` if one deployment was given, which is then shown in full.
pub(super) fn text(report: &StatusReport, is_single: bool) -> String {
    let mut lines = Vec::new();
    if report.deployments.is_empty() && report.pods.is_empty() {
        lines
            .push("No InferenceDeployment in this namespace; use -A for all namespaces".to_owned());
    }
    for (index, deployment) in report.deployments.iter().enumerate() {
        if index > 0 {
            lines.push(String::new());
        }
        put_deployment(&mut lines, deployment, is_single);
    }
    for of in &report.pods {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        put_annotated(&mut lines, of);
    }
    for sentence in &report.unread {
        lines.push(format!("\nnot shown: {sentence}"));
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Explanation of a state, printed after its name.
pub(super) fn in_words(state: DeploymentState) -> &'static str {
    match state {
        DeploymentState::Current => "ready",
        DeploymentState::InProgress => "in progress",
        DeploymentState::Failed => "stalled",
        DeploymentState::Terminating => "terminating",
    }
}

fn put_deployment(lines: &mut Vec<String>, of: &DeploymentReport, is_full: bool) {
    lines.push(format!(
        "{}/{}  {}  pods {}  {} x {} {}  threads pinned {}",
        of.namespace,
        of.name,
        in_words(of.state),
        of.ready.as_deref().unwrap_or("?"),
        of.workers,
        of.threads,
        of.mode.to_lowercase(),
        of.pinned.as_deref().unwrap_or("?")
    ));
    for (label, value) in [
        ("http", &of.url),
        ("grpc", &of.grpc_url),
        ("goodput", &of.goodput),
        ("p99", &of.latency_p99),
        ("bad", &of.bad_rate),
    ] {
        if let Some(value) = value.as_ref().filter(|_| is_full) {
            lines.push(format!("│  {label:<8} {value}"));
        }
    }
    if let Some(traffic) = &of.traffic {
        let TrafficStatus { serving, reason } = traffic;
        lines.push(format!("│  requests to {serving} ready pods: {reason}"));
    }
    if of.respawns > 0 {
        let last = of.last_cause.as_deref().unwrap_or("unknown");
        lines.push(format!(
            "│  respawns of workers {} (last: {last})",
            of.respawns
        ));
    }
    for condition in &of.conditions {
        let is_normal = condition.status == "True" && !is_problem_condition(&condition.kind);
        if is_full || !is_normal {
            lines.push(format!(
                "│  {}={} ({}) {}",
                condition.kind, condition.status, condition.reason, condition.message
            ));
        }
    }
    let is_wrong = |model: &&ModelReport| model.error.is_some() || model.is_slo_missed();
    for model in of.models.iter().filter(|m| is_full || is_wrong(m)) {
        put_model(lines, model);
    }
    for (index, pod) in of.pods.iter().enumerate() {
        put_pod(lines, pod, index + 1 == of.pods.len());
    }
}

/// Prints a pod without a deployment.
fn put_annotated(lines: &mut Vec<String>, of: &AnnotatedPodReport) {
    let requested = match (&of.requested, of.has_opted_in) {
        (Some(requested), _) => requested.in_words(),
        (None, true) => "by its annotation or label".to_owned(),
        (None, false) => "has not opted in".to_owned(),
    };
    lines.push(format!("{}/{}  {requested}", of.namespace, of.pod.name));
    if let Some(refusal) = &of.refusal {
        lines.push(format!("│  {refusal}"));
    }
    put_pod(lines, &of.pod, true);
}

/// A number, or `?` if it is unknown.
pub(super) fn count(number: Option<i32>) -> String {
    number.map_or("?".to_owned(), |number| number.to_string())
}

/// Whether a condition is present only while there is a problem or an operation in progress.
pub(super) fn is_problem_condition(kind: &str) -> bool {
    matches!(
        kind,
        "Stalled" | "Reconciling" | "WorkersRespawning" | "StandbyMissing"
    )
}

fn put_model(lines: &mut Vec<String>, model: &ModelReport) {
    let slo = model
        .slo
        .as_ref()
        .map_or(String::new(), |slo| format!("  slo {slo}"));
    let loaded = model.loaded.as_deref().unwrap_or("?");
    lines.push(format!(
        "│  model {} {}  loaded {loaded}{slo}",
        model.name, model.uri
    ));
    let missed = if model.is_slo_missed() {
        "  slo missed"
    } else {
        ""
    };
    let figures = model.figures();
    if !figures.is_empty() {
        lines.push(format!("│    {figures}{missed}"));
    }
    for latency in &model.latency {
        lines.push(format!(
            "│    {:<12} {} per row + {} per batch",
            latency.kind, latency.per_row, latency.per_batch
        ));
    }
    if let Some(error) = &model.error {
        lines.push(format!("│    {error}"));
    }
}

fn put_pod(lines: &mut Vec<String>, pod: &PodReport, is_last: bool) {
    let (branch, stem) = if is_last {
        ("└─", "  ")
    } else {
        ("├─", "│ ")
    };
    let node = pod.node.as_deref().unwrap_or("no node");
    let ready = if pod.is_ready { "ready" } else { "not ready" };
    let restarts = match pod.restarts {
        0 => String::new(),
        n => format!(", {n} restarts"),
    };
    lines.push(format!(
        "{branch} {}  {} ({ready}{restarts})  {node}",
        pod.name, pod.phase
    ));
    if let Some(problem) = &pod.problem {
        lines.push(format!("{stem}   {problem}"));
    }
    match &pod.placement {
        Some(placement) => put_placement(lines, placement, stem),
        None if pod.node.is_some() => {
            lines.push(format!(
                "{stem}   not placed: the agent of its node has not reported it"
            ));
        }
        None => {}
    }
    if let Some(threads) = &pod.threads {
        put_threads(lines, threads, stem);
    }
}

fn put_threads(lines: &mut Vec<String>, threads: &[ThreadReport], stem: &str) {
    let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let mut rows = vec![["worker.rank", "tid", "planned", "mask", "state"].map(str::to_owned)];
    rows.extend(threads.iter().map(|of| {
        [
            of.label(),
            or_none(&of.tid.map(|tid| tid.to_string())),
            or_none(&of.planned),
            or_none(&of.mask),
            of.state.replace('_', " "),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [0, 1, 2, 3].map(width);
    for [rank, tid, planned, mask, state] in &rows {
        let [a, b, c, d] = widths;
        lines.push(format!(
            "{stem}   {rank:<a$}  {tid:>b$}  {planned:<c$}  {mask:<d$}  {state}"
        ));
    }
}

fn put_placement(lines: &mut Vec<String>, of: &PlacementReport, stem: &str) {
    let cpuset = of.cpuset.as_deref().unwrap_or("?");
    let isolation = of.isolation.replace('_', " ");
    let front = of.front.map_or_else(String::new, |front| {
        format!("  event loops {}/{front}", count(of.front_verified))
    });
    lines.push(format!(
        "{stem}   workers {}/{}  threads {}/{} verified{front}  cpus {cpuset}  isolation {isolation}",
        count(of.workers_verified),
        of.workers,
        count(of.threads_verified),
        of.threads
    ));
    if let (true, Some(at)) = (of.is_unknown(), &of.last_verification) {
        lines.push(format!(
            "{stem}   the agent of its node has verified nothing since {at}"
        ));
    }
    if let (Some(plan), Some(since)) = (&of.plan, &of.since) {
        lines.push(format!("{stem}   plan {plan} since {since}"));
    }
    if of.drifts > 0 {
        let cause = of.drift_cause.as_deref().unwrap_or("cause unknown");
        lines.push(format!("{stem}   drifts {} (last: {cause})", of.drifts));
    }
    lines.extend(of.trial.iter().map(|text| format!("{stem}   {text}")));
    if let Some(threads) = of.quota_threads {
        lines.push(format!(
            "{stem}   its cpu limit lets {} of each worker run at once",
            counted(threads, "thread")
        ));
    }
    if let Some(hot) = of.hot_threads {
        lines.push(format!("{stem}   hot threads {hot} of {}", of.threads));
    }
    if let Some(reason) = &of.reason {
        lines.push(format!("{stem}   {reason}"));
    }
}
