//! Metadata of the server and its models as gRPC messages.

use std::collections::HashMap;

use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::model_metadata_response::TensorMetadata;
use albacore_proto::inference::{InferParameter, ModelMetadataResponse, ServerMetadataResponse};
use albacore_rows::feature_names::FEATURE_NAMES;

use crate::metadata;

/// Returns the response to `ServerMetadata`.
#[must_use]
pub fn server_metadata(has_shared_memory: bool) -> ServerMetadataResponse {
    let metadata::ServerMetadata {
        name,
        version,
        extensions,
    } = metadata::server(has_shared_memory);
    ServerMetadataResponse {
        name: name.to_owned(),
        version: version.to_owned(),
        extensions: extensions.iter().map(|&name| name.to_owned()).collect(),
    }
}

/// Returns the response to `ModelMetadata`.
#[must_use]
pub fn model_metadata(model: &metadata::ModelMetadata<'_>) -> ModelMetadataResponse {
    ModelMetadataResponse {
        name: model.name.to_owned(),
        versions: model.versions.map(str::to_owned).to_vec(),
        platform: model.platform.to_owned(),
        inputs: model.inputs.iter().map(tensor).collect(),
        outputs: model.outputs.iter().map(tensor).collect(),
        parameters: model_parameters(&model.parameters),
    }
}

fn model_parameters(
    parameters: &metadata::ModelMetadataParameters<'_>,
) -> HashMap<String, InferParameter> {
    let &metadata::ModelMetadataParameters {
        iterations_begin,
        iterations_end,
        iterations_in_file,
        best_iteration,
        classes,
    } = parameters;
    let counts = [
        ("iterations_begin", Some(iterations_begin)),
        ("iterations_end", Some(iterations_end)),
        ("iterations_in_file", Some(iterations_in_file)),
        ("best_iteration", best_iteration),
    ];
    let counts = counts.into_iter().filter_map(|(name, count)| {
        let count = i64::try_from(count?).ok()?;
        Some((
            name.to_owned(),
            parameter(ParameterChoice::Int64Param(count)),
        ))
    });
    // A list as JSON text, because gRPC parameters cannot be lists.
    let classes = classes.map(|names| {
        let json = serde_json::Value::from(names.to_vec()).to_string();
        let choice = ParameterChoice::StringParam(json);
        ("classes".to_owned(), parameter(choice))
    });
    counts.chain(classes).collect()
}

/// Names and types as JSON text, because gRPC parameters cannot be lists.
fn tensor_parameters(
    parameters: &metadata::TensorParameters<'_>,
) -> HashMap<String, InferParameter> {
    let lists = [
        (FEATURE_NAMES, parameters.feature_names),
        ("feature_types", parameters.feature_types),
    ];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    let lists = lists.map(|(name, list)| {
        let json = serde_json::Value::from(list.to_vec()).to_string();
        (
            name.to_owned(),
            parameter(ParameterChoice::StringParam(json)),
        )
    });
    lists.collect()
}

fn parameter(choice: ParameterChoice) -> InferParameter {
    InferParameter {
        parameter_choice: Some(choice),
    }
}

fn tensor(tensor: &metadata::TensorMetadata<'_>) -> TensorMetadata {
    TensorMetadata {
        name: tensor.name.to_owned(),
        datatype: tensor.datatype.to_owned(),
        shape: tensor.shape.clone(),
        parameters: tensor
            .parameters
            .as_ref()
            .map(tensor_parameters)
            .unwrap_or_default(),
    }
}
