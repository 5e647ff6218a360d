//! Decodes and validates a message of the params stream.

use std::time::Duration;

use albacore_proto::params as proto;
use albacore_settings::agent_stream::{ModelParameters, ModelSlo, Parameters};
use albacore_settings::{BatchingParams, ModelBatching, Policy, Prefer, Slo, WEIGHT_DEFAULT};

/// Decodes a message and validates it like a snapshot line of the agent, and against the number of
/// `threads` of a worker.
///
/// # Errors
/// A message with the name of the field.
pub(crate) fn parameters(
    message: &proto::Parameters,
    threads: usize,
) -> Result<Parameters, String> {
    let parameters = convert(message)?;
    let checked = parameters.check();
    let checked = checked.and_then(|()| parameters.check_threads(threads));
    checked.map_err(|error| error.to_string())?;
    Ok(parameters)
}

/// Converts the fields of a message without checking their values.
fn convert(message: &proto::Parameters) -> Result<Parameters, String> {
    // Destructured, so that no received field is ignored (L9).
    let proto::Parameters {
        batching,
        queue,
        slo,
        generation,
        report_us,
        models,
    } = message;
    let missing = |field: &str| format!("parameters.{field}: is missing");
    let batching = batching.as_ref().ok_or_else(|| missing("batching"))?;
    let queue = queue.as_ref().ok_or_else(|| missing("queue"))?;
    let ModelBatching {
        policy,
        batch_rows_max,
        window,
    } = model_batching("parameters.batching", batching)?;
    Ok(Parameters {
        batching: BatchingParams {
            policy,
            batch_rows_max,
            window,
            queue_rows_max: queue.max_rows as usize,
        },
        slo: slo.iter().map(model_slo).collect(),
        models: models
            .iter()
            .enumerate()
            .map(|(index, model)| model_parameters(&format!("parameters.models[{index}]"), model))
            .collect::<Result<_, _>>()?,
        generation: *generation,
        report: report_us.map(Duration::from_micros),
    })
}

/// Converts the model parameters at `path`.
fn model_parameters(
    path: &str,
    message: &proto::ModelParameters,
) -> Result<ModelParameters, String> {
    let proto::ModelParameters {
        model,
        threads,
        weight,
        batching,
    } = message;
    let threads = threads.map(|threads| {
        u16::try_from(threads)
            .map_err(|_| format!("{path}.threads: {threads} is not a valid number of threads"))
    });
    let batching = batching.as_ref().map(|batching| {
        let path = format!("{path}.batching");
        model_batching(&path, batching)
    });
    Ok(ModelParameters {
        model: model.clone(),
        threads: threads.transpose()?,
        weight: weight.unwrap_or(WEIGHT_DEFAULT),
        batching: batching.transpose()?,
    })
}

fn model_batching(path: &str, message: &proto::Batching) -> Result<ModelBatching, String> {
    Ok(ModelBatching {
        policy: policy(path, message)?,
        batch_rows_max: message.max_rows as usize,
        window: message.window_us.map(Duration::from_micros),
    })
}

fn policy(path: &str, batching: &proto::Batching) -> Result<Policy, String> {
    let delay = batching.max_delay_us.map(Duration::from_micros);
    let prefer = batching.prefer.map(|number| prefer(path, number));
    let prefer = prefer.transpose()?;
    let policy = match (proto::Policy::try_from(batching.policy), delay) {
        (Ok(proto::Policy::Timeout), Some(delay)) => Policy::Timeout { delay },
        (Ok(proto::Policy::Timeout), None) => {
            return Err(format!(
                "{path}.max_delay_us: is missing: policy timeout needs it"
            ));
        }
        (Ok(proto::Policy::Auto), None) => Policy::Auto(prefer.unwrap_or_default()),
        (Ok(proto::Policy::Deferred), None) => Policy::Deferred,
        (Ok(proto::Policy::Eager), None) => Policy::Eager,
        (Ok(proto::Policy::Unspecified) | Err(_), _) => {
            let number = batching.policy;
            return Err(format!(
                "{path}.policy: {number} is not a policy that this server knows"
            ));
        }
        (Ok(_), Some(_)) => {
            return Err(format!(
                "{path}.max_delay_us: is allowed with policy timeout only"
            ));
        }
    };
    match (policy, prefer) {
        (Policy::Auto(_), _) | (_, None) => Ok(policy),
        (_, Some(_)) => Err(format!("{path}.prefer: is allowed with policy auto only")),
    }
}

fn prefer(path: &str, number: i32) -> Result<Prefer, String> {
    match proto::Prefer::try_from(number) {
        Ok(proto::Prefer::ShortWaits) => Ok(Prefer::ShortWaits),
        Ok(proto::Prefer::IdleWorkers) => Ok(Prefer::IdleWorkers),
        Ok(proto::Prefer::Unspecified) | Err(_) => Err(format!(
            "{path}.prefer: {number} is not a preference that this server knows"
        )),
    }
}

fn model_slo(objective: &proto::Objective) -> ModelSlo {
    ModelSlo {
        model: objective.model.clone(),
        slo: Slo {
            latency: Duration::from_micros(objective.latency_us),
            percentile: objective.percentile,
            contribs: objective.contribs_us.map(Duration::from_micros),
            interactions: objective.interactions_us.map(Duration::from_micros),
        },
    }
}

#[cfg(test)]
mod tests;
