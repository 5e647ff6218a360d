//! A message to parameters that this server can follow.

use std::time::Duration;

use albacore_batching::{Nanos, Policy};
use albacore_engine::{BatchingParams, Objective};
use albacore_proto::params as proto;
use albacore_settings as settings;
use albacore_settings::agent_stream;

use crate::live::objective_of;

/// What this server was told, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(super) rules: BatchingParams,
    /// The objectives, by model; others have none.
    pub(super) objectives: Vec<(String, Objective)>,
    pub(super) generation: u64,
    /// How often this server reports its latency; `None`: never.
    pub(super) report: Option<Duration>,
    /// As they were told.
    pub(super) parameters: agent_stream::Parameters,
    /// Fields that are right and change nothing here.
    pub(super) unused: Vec<&'static str>,
}

impl Told {
    /// Checks a message as a line of the feed is checked.
    ///
    /// # Errors
    /// A sentence that names the field.
    pub(super) fn of(message: &proto::Parameters) -> Result<Self, String> {
        let parameters = read(message)?;
        parameters.check().map_err(|error| error.to_string())?;
        let objectives = parameters
            .slo
            .iter()
            .map(|entry| (entry.model.clone(), objective_of(&entry.slo)));
        Ok(Self {
            rules: BatchingParams {
                policy: policy_of(parameters.batching.policy),
                batch_rows_max: parameters.batching.max_rows as usize,
                queue_rows_max: parameters.queue.max_rows as usize,
            },
            objectives: objectives.collect(),
            generation: parameters.generation,
            report: parameters.report,
            // No rule of this version holds rows back.
            unused: parameters.window.map(|_| "window").into_iter().collect(),
            parameters,
        })
    }
}

/// A release rule of the settings as the scheduler takes it.
pub(crate) fn policy_of(policy: settings::Policy) -> Policy {
    match policy {
        settings::Policy::Auto => Policy::Auto,
        settings::Policy::Deferred => Policy::Deferred,
        settings::Policy::Eager => Policy::Eager,
        settings::Policy::Timeout { delay } => Policy::Timeout {
            delay: Nanos(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)),
        },
    }
}

/// The message's fields; their values are not looked at.
fn read(message: &proto::Parameters) -> Result<agent_stream::Parameters, String> {
    // Destructured, so that no field is told and never read (L9).
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
        slo: slo.iter().map(objective).collect(),
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
    let at = "parameters.batching";
    match (proto::Policy::try_from(batching.policy), delay) {
        (Ok(proto::Policy::Timeout), Some(delay)) => Ok(settings::Policy::Timeout { delay }),
        (Ok(proto::Policy::Timeout), None) => Err(format!(
            "{at}.max_delay_us: is missing: the timeout rule needs it"
        )),
        (Ok(proto::Policy::Auto), None) => Ok(settings::Policy::Auto),
        (Ok(proto::Policy::Deferred), None) => Ok(settings::Policy::Deferred),
        (Ok(proto::Policy::Eager), None) => Ok(settings::Policy::Eager),
        (Ok(proto::Policy::Unspecified) | Err(_), _) => {
            let number = batching.policy;
            Err(format!(
                "{at}.policy: {number} is no rule that this server knows"
            ))
        }
        (Ok(_), Some(_)) => Err(format!(
            "{at}.max_delay_us: stands beside another rule than timeout"
        )),
    }
}

fn objective(objective: &proto::Objective) -> agent_stream::ModelSlo {
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
