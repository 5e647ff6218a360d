//! Converts parameters to messages of the gRPC service.

use std::time::Duration;

use albacore_proto::params as proto;
use albacore_settings::Policy;
use albacore_settings::agent_stream::{ModelSlo, Parameters};

pub(crate) fn message(parameters: &Parameters) -> proto::Parameters {
    // Destructured, so that a field cannot be read and then forgotten (L9).
    let Parameters {
        batching,
        queue,
        slo,
        window,
        workers,
        threads,
        cpu_share,
        generation,
        report,
    } = parameters;
    let (policy, delay) = match batching.policy {
        Policy::Auto => (proto::Policy::Auto, None),
        Policy::Deferred => (proto::Policy::Deferred, None),
        Policy::Timeout { delay } => (proto::Policy::Timeout, Some(delay)),
        Policy::Eager => (proto::Policy::Eager, None),
    };
    proto::Parameters {
        batching: Some(proto::Batching {
            policy: policy.into(),
            max_rows: batching.max_rows,
            max_delay_us: delay.map(micros),
        }),
        queue: Some(proto::Queue {
            max_rows: queue.max_rows,
        }),
        slo: slo.iter().map(objective).collect(),
        window_us: window.map(micros),
        workers: *workers,
        threads: *threads,
        cpu_share: *cpu_share,
        generation: *generation,
        report_us: report.map(micros),
    }
}

fn objective(objective: &ModelSlo) -> proto::Objective {
    proto::Objective {
        model: objective.model.clone(),
        latency_us: micros(objective.slo.latency),
        percentile: objective.slo.percentile,
        contribs_us: objective.slo.contribs.map(micros),
        interactions_us: objective.slo.interactions.map(micros),
    }
}

/// Times are whole microseconds, at most ten minutes.
fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
