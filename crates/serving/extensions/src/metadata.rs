//! Metadata of the server and its models, for both protocols.

use serde::Serialize;

use crate::limits::METADATA_NAMES_BYTES_MAX;
use crate::tensors::{INPUT, VERSION, advertised_outputs, input_datatype, output_name};
use albacore_engine::{Columns, KindSet, ModelInfo};
use albacore_rows::datatype::Datatype;
use albacore_rows::labels::{BYTES, LABEL};

/// Supported extensions of the protocol; the last one is optional.
const EXTENSIONS: [&str; 7] = [
    "binary_tensor_data",
    "classification",
    "schedule_policy",
    "model_configuration",
    "statistics",
    "model_repository",
    "system_shared_memory",
];

/// Response to `GET /v2`.
#[derive(Serialize)]
pub struct ServerMetadata {
    pub name: &'static str,
    pub version: &'static str,
    pub extensions: &'static [&'static str],
}

/// Version of this build.
pub const SERVER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Describes this server; `has_shared_memory` adds the shared memory extension.
#[must_use]
pub fn server(has_shared_memory: bool) -> ServerMetadata {
    let [always @ .., _] = &EXTENSIONS;
    ServerMetadata {
        name: "albacore-server",
        version: SERVER_VERSION,
        extensions: if has_shared_memory {
            &EXTENSIONS
        } else {
            always
        },
    }
}

/// Response to `GET /v2/models/{name}`.
#[derive(Serialize)]
pub struct ModelMetadata<'a> {
    pub name: &'a str,
    pub versions: [&'static str; 1],
    pub platform: &'a str,
    pub inputs: [TensorMetadata<'a>; 1],
    /// The advertised outputs. Other outputs can be requested by name; they are not advertised,
    /// because some clients request all advertised outputs.
    pub outputs: Vec<TensorMetadata<'a>>,
    /// An extension by MLServer.
    pub parameters: ModelMetadataParameters<'a>,
}

/// Boosting iterations used for prediction, counted from 0, and class names.
#[derive(Serialize)]
pub struct ModelMetadataParameters<'a> {
    pub iterations_begin: usize,
    /// One past the last iteration.
    pub iterations_end: usize,
    pub iterations_in_file: usize,
    /// The best iteration recorded in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_iteration: Option<usize>,
    /// User-defined class names, by class index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<&'a [String]>,
}

/// One tensor; -1 in the shape is any number of rows.
#[derive(Serialize)]
pub struct TensorMetadata<'a> {
    pub name: &'static str,
    pub datatype: &'static str,
    pub shape: Vec<i64>,
    /// Present if the model file has column names or types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<TensorParameters<'a>>,
}

/// Column names and types in the model file.
#[derive(Serialize)]
pub struct TensorParameters<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub feature_names: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub feature_types: &'a [String],
}

/// Parameters of the input tensor; `None` if the file has neither column names nor types, or if
/// they exceed the reply size that all clients accept.
fn input_parameters(columns: &Columns) -> Option<TensorParameters<'_>> {
    let texts = || columns.names.iter().chain(&columns.types);
    let bytes: usize = texts().map(|text| text.len() + 3).sum();
    (texts().next().is_some() && bytes <= METADATA_NAMES_BYTES_MAX).then_some(TensorParameters {
        feature_names: &columns.names,
        feature_types: &columns.types,
    })
}

/// Metadata of `model` with the advertised `outputs`.
#[must_use]
pub fn describe(model: &ModelInfo, outputs: KindSet) -> ModelMetadata<'_> {
    let input = TensorMetadata {
        name: INPUT,
        datatype: input_datatype(model).name(),
        shape: any_rows(&[model.features]),
        parameters: input_parameters(&model.columns),
    };
    let outputs = advertised_outputs(model, outputs).map(|output| TensorMetadata {
        name: output_name(output.kind),
        datatype: Datatype::from_element(output.element).name(),
        shape: any_rows(&output.row_shape),
        parameters: None,
    });
    let label = model.class_names.as_ref().map(|_| TensorMetadata {
        name: LABEL,
        datatype: BYTES,
        shape: any_rows(&[]),
        parameters: None,
    });
    ModelMetadata {
        name: &model.name,
        versions: [VERSION],
        platform: &model.platform,
        inputs: [input],
        outputs: outputs.chain(label).collect(),
        parameters: ModelMetadataParameters {
            iterations_begin: model.iterations.begin,
            iterations_end: model.iterations.end,
            iterations_in_file: model.iterations.in_file,
            best_iteration: model.iterations.best,
            classes: model.class_names.as_ref().map(|classes| &classes.names[..]),
        },
    }
}

fn any_rows(row_shape: &[usize]) -> Vec<i64> {
    let sizes = row_shape
        .iter()
        .map(|&size| i64::try_from(size).unwrap_or(i64::MAX));
    std::iter::once(-1).chain(sizes).collect()
}
