//! Rules between the fields of a spec: one table, evaluated here in Rust and in the API server as
//! CEL.
//!
//! Each rule has both forms next to each other. The CEL is added to the schema at `at`; the Rust
//! form checks the same object and reports more: the conflicting values and the remedy. A rule
//! without CEL is expressed in the schema in another way (`x-kubernetes-list-map-keys`), or can
//! only be checked by the controller.

mod batching;

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Container;

use crate::deployment::{
    Batching, InferenceDeployment, InferenceDeploymentSpec, LoadReportPolicy, Queue,
};
use crate::iterations::IterationsSpec;
use crate::limits::{NAME_CHARS_MAX, SLOTS_MAX, TRIAL_ARMS_MIN, TRIAL_WINDOW_MICROS_MIN};
use crate::quantity;
use crate::violation::{Violation, quoted};

/// Name of the serving container in the pods and in `spec.template`.
pub const SERVER_CONTAINER: &str = "server";

/// A rule in both forms.
pub(crate) struct ValidationRule {
    /// The schema node to which the CEL is added: `""` for the object, or `spec.batching`.
    pub(crate) at: &'static str,
    /// The CEL; `self` is the value at `at`.
    pub(crate) cel: Option<&'static str>,
    /// The message of the API server.
    pub(crate) message: &'static str,
    /// The field that the API server reports, relative to `at`.
    pub(crate) field: Option<&'static str>,
    /// `None` for a transition rule, which only the API server can evaluate.
    check: Option<fn(&InferenceDeployment) -> Option<Violation>>,
}

