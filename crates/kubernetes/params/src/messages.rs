//! Converts parameters to messages of the gRPC service.

use std::time::Duration;

use albacore_proto::params as proto;
use albacore_settings::agent_stream::{ModelParameters, ModelSlo, Parameters};
use albacore_settings::{ModelBatching, Policy, Prefer};

pub(crate) fn message(parameters: &Parameters) -> proto::Parameters {
    // Destructured, so that a field cannot be decoded and then forgotten (L9).
    let Parameters {
        batching,
        slo,
        models,
        generation,
        report,
    } = parameters;
    proto::Parameters {
        batching: Some(batching_of(&batching.of_models())),
        queue: Some(proto::Queue {
            max_rows: rows(batching.queue_rows_max),
        }),
        slo: slo.iter().map(objective).collect(),
        generation: *generation,
        report_us: report.map(micros),
        models: models.iter().map(model).collect(),
    }
}

fn batching_of(batching: &ModelBatching) -> proto::Batching {
    let ModelBatching {
        policy,
        batch_rows_max,
        window,
    } = *batching;
    let number = match policy {
        Policy::Auto(_) => proto::Policy::Auto,
        Policy::Deferred => proto::Policy::Deferred,
        Policy::Timeout { .. } => proto::Policy::Timeout,
        Policy::Eager => proto::Policy::Eager,
    };
    proto::Batching {
        policy: number.into(),
        max_rows: rows(batch_rows_max),
        max_delay_us: policy.delay().map(micros),
        prefer: policy.prefer().map(|prefer| prefer_of(prefer).into()),
        window_us: window.map(micros),
    }
}

fn model(parameters: &ModelParameters) -> proto::ModelParameters {
    let ModelParameters {
        model,
        threads,
        weight,
        batching,
    } = parameters;
    proto::ModelParameters {
        model: model.clone(),
        threads: threads.map(u32::from),
        weight: Some(*weight),
        batching: batching.as_ref().map(batching_of),
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

/// Row counts of decoded snapshots fit into 32 bits.
fn rows(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

/// Times are whole microseconds, at most ten minutes.
fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
