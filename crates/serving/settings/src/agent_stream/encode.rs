//! Encodes a [`NodeSnapshot`] as a line.

use std::time::Duration;

use serde_json::{Value, json};

use albacore_batching::{ModelBatching, Prefer};

use super::{ModelParameters, ModelSlo, NodeSnapshot, Parameters, ServingPod};
use crate::limits::SNAPSHOT_LINE_BYTES_MAX;
use crate::print_yaml::{non_default_preference, non_default_weight};
use crate::timespan::print_timespan;
use crate::validation_error::ValidationError;

impl NodeSnapshot {
    /// Returns the line with its terminator.
    ///
    /// # Errors
    /// The first invalid value, or a line that is longer than readers accept.
    pub fn encode(&self) -> Result<String, ValidationError> {
        self.check()?;
        let pods: Vec<Value> = self.pods.iter().map(encode_pod).collect();
        let line = json!({
            "node": self.node,
            "sequence": self.sequence,
            "pods": pods,
            "metrics": self.metrics,
        });
        let mut line = line.to_string();
        line.push('\n');
        if line.len() > SNAPSHOT_LINE_BYTES_MAX {
            return Err(ValidationError::LineTooLong { bytes: line.len() });
        }
        Ok(line)
    }
}

fn encode_pod(pod: &ServingPod) -> Value {
    without_nulls(json!({
        "address": pod.address.map(|address| address.to_string()),
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "deployment": pod.deployment,
        "generation": pod.generation,
        "parameters": encode_parameters(&pod.parameters),
    }))
}

fn encode_parameters(parameters: &Parameters) -> Value {
    // Destructured, so that a new field cannot be forgotten.
    let Parameters {
        batching,
        slo,
        models,
        generation,
        report,
    } = parameters;
    let slo: Vec<Value> = slo.iter().map(encode_slo).collect();
    let models: Vec<Value> = models.iter().map(encode_model).collect();
    without_nulls(json!({
        "batching": encode_batching(&batching.of_models()),
        "queue": {"max_rows": batching.queue_rows_max},
        "slo": slo,
        "models": models,
        "generation": generation,
        "report": timespan(*report),
    }))
}

fn encode_batching(batching: &ModelBatching) -> Value {
    without_nulls(json!({
        "policy": batching.policy.name(),
        "max_rows": batching.batch_rows_max,
        "max_delay": timespan(batching.policy.delay()),
        "prefer": non_default_preference(batching.policy).map(Prefer::name),
        "window": timespan(batching.window),
    }))
}

/// Omits defaults, so that more models fit in a line.
fn encode_model(parameters: &ModelParameters) -> Value {
    let ModelParameters {
        model,
        threads,
        weight,
        batching,
    } = parameters;
    without_nulls(json!({
        "model": model,
        "threads": threads,
        "weight": non_default_weight(*weight),
        "batching": batching.as_ref().map(encode_batching),
    }))
}

fn encode_slo(ModelSlo { model, slo }: &ModelSlo) -> Value {
    without_nulls(json!({
        "model": model,
        "latency": print_timespan(slo.latency),
        "percentile": slo.percentile,
        "contribs": timespan(slo.contribs),
        "interactions": timespan(slo.interactions),
    }))
}

fn timespan(span: Option<Duration>) -> Option<String> {
    span.map(print_timespan)
}

/// Removes fields whose value is null.
fn without_nulls(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}
