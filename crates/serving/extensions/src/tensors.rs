//! Names and types of the tensors of a model, and the advertised outputs.

use albacore_engine::{Kind, KindSet, ModelInfo, OutputInfo};
use albacore_rows::datatype::Datatype;

/// Name of the only input tensor in metadata; requests may use any name.
pub const INPUT: &str = "input";

/// The version of every model: there is only one.
pub const VERSION: &str = "1";

/// The name of the tensor of `kind`.
#[must_use]
pub const fn output_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Value => "output",
        Kind::Margin => "margin",
        Kind::Contribs => "contribs",
        Kind::Interactions => "interactions",
        Kind::Leaf => "leaf",
    }
}

/// The default data type of rows: that of the model's output `value`.
#[must_use]
pub fn input_datatype(model: &ModelInfo) -> Datatype {
    model.output(Kind::Value).map_or(Datatype::Fp32, |value| {
        Datatype::from_element(value.element)
    })
}

/// The outputs of `model` whose kind is in `outputs`.
pub fn advertised_outputs(
    model: &ModelInfo,
    outputs: KindSet,
) -> impl Iterator<Item = &OutputInfo> {
    let all = model.outputs.iter();
    all.filter(move |output| outputs.contains(output.kind))
}
