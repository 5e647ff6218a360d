//! The rules of batching, of the deployment and of single models.

use crate::deployment::{
    Batching, BatchingPolicy, InferenceDeployment, InferenceDeploymentSpec, ModelSpec,
};
use crate::timespan::Timespan;
use crate::violation::Violation;

pub(super) fn delay_goes_with_timeout(deployment: &InferenceDeployment) -> Option<Violation> {
    let Batching {
        policy, max_delay, ..
    } = deployment.spec.batching;
    delay_and_policy("spec.batching", policy, max_delay)
}

/// `max_delay` is the delay at `at` or, for a model, the effective one.
fn delay_and_policy(
    at: &str,
    policy: BatchingPolicy,
    max_delay: Option<Timespan>,
) -> Option<Violation> {
    let problem = match (policy, max_delay) {
        (BatchingPolicy::Timeout, None) => {
            "is missing; policy Timeout needs it, as in \"maxDelay: 2ms\"".to_owned()
        }
        (BatchingPolicy::Timeout, Some(_)) | (_, None) => return None,
        (other, Some(delay)) => format!(
            "is {delay}, which is valid with policy Timeout only; remove it or set policy: Timeout \
             instead of {other:?}"
        ),
    };
    Some(Violation::new(format!("{at}.maxDelay"), problem))
}

pub(super) fn preference_goes_with_auto(deployment: &InferenceDeployment) -> Option<Violation> {
    preference_and_policy("spec.batching", deployment.spec.batching)
}

fn preference_and_policy(at: &str, batching: Batching) -> Option<Violation> {
    let Batching { policy, prefer, .. } = batching;
    let prefer = prefer.filter(|_| policy != BatchingPolicy::Auto)?;
    let problem = format!(
        "is {prefer:?}, which is valid with policy Auto only; remove it or set policy: Auto \
         instead of {policy:?}"
    );
    Some(Violation::new(format!("{at}.prefer"), problem))
}

pub(super) fn window_goes_with_deferral(deployment: &InferenceDeployment) -> Option<Violation> {
    window_and_policy("spec.batching", deployment.spec.batching)
}

fn window_and_policy(at: &str, batching: Batching) -> Option<Violation> {
    let Batching { policy, window, .. } = batching;
    let instead = match policy {
        BatchingPolicy::Auto | BatchingPolicy::Deferred => return None,
        BatchingPolicy::Timeout => "set maxDelay instead",
        BatchingPolicy::Eager => "remove it",
    };
    let problem = format!(
        "is {}, which bounds how long requests are deferred, and policy {policy:?} defers none; \
         {instead}",
        window?
    );
    Some(Violation::new(format!("{at}.window"), problem))
}

/// The first violation of a model with its own batching. `check` is called with the path of its
/// batching and the effective batching; it may reject the model's own fields.
fn of_models(
    deployment: &InferenceDeployment,
    check: fn(&str, Batching) -> Option<Violation>,
) -> Option<Violation> {
    let spec = &deployment.spec;
    let mut models = spec.models.iter().enumerate();
    models.find_map(|(index, model)| {
        model.batching?;
        let at = format!("spec.models[{index}].batching");
        check(&at, spec.batching_of(model))
    })
}

pub(super) fn delays_of_models_go_with_timeout(
    deployment: &InferenceDeployment,
) -> Option<Violation> {
    of_models(deployment, |at, batching| {
        delay_and_policy(at, batching.policy, batching.max_delay)
    })
}

pub(super) fn preferences_of_models_go_with_auto(
    deployment: &InferenceDeployment,
) -> Option<Violation> {
    of_models(deployment, preference_and_policy)
}

pub(super) fn windows_of_models_go_with_deferral(
    deployment: &InferenceDeployment,
) -> Option<Violation> {
    of_models(deployment, window_and_policy)
}

/// The effective delay for a model, and whether it is the model's own.
fn delay_of(spec: &InferenceDeploymentSpec, model: &ModelSpec) -> Option<(Timespan, bool)> {
    let is_own = model.batching.is_some_and(|own| own.max_delay.is_some());
    Some((spec.batching_of(model).max_delay?, is_own))
}

/// The first model whose delay, its own or the common one, is not below its objective, with both.
fn model_with_delay_above_objective(
    spec: &InferenceDeploymentSpec,
    is_own: bool,
) -> Option<(usize, Timespan, Timespan)> {
    let mut models = spec.models.iter().enumerate();
    models.find_map(|(index, model)| {
        let (delay, _) = delay_of(spec, model).filter(|(_, own)| *own == is_own)?;
        let latency = model.slo?.latency;
        (delay >= latency).then_some((index, delay, latency))
    })
}

pub(super) fn delay_is_below_objectives(deployment: &InferenceDeployment) -> Option<Violation> {
    let (index, delay, latency) = model_with_delay_above_objective(&deployment.spec, false)?;
    let problem = format!(
        "is {delay}, which leaves no time to serve spec.models[{index}] within its slo.latency of \
         {latency}; choose less"
    );
    Some(Violation::new("spec.batching.maxDelay", problem))
}

pub(super) fn delays_of_models_are_below_objectives(
    deployment: &InferenceDeployment,
) -> Option<Violation> {
    let (index, delay, latency) = model_with_delay_above_objective(&deployment.spec, true)?;
    let problem = format!(
        "is {delay}, which leaves no time to serve the model within its slo.latency of {latency}; \
         choose less"
    );
    let field = format!("spec.models[{index}].batching.maxDelay");
    Some(Violation::new(field, problem))
}

pub(super) fn deferred_has_objectives(deployment: &InferenceDeployment) -> Option<Violation> {
    let spec = &deployment.spec;
    let is_deferred =
        |model: &ModelSpec| spec.batching_of(model).policy == BatchingPolicy::Deferred;
    let mut models = spec.models.iter();
    let index = models.position(|model| model.slo.is_none() && is_deferred(model))?;
    let problem = "is missing; batching.policy Deferred waits as long as the objective allows and \
                   so needs one, as in \"slo: {latency: 25ms}\"";
    Some(Violation::new(format!("spec.models[{index}].slo"), problem))
}

pub(super) fn queue_holds_batches_of_models(deployment: &InferenceDeployment) -> Option<Violation> {
    let spec = &deployment.spec;
    let queue = spec.queue.max_rows;
    let mut models = spec.models.iter().enumerate();
    models.find_map(|(index, model)| {
        let batch = model.batching?.max_rows.filter(|&batch| batch > queue)?;
        let problem = format!(
            "is {queue}, less than one batch; raise it to at least \
             spec.models[{index}].batching.maxRows, {batch}"
        );
        Some(Violation::new("spec.queue.maxRows", problem))
    })
}

pub(super) fn queue_holds_a_batch(deployment: &InferenceDeployment) -> Option<Violation> {
    let (queue, batch) = (
        deployment.spec.queue.max_rows,
        deployment.spec.batching.max_rows,
    );
    (queue < batch).then(|| {
        let problem = format!(
            "is {queue}, less than one batch; raise it to at least batching.maxRows, {batch}"
        );
        Violation::new("spec.queue.maxRows", problem)
    })
}
