//! Encodes a [`NodeSnapshot`] as a line.

use serde_json::{Map, Value, json};

use super::{NodeSnapshot, Parameters, ServingPod};
use crate::limits::SNAPSHOT_LINE_BYTES_MAX;
use crate::settings::{Batching, Policy};
use crate::timespan::print_timespan;
use crate::validation_error::ValidationError;

impl NodeSnapshot {
    /// The line with its terminator.
    ///
    /// # Errors
    /// The first invalid value; or the line is longer than readers accept.
    pub fn encode(&self) -> Result<String, ValidationError> {
        self.check()?;
        let pods: Vec<Value> = self.pods.iter().map(encode_pod).collect();
        let Self {
            node,
            sequence,
            metrics,
            ..
        } = self;
        let line = json!({
            "node": node,
            "sequence": sequence,
            "pods": pods,
            "metrics": metrics,
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
    let ServingPod {
        address,
        namespace,
        name,
        uid,
        deployment,
        generation,
        parameters,
    } = pod;
    let mut fields = Map::new();
    if let Some(address) = address {
        fields.insert("address".to_owned(), address.to_string().into());
    }
    for (field, text) in [
        ("namespace", namespace),
        ("name", name),
        ("uid", uid),
        ("deployment", deployment),
    ] {
        fields.insert(field.to_owned(), text.as_str().into());
    }
    fields.insert("generation".to_owned(), (*generation).into());
    fields.insert("parameters".to_owned(), encode_parameters(parameters));
    fields.into()
}

fn encode_parameters(parameters: &Parameters) -> Value {
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
    let slo: Vec<Value> = slo
        .iter()
        .map(|entry| {
            let mut fields = Map::new();
            fields.insert("model".to_owned(), entry.model.as_str().into());
            let latency = print_timespan(entry.slo.latency);
            fields.insert("latency".to_owned(), latency.into());
            fields.insert("percentile".to_owned(), entry.slo.percentile.into());
            for (name, span) in entry.slo.output_latencies() {
                fields.insert(name.to_owned(), print_timespan(span).into());
            }
            fields.into()
        })
        .collect();
    let mut fields = Map::new();
    fields.insert("batching".to_owned(), encode_batching(batching));
    fields.insert("queue".to_owned(), json!({"max_rows": queue.max_rows}));
    fields.insert("slo".to_owned(), slo.into());
    if let Some(window) = window {
        fields.insert("window".to_owned(), print_timespan(*window).into());
    }
    fields.insert("workers".to_owned(), (*workers).into());
    fields.insert("threads".to_owned(), (*threads).into());
    fields.insert("cpu_share".to_owned(), (*cpu_share).into());
    fields.insert("generation".to_owned(), (*generation).into());
    if let Some(period) = report {
        fields.insert("report".to_owned(), print_timespan(*period).into());
    }
    fields.into()
}

fn encode_batching(batching: &Batching) -> Value {
    let Batching { policy, max_rows } = batching;
    match policy {
        Policy::Timeout { delay } => json!({
            "policy": policy.name(),
            "max_rows": max_rows,
            "max_delay": print_timespan(*delay),
        }),
        Policy::Auto | Policy::Deferred | Policy::Eager => {
            json!({"policy": policy.name(), "max_rows": max_rows})
        }
    }
}
