//! A message to parameters that this server can follow.

use std::time::Duration;

use albacore_batching::{Nanos, Policy};
use albacore_engine::{Objective, Rules};
use albacore_proto::params as proto;
use albacore_settings as settings;
use albacore_settings::feed;

/// What this server was told, checked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    pub(super) rules: Rules,
    /// The objectives, by model; others have none.
    pub(super) objectives: Vec<(String, Objective)>,
    pub(super) generation: u64,
    /// Fields that are right and change nothing here.
    pub(super) unused: Vec<&'static str>,
}

impl Told {
    /// Checks a message as a line of the feed is checked, and for what this server can do.
    ///
    /// # Errors
    /// A sentence that names the field.
    pub(super) fn of(message: &proto::Parameters) -> Result<Self, String> {
        let parameters = read(message)?;
        parameters.check().map_err(|error| error.to_string())?;
        let objectives = parameters.slo.into_iter().map(|entry| {
            let objective = Objective {
                latency: entry.slo.latency,
                percentile: entry.slo.percentile,
            };
            (entry.model, objective)
        });
        let policy = policy_of(parameters.batching.policy);
        Ok(Self {
            rules: Rules {
                policy: policy.map_err(|problem| format!("parameters.{problem}"))?,
                batch_rows_max: parameters.batching.max_rows as usize,
                queue_rows_max: parameters.queue.max_rows as usize,
            },
            objectives: objectives.collect(),
            generation: parameters.generation,
            // No rule of this version holds rows back.
            unused: parameters.window.map(|_| "window").into_iter().collect(),
        })
    }
}

/// A release rule of the settings as the scheduler takes it.
///
/// # Errors
/// A sentence that begins with the field.
pub(crate) fn policy_of(policy: settings::Policy) -> Result<Policy, String> {
    match policy {
        settings::Policy::Auto => Ok(Policy::Auto),
        settings::Policy::Eager => Ok(Policy::Eager),
        settings::Policy::Timeout { delay } => Ok(Policy::Timeout {
            delay: Nanos(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)),
        }),
        settings::Policy::Deferred => Err(
            "batching.policy: deferred is not built yet: write auto, timeout or eager".to_owned(),
        ),
    }
}

/// The message's fields; their values are not looked at.
fn read(message: &proto::Parameters) -> Result<feed::Parameters, String> {
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
    } = message;
    let missing = |field: &str| format!("parameters.{field}: is missing");
    let batching = batching.as_ref().ok_or_else(|| missing("batching"))?;
    let queue = queue.as_ref().ok_or_else(|| missing("queue"))?;
    Ok(feed::Parameters {
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

fn objective(objective: &proto::Objective) -> feed::Objective {
    feed::Objective {
        model: objective.model.clone(),
        slo: settings::Slo {
            latency: Duration::from_micros(objective.latency_us),
            percentile: objective.percentile,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> proto::Parameters {
        proto::Parameters {
            batching: Some(proto::Batching {
                policy: proto::Policy::Timeout.into(),
                max_rows: 512,
                max_delay_us: Some(2000),
            }),
            queue: Some(proto::Queue { max_rows: 4096 }),
            slo: vec![proto::Objective {
                model: "m".to_owned(),
                latency_us: 25_000,
                percentile: 99.0,
            }],
            window_us: None,
            workers: 2,
            threads: 2,
            cpu_share: 4.0,
            generation: 7,
        }
    }

    #[test]
    fn a_message_is_taken_in_every_field() {
        let told = Told::of(&message()).unwrap();
        let delay = Nanos(2_000_000);
        assert_eq!(told.rules.policy, Policy::Timeout { delay });
        assert_eq!(told.rules.batch_rows_max, 512);
        assert_eq!(told.rules.queue_rows_max, 4096);
        let latency = Duration::from_millis(25);
        let percentile = 99.0;
        let objective = Objective {
            latency,
            percentile,
        };
        assert_eq!(told.objectives, [("m".to_owned(), objective)]);
        assert_eq!((told.generation, told.unused.len()), (7, 0));
        let mut more = message();
        more.window_us = Some(5000);
        assert_eq!(Told::of(&more).unwrap().unused, ["window"]);
    }

    #[test]
    fn what_is_wrong_is_refused_by_name() {
        type Change = fn(&mut proto::Parameters, &mut proto::Batching);
        let cases: [(Change, &str); 14] = [
            (|_, b| b.policy = 0, "batching.policy: 0 is no rule"),
            (|_, b| b.policy = 99, "batching.policy: 99 is no rule"),
            (
                |_, b| b.policy = proto::Policy::Eager.into(),
                "batching.max_delay_us: stands beside",
            ),
            (
                |_, b| b.max_delay_us = None,
                "batching.max_delay_us: is missing",
            ),
            (
                |_, b| b.max_delay_us = Some(25_000),
                "batching.max_delay: \"25ms\" is not shorter",
            ),
            (
                |_, b| b.max_delay_us = Some(u64::MAX),
                "batching.max_delay: ",
            ),
            (
                |_, b| (b.policy, b.max_delay_us) = (proto::Policy::Deferred.into(), None),
                "batching.policy: deferred is not built yet",
            ),
            (|_, b| b.max_rows = 0, "batching.max_rows: 0 is not from 1"),
            (
                |_, b| b.max_rows = u32::MAX,
                "batching.max_rows: 4294967295 is not",
            ),
            (|p, _| p.queue = None, "queue: is missing"),
            (
                |p, _| p.slo[0].percentile = f64::NAN,
                "slo[0].percentile: NaN is not",
            ),
            (|p, _| p.slo[0].latency_us = 0, "slo[0].latency: "),
            (
                |p, _| p.slo = vec![p.slo[0].clone(); 2],
                "slo[1].model: \"m\" is there twice",
            ),
            (
                |p, _| p.cpu_share = f64::INFINITY,
                "cpu_share: inf is not above 0",
            ),
        ];
        for (change, words) in cases {
            let mut message = message();
            let mut batching = message.batching.take().unwrap();
            change(&mut message, &mut batching);
            message.batching = Some(batching);
            let error = Told::of(&message).unwrap_err();
            assert!(
                error.starts_with(&format!("parameters.{words}")),
                "{words}: {error}"
            );
        }
        let mut without = message();
        without.batching = None;
        let error = Told::of(&without).unwrap_err();
        assert_eq!(error, "parameters.batching: is missing");
    }
}
