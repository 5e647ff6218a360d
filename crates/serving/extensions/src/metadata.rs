//! Metadata of the server and its models, for both protocols.

use serde::Serialize;

use crate::limits::METADATA_NAMES_BYTES_MAX;
use crate::tensors::{INPUT, VERSION, advertised, input_datatype, output_name};
use albacore_engine::{Columns, KindSet, ModelInfo};
use albacore_rows::datatype::Datatype;
use albacore_rows::labels::{BYTES, LABEL};

/// The supported extensions of the protocol; the last one may be off.
const EXTENSIONS: [&str; 7] = [
    "binary_tensor_data",
    "classification",
    "schedule_policy",
    "model_configuration",
    "statistics",
    "model_repository",
    "system_shared_memory",
];

/// The answer to `GET /v2`.
#[derive(Serialize)]
pub struct ServerMetadata {
    pub name: &'static str,
    pub version: &'static str,
    pub extensions: &'static [&'static str],
}

/// That of this build.
pub const VERSION_OF_SERVER: &str = env!("CARGO_PKG_VERSION");

/// What this server is, and whether it takes tensors in shared memory.
#[must_use]
pub fn server(has_shared_memory: bool) -> ServerMetadata {
    let [always @ .., _] = &EXTENSIONS;
    ServerMetadata {
        name: "albacore-server",
        version: VERSION_OF_SERVER,
        extensions: if has_shared_memory {
            &EXTENSIONS
        } else {
            always
        },
    }
}

/// The answer to `GET /v2/models/{name}`.
#[derive(Serialize)]
pub struct ModelMetadata<'a> {
    pub name: &'a str,
    pub versions: [&'static str; 1],
    pub platform: &'a str,
    pub inputs: [TensorMetadata<'a>; 1],
    /// The advertised outputs. Other outputs can be requested by name; they are not advertised,
    /// since some clients request all advertised outputs.
    pub outputs: Vec<TensorMetadata<'a>>,
    /// An extension of the protocol by MLServer.
    pub parameters: ModelParameters<'a>,
}

/// The boosting iterations that predict, counted from 0, and names of classes.
#[derive(Serialize)]
pub struct ModelParameters<'a> {
    pub iterations_begin: usize,
    /// One beyond the last.
    pub iterations_end: usize,
    pub iterations_in_file: usize,
    /// The best iteration that the file records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_iteration: Option<usize>,
    /// The names that the user gave to the classes, by number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<&'a [String]>,
}

/// One tensor; -1 stands for any number of rows.
#[derive(Serialize)]
pub struct TensorMetadata<'a> {
    pub name: &'static str,
    pub datatype: &'static str,
    pub shape: Vec<i64>,
    /// Present if the model's file has names or types of columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<TensorParameters<'a>>,
}

/// Names and types of columns in the model's file.
#[derive(Serialize)]
pub struct TensorParameters<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub feature_names: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub feature_types: &'a [String],
}

/// The parameters of the input; `None` if the file has neither names nor types, or if they are too
/// large for a reply that all clients accept.
fn input_parameters(columns: &Columns) -> Option<TensorParameters<'_>> {
    let texts = || columns.names.iter().chain(&columns.types);
    let bytes: usize = texts().map(|text| text.len() + 3).sum();
    (texts().next().is_some() && bytes <= METADATA_NAMES_BYTES_MAX).then_some(TensorParameters {
        feature_names: &columns.names,
        feature_types: &columns.types,
    })
}

/// Describes `model`, which advertises `outputs`.
#[must_use]
pub fn describe(model: &ModelInfo, outputs: KindSet) -> ModelMetadata<'_> {
    let input = TensorMetadata {
        name: INPUT,
        datatype: input_datatype(model).name(),
        shape: any_rows(&[model.features]),
        parameters: input_parameters(&model.columns),
    };
    let outputs = advertised(model, outputs).map(|output| TensorMetadata {
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
        parameters: ModelParameters {
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