pub(crate) const RULES: [ValidationRule; 27] = [
    ValidationRule {
        at: "",
        cel: Some(
            "size(self.metadata.name) <= 63 && \
             self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        ),
        message: "metadata.name becomes the name of a Service: at most 63 lower-case letters, \
                  digits and \"-\", beginning with a letter and not ending with \"-\"",
        field: None,
        check: Some(name_is_a_label),
    },
    ValidationRule {
        at: "spec",
        cel: Some("self.workers * self.threads <= 2048"),
        message: "workers x threads must be at most 2048",
        field: Some(".threads"),
        check: Some(threads_are_bounded),
    },
    ValidationRule {
        at: "spec",
        cel: Some(
            "(has(self.models) && size(self.models) > 0) || (has(self.template) && \
             has(self.template.spec) && has(self.template.spec.containers) && \
             self.template.spec.containers.exists(c, c.name == 'server'))",
        ),
        message: "needs models, or a template with a container named \"server\"",
        field: Some(".models"),
        check: Some(something_is_served),
    },
    ValidationRule {
        at: "spec",
        cel: Some(
            "!has(self.models) || size(self.models) == 0 || !has(self.template) || \
             !has(self.template.spec) || !has(self.template.spec.containers) || \
             self.template.spec.containers.all(c, c.name != 'server' || \
             (!has(c.command) && !has(c.args)))",
        ),
        message: "models are served by the built-in server: remove models, or command and args of \
                  the container \"server\"",
        field: Some(".template"),
        check: Some(one_server),
    },
    ValidationRule {
        at: "spec",
        cel: Some(
            "(has(self.models) && size(self.models) > 0) || (self.batching.policy == 'Auto' && \
             self.batching.maxRows == 1024 && !has(self.batching.maxDelay) && \
             !has(self.batching.prefer) && !has(self.batching.window) && \
             self.queue.maxRows == 65536)",
        ),
        message: "batching and queue apply to the built-in server only: remove them, or serve \
                  models",
        field: Some(".batching"),
        check: Some(batching_has_a_server),
    },
    ValidationRule {
        at: "spec",
        cel: Some("!has(self.front) || (has(self.models) && size(self.models) > 0)"),
        message: "front applies to the built-in server only: remove it, or serve models",
        field: Some(".front"),
        check: Some(front_has_a_server),
    },
    // CEL functions for quantities are newer than the oldest supported API server.
    ValidationRule {
        at: "spec",
        cel: None,
        message: "",
        field: None,
        check: Some(front_has_cpus),
    },
    ValidationRule {
        at: "spec.models",
        cel: None,
        message: "",
        field: None,
        check: Some(names_are_unique),
    },
    // CEL cannot access a field that is either a string or an object.
    ValidationRule {
        at: "spec.models",
        cel: None,
        message: "",
        field: None,
        check: Some(iterations_are_not_empty),
    },
    ValidationRule {
        at: "spec",
        cel: Some(
            "!has(self.models) || self.models.all(m, !has(m.threads) || \
             type(m.threads) == string || int(m.threads) <= self.threads)",
        ),
        message: "models[].threads must be auto or at most spec.threads: the threads of one worker \
                  compute a batch",
        field: Some(".models"),
        check: Some(threads_of_models_are_in_range),
    },
    ValidationRule {
        at: "spec.batching",
        cel: Some("self.policy == 'Timeout' ? has(self.maxDelay) : !has(self.maxDelay)"),
        message: "maxDelay is required with policy Timeout and invalid with any other",
        field: None,
        check: Some(batching::delay_goes_with_timeout),
    },
    ValidationRule {
        at: "spec.batching",
        cel: Some("self.policy == 'Auto' || !has(self.prefer)"),
        message: "prefer is valid with policy Auto only",
        field: None,
        check: Some(batching::preference_goes_with_auto),
    },
    ValidationRule {
        at: "spec.batching",
        cel: Some("self.policy in ['Auto', 'Deferred'] || !has(self.window)"),
        message: "window is valid with policy Auto or Deferred only",
        field: None,
        check: Some(batching::window_goes_with_deferral),
    },
    ValidationRule {
        at: "spec",
        cel: Some(
            "!has(self.models) || self.models.all(m, !has(m.batching) || \
             ((has(m.batching.policy) ? m.batching.policy : self.batching.policy) == 'Timeout' ? \
             has(m.batching.maxDelay) || has(self.batching.maxDelay) : \
             !has(m.batching.maxDelay)))",
        ),
        message: "models[].batching.maxDelay is required with policy Timeout and invalid with any \
                  other",
        field: Some(".models"),
        check: Some(batching::delays_of_models_go_with_timeout),
    },
    ValidationRule {
        at: "spec",
        cel: Some(
            "!has(self.models) || self.models.all(m, !has(m.batching) || \
             !has(m.batching.prefer) || \
             (has(m.batching.policy) ? m.batching.policy : self.batching.policy) == 'Auto')",
        ),
        message: "models[].batching.prefer is valid with policy Auto only",
        field: Some(".models"),
        check: Some(batching::preferences_of_models_go_with_auto),
    },
    ValidationRule {
        at: "spec",
        cel: Some(
            "!has(self.models) || self.models.all(m, !has(m.batching) || \
             !has(m.batching.window) || \
             (has(m.batching.policy) ? m.batching.policy : self.batching.policy) in \
             ['Auto', 'Deferred'])",
        ),
        message: "models[].batching.window is valid with policy Auto or Deferred only",
        field: Some(".models"),
        check: Some(batching::windows_of_models_go_with_deferral),
    },
    ValidationRule {
        at: "spec",
        cel: Some(
            "!has(self.batching.maxDelay) || !has(self.models) || self.models.all(m, \
             !has(m.slo) || (has(m.batching) && (has(m.batching.maxDelay) || \
             (has(m.batching.policy) && m.batching.policy != 'Timeout'))) || \
             duration(self.batching.maxDelay) < duration(m.slo.latency))",
        ),
        message: "batching.maxDelay must be shorter than the slo.latency of every model",
        field: Some(".batching.maxDelay"),
        check: Some(batching::delay_is_below_objectives),
    },
    ValidationRule {
        at: "spec",
        cel: Some(
            "!has(self.models) || self.models.all(m, !has(m.slo) || !has(m.batching) || \
             !has(m.batching.maxDelay) || \
             duration(m.batching.maxDelay) < duration(m.slo.latency))",
        ),
        message: "models[].batching.maxDelay must be shorter than the model's slo.latency",
        field: Some(".models"),
        check: Some(batching::delays_of_models_are_below_objectives),
    },
    ValidationRule {
        at: "spec",
        cel: Some(
            "!has(self.models) || self.models.all(m, has(m.slo) || \
             (has(m.batching) && has(m.batching.policy) ? m.batching.policy : \
             self.batching.policy) != 'Deferred')",
        ),
        message: "batching.policy Deferred needs slo.latency for every model that uses it",
        field: Some(".models"),
        check: Some(batching::deferred_has_objectives),
    },
    ValidationRule {
        at: "spec",
        cel: Some("self.queue.maxRows >= self.batching.maxRows"),
        message: "queue.maxRows must hold one batch: at least batching.maxRows",
        field: Some(".queue.maxRows"),
        check: Some(batching::queue_holds_a_batch),
    },
    ValidationRule {
        at: "spec",
        cel: Some(
            "!has(self.models) || self.models.all(m, !has(m.batching) || \
             !has(m.batching.maxRows) || m.batching.maxRows <= self.queue.maxRows)",
        ),
        message: "queue.maxRows must hold one batch: at least every models[].batching.maxRows",
        field: Some(".queue.maxRows"),
        check: Some(batching::queue_holds_batches_of_models),
    },
    ValidationRule {
        at: "spec.autoscaling",
        cel: Some("self.minReplicas <= self.maxReplicas"),
        message: "minReplicas must not be above maxReplicas",
        field: Some(".minReplicas"),
        check: Some(replicas_are_ordered),
    },
    ValidationRule {
        at: "spec",
        cel: Some("!has(self.autoscaling) || (has(self.models) && size(self.models) > 0)"),
        message: "autoscaling uses measurements of the built-in server: serve models, or remove it \
                  and let an HPA write the scale subresource",
        field: Some(".autoscaling"),
        check: Some(autoscaling_has_a_server),
    },
    ValidationRule {
        at: "spec.placement.distances",
        cel: Some(
            "(!has(self.l1) || !has(self.l2) || self.l1 <= self.l2) && \
             (!has(self.l1) || !has(self.l3) || self.l1 <= self.l3) && \
             (!has(self.l2) || !has(self.l3) || self.l2 <= self.l3) && \
             (!has(self.l1) || !has(self.numa) || self.l1 <= self.numa) && \
             (!has(self.l2) || !has(self.numa) || self.l2 <= self.numa) && \
             (!has(self.l3) || !has(self.numa) || self.l3 <= self.numa) && \
             (!has(self.l1) || !has(self.package) || self.l1 <= self.package) && \
             (!has(self.l2) || !has(self.package) || self.l2 <= self.package) && \
             (!has(self.l3) || !has(self.package) || self.l3 <= self.package) && \
             (!has(self.numa) || !has(self.package) || self.numa <= self.package) && \
             (!has(self.l1) || !has(self.machine) || self.l1 <= self.machine) && \
             (!has(self.l2) || !has(self.machine) || self.l2 <= self.machine) && \
             (!has(self.l3) || !has(self.machine) || self.l3 <= self.machine) && \
             (!has(self.numa) || !has(self.machine) || self.numa <= self.machine) && \
             (!has(self.package) || !has(self.machine) || self.package <= self.machine)",
        ),
        message: "distances must not decrease in the order l1, l2, l3, numa, package, machine",
        field: None,
        check: Some(distances_are_ordered),
    },
    ValidationRule {
        at: "spec.placement.trial",
        cel: Some("duration(self.window) >= duration('1s')"),
        message: "window must be at least 1s",
        field: Some(".window"),
        check: Some(trial_is_long_enough),
    },
    // In the schema it is a set with at least two items.
    ValidationRule {
        at: "spec.placement.trial",
        cel: None,
        message: "",
        field: None,
        check: Some(arms_differ),
    },
    // Otherwise half of the pods behind one Service would serve another protocol during the
    // roll-out.
    ValidationRule {
        at: "spec",
        cel: Some(
            "(has(self.models) && size(self.models) > 0) == \
             (has(oldSelf.models) && size(oldSelf.models) > 0)",
        ),
        message: "a deployment cannot change from the built-in server (models) to its own server \
                  or back: create another deployment and move the traffic",
        field: Some(".models"),
        check: None,
    },
];

/// Every rule that `deployment` violates; empty for a valid one. Ranges and formats of single
/// fields are part of the schema, which is checked when a file is read.
pub fn validate(deployment: &InferenceDeployment) -> Vec<Violation> {
    RULES
        .iter()
        .filter_map(|rule| rule.check?(deployment))
        .collect()
}

impl InferenceDeploymentSpec {
    /// The container `server` of the template: a user's own server, or an overlay of the built-in
    /// server's container.
    pub fn server_container(&self) -> Option<&Container> {
        let pod = self.template.as_ref()?.spec.as_ref()?;
        pod.containers.iter().find(|c| c.name == SERVER_CONTAINER)
    }

    /// Whether the built-in server runs, rather than a user's own server.
    pub fn is_built_in(&self) -> bool {
        !self.models.is_empty()
    }

    /// Threads of the front end, if the spec sets them.
    pub fn front_threads(&self) -> Option<u16> {
        self.front?.threads
    }

    /// `--load-reports` of the server, if the spec sets it.
    pub fn load_reports(&self) -> Option<&'static str> {
        self.front?.load_reports.map(|mode| match mode {
            LoadReportPolicy::OnRequest => "on-request",
            LoadReportPolicy::Always => "always",
            LoadReportPolicy::Never => "never",
        })
    }

    /// Whether pods announce their shutdown to Envoy.
    pub fn envoy_health_header(&self) -> bool {
        self.front.and_then(|front| front.envoy_health_header) == Some(true)
    }

    /// The CPU limit of the server container, if it has one.
    fn cpu_limit(&self) -> Option<f64> {
        let of_container = || self.server_container()?.resources.as_ref();
        let resources = self.resources.as_ref().or_else(of_container)?;
        quantity::cpus(&resources.limits.as_ref()?.get("cpu")?.0)
    }

    /// The path of a field of the server container, for messages.
    pub(crate) fn server_field(&self, part: &str) -> String {
        let pod = self.template.as_ref().and_then(|t| t.spec.as_ref());
        let index = pod
            .and_then(|p| p.containers.iter().position(|c| c.name == SERVER_CONTAINER))
            .unwrap_or(0);
        format!("spec.template.spec.containers[{index}].{part}")
    }
}

