//! Decodes a line into a [`NodeSnapshot`].

use core::net::IpAddr;
use std::cell::Cell;
use std::rc::Rc;

use serde_json::Value;

use super::{DecodedSnapshot, ModelParameters, ModelSlo, NodeSnapshot, Parameters, ServingPod};
use crate::limits::SNAPSHOT_LINE_BYTES_MAX;
use crate::object_reader::{ObjectReader, UnknownFields};
use crate::parse_yaml;
use crate::timespan::parse_timespan;
use crate::validation_error::ValidationError;

impl NodeSnapshot {
    /// Decodes and checks a line, with or without its terminator.
    ///
    /// # Errors
    /// The first error, with the path of its field.
    pub fn decode(line: &[u8]) -> Result<DecodedSnapshot, ValidationError> {
        if line.len() > SNAPSHOT_LINE_BYTES_MAX {
            return Err(ValidationError::LineTooLong { bytes: line.len() });
        }
        let json: Value =
            serde_json::from_slice(line).map_err(|error| ValidationError::NotJson {
                problem: error.to_string(),
            })?;
        let unknown_fields = Rc::new(Cell::new(0));
        let counted = UnknownFields::Count(Rc::clone(&unknown_fields));
        let snapshot = snapshot(ObjectReader::root("the line", json, counted)?)?;
        snapshot.check()?;
        Ok(DecodedSnapshot {
            snapshot,
            unknown_fields: unknown_fields.get(),
        })
    }
}

fn snapshot(mut line: ObjectReader) -> Result<NodeSnapshot, ValidationError> {
    let node = string(&mut line, "node")?;
    let sequence = number(&mut line, "sequence")?;
    let pods = line.objects("pods")?;
    let snapshot = NodeSnapshot {
        node,
        sequence,
        pods: pods.into_iter().map(pod).collect::<Result<_, _>>()?,
        metrics: line.string("metrics")?.unwrap_or_default(),
    };
    line.finish()?;
    Ok(snapshot)
}

fn pod(mut object: ObjectReader) -> Result<ServingPod, ValidationError> {
    let parse_address = |text: &str| {
        let address = text.parse::<IpAddr>();
        address.map_err(|_| "is not an IP address".to_owned())
    };
    let address = object.parsed("address", parse_address)?;
    let body = object.object("parameters")?;
    let body = body.ok_or_else(|| missing(&object, "parameters"))?;
    let pod = ServingPod {
        address: address.map(|address| address.to_canonical()),
        namespace: string(&mut object, "namespace")?,
        name: string(&mut object, "name")?,
        uid: string(&mut object, "uid")?,
        deployment: string(&mut object, "deployment")?,
        generation: number(&mut object, "generation")?,
        parameters: parameters(body)?,
    };
    object.finish()?;
    Ok(pod)
}

fn parameters(mut object: ObjectReader) -> Result<Parameters, ValidationError> {
    let batching = object.object("batching")?;
    let queue = object.object("queue")?;
    let slo = object.objects("slo")?;
    let models = object.objects("models")?;
    let batching = batching.ok_or_else(|| missing(&object, "batching"))?;
    let queue = queue.ok_or_else(|| missing(&object, "queue"))?;
    let parameters = Parameters {
        batching: parse_yaml::batching(Some(batching), Some(queue))?,
        slo: slo.into_iter().map(model_slo).collect::<Result<_, _>>()?,
        models: models
            .into_iter()
            .map(model_parameters)
            .collect::<Result<_, _>>()?,
        generation: number(&mut object, "generation")?,
        report: object.parsed("report", parse_timespan)?,
    };
    object.finish()?;
    Ok(parameters)
}

fn model_slo(mut object: ObjectReader) -> Result<ModelSlo, ValidationError> {
    Ok(ModelSlo {
        model: string(&mut object, "model")?,
        slo: parse_yaml::slo(object)?,
    })
}

fn model_parameters(mut object: ObjectReader) -> Result<ModelParameters, ValidationError> {
    let batching = object.object("batching")?;
    let parameters = ModelParameters {
        model: string(&mut object, "model")?,
        threads: parse_yaml::threads(&mut object)?,
        weight: parse_yaml::weight(&mut object)?,
        batching: batching.map(parse_yaml::model_batching).transpose()?,
    };
    object.finish()?;
    Ok(parameters)
}

fn string(object: &mut ObjectReader, name: &'static str) -> Result<String, ValidationError> {
    object.string(name)?.ok_or_else(|| missing(object, name))
}

fn number(object: &mut ObjectReader, name: &'static str) -> Result<u64, ValidationError> {
    object.u64(name)?.ok_or_else(|| missing(object, name))
}

fn missing(object: &ObjectReader, name: &str) -> ValidationError {
    object.missing(name, "snapshots have this field")
}
