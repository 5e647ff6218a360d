//! Decodes and validates a message of the params stream.

use std::time::Duration;

use albacore_proto::params as proto;
use albacore_settings as settings;
use albacore_settings::agent_stream;

use crate::effective_config::StreamParameters;
use crate::engine_params;

/// Validates a message by the batching for snapshot lines of the agent.
///
/// # Errors
/// A sentence that names the field.
pub(super) fn stream_parameters(message: &proto::Parameters) -> Result<StreamParameters, String> {
    let parameters = decode(message)?;
    parameters.check().map_err(|error| error.to_string())?;
    let objectives = parameters.slo.iter();
    let objectives =
        objectives.map(|entry| (entry.model.clone(), engine_params::objective(&entry.slo)));
    Ok(StreamParameters {
        batching: engine_params::batching_params(parameters.batching, parameters.queue),
        objectives: objectives.collect(),
        // No policy of this version holds rows back.
        unused: parameters.window.map(|_| "window").into_iter().collect(),
        parameters,
    })
}

/// Converts the fields of a message without checking their values.
fn decode(message: &proto::Parameters) -> Result<agent_stream::Parameters, String> {
    // Destructured, so that no field is received and never read (L9).
    let proto::Parameters {
        batching,
        queue,
        slo,
        window_us,
        workers,
        threads,
        cpu_share,
        generation,
        report_us,
    } = message;
    let missing = |field: &str| format!("parameters.{field}: is missing");
    let batching = batching.as_ref().ok_or_else(|| missing("batching"))?;
    let queue = queue.as_ref().ok_or_else(|| missing("queue"))?;
    Ok(agent_stream::Parameters {
        batching: settings::Batching {
            policy: policy(batching)?,
            max_rows: batching.max_rows,
        },
        queue: settings::Queue {
            max_rows: queue.max_rows,
        },
        slo: slo.iter().map(model_slo).collect(),
        window: window_us.map(Duration::from_micros),
        workers: *workers,
        threads: *threads,
        cpu_share: *cpu_share,
        generation: *generation,
        report: report_us.map(Duration::from_micros),
    })
}

fn policy(batching: &proto::Batching) -> Result<settings::Policy, String> {
    let delay = batching.max_delay_us.map(Duration::from_micros);
    let path = "parameters.batching";
    match (proto::Policy::try_from(batching.policy), delay) {
        (Ok(proto::Policy::Timeout), Some(delay)) => Ok(settings::Policy::Timeout { delay }),
        (Ok(proto::Policy::Timeout), None) => Err(format!(
            "{path}.max_delay_us: is missing: policy timeout needs it"
        )),
        (Ok(proto::Policy::Auto), None) => Ok(settings::Policy::Auto),
        (Ok(proto::Policy::Deferred), None) => Ok(settings::Policy::Deferred),
        (Ok(proto::Policy::Eager), None) => Ok(settings::Policy::Eager),
        (Ok(proto::Policy::Unspecified) | Err(_), _) => {
            let number = batching.policy;
            Err(format!(
                "{path}.policy: {number} is not a policy that this server knows"
            ))
        }
        (Ok(_), Some(_)) => Err(format!(
            "{path}.max_delay_us: is allowed with policy timeout only"
        )),
    }
}

fn model_slo(objective: &proto::Objective) -> agent_stream::ModelSlo {
    agent_stream::ModelSlo {
        model: objective.model.clone(),
        slo: settings::Slo {
            latency: Duration::from_micros(objective.latency_us),
            percentile: objective.percentile,
            contribs: objective.contribs_us.map(Duration::from_micros),
            interactions: objective.interactions_us.map(Duration::from_micros),
        },
    }
}

#[cfg(test)]
mod tests;