fn name_is_a_label(deployment: &InferenceDeployment) -> Option<Violation> {
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let is_label = name.len() <= NAME_CHARS_MAX
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    (!is_label).then(|| {
        let problem = match name {
            "" => "is missing; give the deployment a name, as in \"fraud\"".to_owned(),
            _ => format!(
                "is {}; it becomes the name of a Service: at most {NAME_CHARS_MAX} lower-case \
                 letters, digits and \"-\", beginning with a letter and not ending with \"-\"",
                quoted(name)
            ),
        };
        Violation::new("metadata.name", problem)
    })
}

fn threads_are_bounded(deployment: &InferenceDeployment) -> Option<Violation> {
    let (workers, threads) = (deployment.spec.workers, deployment.spec.threads);
    let slots = u32::from(workers) * u32::from(threads);
    (slots > SLOTS_MAX).then(|| {
        let problem = format!(
            "is {threads}, which with workers {workers} makes {slots} threads; workers x threads \
             is at most {SLOTS_MAX}"
        );
        Violation::new("spec.threads", problem)
    })
}

fn something_is_served(deployment: &InferenceDeployment) -> Option<Violation> {
    let spec = &deployment.spec;
    (!spec.is_built_in() && spec.server_container().is_none()).then(|| {
        let problem = "is missing; list the models to serve, or put a container named \"server\" \
                       and its command into spec.template.spec.containers";
        Violation::new("spec.models", problem)
    })
}

