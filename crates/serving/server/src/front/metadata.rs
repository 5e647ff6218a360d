//! What the server says about itself and its models, once for both protocols.

use serde::Serialize;

use super::ask::{self, INPUT, VERSION};
use super::datatype::Datatype;
use super::limits::METADATA_NAMES_BYTES_MAX;
use albacore_engine::{Columns, KindSet, ModelInfo, OutputInfo};

/// The extensions of the protocol that are spoken here.
pub(super) const EXTENSIONS: [&str; 5] = [
    "binary_tensor_data",
    "schedule_policy",
    "model_configuration",
    "statistics",
    "model_repository",
];

/// The answer to `GET /v2`.
#[derive(Serialize)]
pub(super) struct Server {
    /// `albacore-server`.
    pub(super) name: &'static str,
    /// The version of this build.
    pub(super) version: &'static str,
    /// [`EXTENSIONS`].
    pub(super) extensions: [&'static str; 5],
}

pub(super) const SERVER: Server = Server {
    name: "albacore-server",
    version: env!("CARGO_PKG_VERSION"),
    extensions: EXTENSIONS,
};

/// The answer to `GET /v2/models/{name}`.
#[derive(Serialize)]
pub(super) struct Model<'a> {
    pub(super) name: &'a str,
    pub(super) versions: [&'static str; 1],
    pub(super) platform: &'a str,
    pub(super) inputs: [Tensor<'a>; 1],
    /// The advertised outputs. Others can be asked for by name all the same: clients that ask for
    /// all that is advertised should not pay for what they do not need.
    pub(super) outputs: Vec<Tensor<'a>>,
    /// As MLServer extends the protocol.
    pub(super) parameters: ModelParameters,
}

/// The boosting iterations that predict, counted from 0.
#[derive(Serialize)]
pub(super) struct ModelParameters {
    pub(super) iterations_begin: usize,
    /// One beyond the last.
    pub(super) iterations_end: usize,
    pub(super) iterations_in_file: usize,
    /// By the file's own word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) best_iteration: Option<usize>,
}

/// One tensor; -1 stands for any number of rows.
#[derive(Serialize)]
pub(super) struct Tensor<'a> {
    pub(super) name: &'static str,
    pub(super) datatype: &'static str,
    pub(super) shape: Vec<i64>,
    /// Of an input whose columns have names or types in the model's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parameters: Option<TensorParameters<'a>>,
}

/// What the file says of the columns.
#[derive(Serialize)]
pub(super) struct TensorParameters<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) feature_names: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) feature_types: &'a [String],
}

/// The parameters of the input; `None` where the file has neither names nor types, or more of them
/// than clients take in a reply.
fn input_parameters(columns: &Columns) -> Option<TensorParameters<'_>> {
    let texts = || columns.names.iter().chain(&columns.types);
    let bytes: usize = texts().map(|text| text.len() + 3).sum();
    (texts().next().is_some() && bytes <= METADATA_NAMES_BYTES_MAX).then_some(TensorParameters {
        feature_names: &columns.names,
        feature_types: &columns.types,
    })
}

/// The outputs of `model` among `outputs`.
pub(super) fn advertised(model: &ModelInfo, outputs: KindSet) -> impl Iterator<Item = &OutputInfo> {
    let all = model.outputs.iter();
    all.filter(move |output| outputs.contains(output.kind))
}

/// Describes `model`, which advertises `outputs`.
pub(super) fn describe(model: &ModelInfo, outputs: KindSet) -> Model<'_> {
    let input = Tensor {
        name: INPUT,
        datatype: ask::input_datatype(model).name(),
        shape: any_rows(&[model.features]),
        parameters: input_parameters(&model.columns),
    };
    let outputs = advertised(model, outputs).map(|output| Tensor {
        name: ask::output_name(output.kind),
        datatype: Datatype::of(output.element).name(),
        shape: any_rows(&output.row_shape),
        parameters: None,
    });
    Model {
        name: &model.name,
        versions: [VERSION],
        platform: &model.platform,
        inputs: [input],
        outputs: outputs.collect(),
        parameters: ModelParameters {
            iterations_begin: model.iterations.begin,
            iterations_end: model.iterations.end,
            iterations_in_file: model.iterations.in_file,
            best_iteration: model.iterations.best,
        },
    }
}

fn any_rows(row_shape: &[usize]) -> Vec<i64> {
    let sizes = row_shape
        .iter()
        .map(|&size| i64::try_from(size).unwrap_or(i64::MAX));
    std::iter::once(-1).chain(sizes).collect()
}
