//! Converts settings to the types of the engine.

use std::time::Duration;

use albacore_batching::{Nanos, Policy};
use albacore_engine::{BatchingParams, Kind, KindSet, Objective};
use albacore_settings as settings;

/// Batching and queue bounds, of a settings file or of the params stream.
pub(crate) fn batching_params(
    batching: settings::Batching,
    queue: settings::Queue,
) -> BatchingParams {
    BatchingParams {
        policy: policy(batching.policy),
        batch_rows_max: batching.max_rows as usize,
        queue_rows_max: queue.max_rows as usize,
    }
}

fn policy(policy: settings::Policy) -> Policy {
    match policy {
        settings::Policy::Auto => Policy::Auto,
        settings::Policy::Deferred => Policy::Deferred,
        settings::Policy::Eager => Policy::Eager,
        settings::Policy::Timeout { delay } => Policy::Timeout {
            delay: nanos(delay),
        },
    }
}

pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

pub(crate) fn objective(slo: &settings::Slo) -> Objective {
    Objective {
        latency: slo.latency,
        percentile: slo.percentile,
        contribs: slo.contribs,
        interactions: slo.interactions,
    }
}

/// The outputs that a model advertises: the value, unless the settings list others.
pub(crate) fn advertised_outputs(model: &settings::Model) -> KindSet {
    if model.outputs.is_empty() {
        return KindSet::only(Kind::Value);
    }
    let kinds = model.outputs.iter().map(|output| match output {
        settings::Output::Output => Kind::Value,
        settings::Output::Margin => Kind::Margin,
        settings::Output::Contribs => Kind::Contribs,
        settings::Output::Interactions => Kind::Interactions,
        settings::Output::Leaf => Kind::Leaf,
    });
    kinds.fold(KindSet::EMPTY, KindSet::with)
}