fn one_server(deployment: &InferenceDeployment) -> Option<Violation> {
    let spec = &deployment.spec;
    let server = spec.server_container().filter(|_| spec.is_built_in())?;
    let part = match (&server.command, &server.args) {
        (Some(_), _) => "command",
        (None, Some(_)) => "args",
        (None, None) => return None,
    };
    let problem = "conflicts with spec.models, which the built-in server serves; remove one of the \
                   two";
    Some(Violation::new(spec.server_field(part), problem))
}

fn batching_has_a_server(deployment: &InferenceDeployment) -> Option<Violation> {
    let spec = &deployment.spec;
    let field = match (
        spec.batching != Batching::default(),
        spec.queue != Queue::default(),
    ) {
        (true, _) => "spec.batching",
        (false, true) => "spec.queue",
        (false, false) => return None,
    };
    (!spec.is_built_in()).then(|| {
        let problem = "applies to the built-in server only, and this deployment runs its own \
                       server; remove it";
        Violation::new(field, problem)
    })
}

fn names_are_unique(deployment: &InferenceDeployment) -> Option<Violation> {
    let mut seen = BTreeSet::new();
    let models = &deployment.spec.models;
    let (index, model) = models
        .iter()
        .enumerate()
        .find(|(_, m)| !seen.insert(&m.name))?;
    let problem = format!(
        "is {}, like that of an earlier model; each name must be unique",
        quoted(&model.name)
    );
    Some(Violation::new(
        format!("spec.models[{index}].name"),
        problem,
    ))
}

