//! Converts parameters to messages of the gRPC service.

use std::time::Duration;

use albacore_proto::params as proto;
use albacore_settings::agent_stream::{ModelSlo, Parameters};
use albacore_settings::{Policy, Prefer};

pub(crate) fn message(parameters: &Parameters) -> proto::Parameters {
    // Destructured, so that a field cannot be read and then forgotten (L9).
    let Parameters {
        batching,
        slo,
        window,
        workers,
        threads,
        cpu_share,
        generation,
        report,
    } = parameters;
    let policy = match batching.policy {
        Policy::Auto(_) => proto::Policy::Auto,
        Policy::Deferred => proto::Policy::Deferred,
        Policy::Timeout { .. } => proto::Policy::Timeout,
        Policy::Eager => proto::Policy::Eager,
    };
    proto::Parameters {
        batching: Some(proto::Batching {
            policy: policy.into(),
            max_rows: rows(batching.batch_rows_max),
            max_delay_us: batching.policy.delay().map(micros),
            prefer: batching
                .policy
                .prefer()
                .map(|prefer| prefer_of(prefer).into()),
        }),
        queue: Some(proto::Queue {
            max_rows: rows(batching.queue_rows_max),
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

fn prefer_of(prefer: Prefer) -> proto::Prefer {
    match prefer {
        Prefer::ShortWaits => proto::Prefer::ShortWaits,
        Prefer::IdleWorkers => proto::Prefer::IdleWorkers,
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

/// Snapshots were read with numbers of rows of 32 bits.
fn rows(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

/// Times are whole microseconds, at most ten minutes.
fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
