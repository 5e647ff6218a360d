//! What the server says about itself and its models, once for both protocols.

use serde::Serialize;

use super::ask::{self, INPUT, VERSION};
use super::datatype::Datatype;
use albacore_engine::ModelInfo;

/// The extensions of the protocol that are spoken here.
pub(super) const EXTENSIONS: [&str; 2] = ["binary_tensor_data", "schedule_policy"];

/// The answer to `GET /v2`.
#[derive(Serialize)]
pub(super) struct Server {
    /// `albacore-server`.
    pub(super) name: &'static str,
    /// The version of this build.
    pub(super) version: &'static str,
    /// [`EXTENSIONS`].
    pub(super) extensions: [&'static str; 2],
}

/// This server.
pub(super) const SERVER: Server = Server {
    name: "albacore-server",
    version: env!("CARGO_PKG_VERSION"),
    extensions: EXTENSIONS,
};

/// The answer to `GET /v2/models/{name}`.
#[derive(Serialize)]
pub(super) struct Model<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// The one version.
    pub(super) versions: [&'static str; 1],
    /// Library and format.
    pub(super) platform: &'a str,
    /// The one input.
    pub(super) inputs: [Tensor; 1],
    /// Everything that can be asked for; the first is what is given when nothing is.
    pub(super) outputs: Vec<Tensor>,
}

/// One tensor; -1 stands for any number of rows.
#[derive(Serialize)]
pub(super) struct Tensor {
    /// Its name.
    pub(super) name: &'static str,
    /// Its data type.
    pub(super) datatype: &'static str,
    /// Its shape.
    pub(super) shape: Vec<i64>,
}

/// Describes `model`.
pub(super) fn describe(model: &ModelInfo) -> Model<'_> {
    let input = Tensor {
        name: INPUT,
        datatype: ask::input_datatype(model).name(),
        shape: any_rows(&[model.features]),
    };
    let outputs = model.outputs.iter().map(|output| Tensor {
        name: ask::output_name(output.kind),
        datatype: Datatype::of(output.element).name(),
        shape: any_rows(&output.row_shape),
    });
    Model {
        name: &model.name,
        versions: [VERSION],
        platform: &model.platform,
        inputs: [input],
        outputs: outputs.collect(),
    }
}

fn any_rows(row_shape: &[usize]) -> Vec<i64> {
    let sizes = row_shape
        .iter()
        .map(|&size| i64::try_from(size).unwrap_or(i64::MAX));
    std::iter::once(-1).chain(sizes).collect()
}