fn iterations_are_not_empty(deployment: &InferenceDeployment) -> Option<Violation> {
    let mut models = deployment.spec.models.iter().enumerate();
    models.find_map(|(index, model)| match model.iterations {
        Some(IterationsSpec::Range(range)) if range.begin >= range.end => {
            let problem = format!(
                "is {range}, which contains no iteration; end must be above begin, as in {{begin: \
                 0, end: 100}}"
            );
            let field = format!("spec.models[{index}].iterations");
            Some(Violation::new(field, problem))
        }
        _ => None,
    })
}

fn threads_of_models_are_in_range(deployment: &InferenceDeployment) -> Option<Violation> {
    let of_worker = deployment.spec.threads;
    let mut models = deployment.spec.models.iter().enumerate();
    models.find_map(|(index, model)| {
        let threads = model.threads?.most()?;
        (!(1..=of_worker).contains(&threads)).then(|| {
            let problem = format!(
                "is {threads}; the threads of one worker compute a batch: write auto, or from 1 to \
                 spec.threads, {of_worker}"
            );
            Violation::new(format!("spec.models[{index}].threads"), problem)
        })
    })
}

fn front_has_a_server(deployment: &InferenceDeployment) -> Option<Violation> {
    let spec = &deployment.spec;
    (!spec.is_built_in() && spec.front.is_some()).then(|| {
        let problem = "applies to the built-in server only, and this deployment runs its own \
                       server; remove it";
        Violation::new("spec.front", problem)
    })
}

fn front_has_cpus(deployment: &InferenceDeployment) -> Option<Violation> {
    let spec = &deployment.spec;
    let threads = spec.front_threads()?;
    let limit = spec.cpu_limit()?;
    // A container with less than one CPU counts as having one.
    (f64::from(threads) > limit.floor().max(1.0)).then(|| {
        let problem = format!(
            "is {threads}, more than the cpus of the server container, whose limit is {limit}; \
             lower it or raise the limit"
        );
        Violation::new("spec.front.threads", problem)
    })
}

fn replicas_are_ordered(deployment: &InferenceDeployment) -> Option<Violation> {
    let scaling = deployment.spec.autoscaling?;
    (scaling.min_replicas > scaling.max_replicas).then(|| {
        let problem = format!(
            "is {}, above maxReplicas {}",
            scaling.min_replicas, scaling.max_replicas
        );
        Violation::new("spec.autoscaling.minReplicas", problem)
    })
}

fn distances_are_ordered(deployment: &InferenceDeployment) -> Option<Violation> {
    let distances = deployment.spec.placement.distances?;
    let error = distances.overrides().validate().err()?;
    Some(Violation::new(
        "spec.placement.distances",
        format!("is invalid: {error}"),
    ))
}

fn trial_is_long_enough(deployment: &InferenceDeployment) -> Option<Violation> {
    let window = deployment.spec.placement.trial.as_ref()?.window;
    (window.as_micros() < TRIAL_WINDOW_MICROS_MIN).then(|| {
        let problem = format!("is {window}, which is too short to measure; write 1s or more");
        Violation::new("spec.placement.trial.window", problem)
    })
}

fn arms_differ(deployment: &InferenceDeployment) -> Option<Violation> {
    let arms = &deployment.spec.placement.trial.as_ref()?.arms;
    let twice = (1..arms.len()).find(|&index| arms[..index].contains(&arms[index]));
    if let Some(index) = twice {
        let problem = format!("is {:?}, like an earlier arm; remove it", arms[index]);
        let field = format!("spec.placement.trial.arms[{index}]");
        return Some(Violation::new(field, problem));
    }
    (arms.len() < TRIAL_ARMS_MIN).then(|| {
        let problem = format!(
            "has {} of the {TRIAL_ARMS_MIN} that a comparison needs; write two or more of Scatter, \
             Compact, RoundRobin and None, or remove it for all",
            arms.len()
        );
        Violation::new("spec.placement.trial.arms", problem)
    })
}

fn autoscaling_has_a_server(deployment: &InferenceDeployment) -> Option<Violation> {
    let spec = &deployment.spec;
    (!spec.is_built_in() && spec.autoscaling.is_some()).then(|| {
        let problem = "uses measurements of the built-in server, and this deployment runs its own \
                       server; remove it and let an HPA write the scale subresource";
        Violation::new("spec.autoscaling", problem)
    })
}
