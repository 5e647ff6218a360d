//! Model configuration of Triton.

use albacore_engine::{KindSet, ModelBatching, ModelInfo};
use albacore_proto::inference::{
    DataType, ModelConfig, ModelDynamicBatching, ModelInput, ModelInstanceGroup, ModelOutput,
    ModelTransactionPolicy, model_instance_group,
};
use albacore_rows::datatype::Datatype;
use albacore_rows::labels::LABEL;

use crate::tensors::{INPUT, advertised_outputs, input_datatype, output_name};

/// Configuration of a model with `workers` instances and the batching `params`.
#[must_use]
pub fn model_config(
    model: &ModelInfo,
    outputs: KindSet,
    workers: usize,
    params: ModelBatching,
) -> ModelConfig {
    let data_type = |datatype| match datatype {
        Datatype::Fp32 => DataType::TypeFp32,
        Datatype::Fp64 => DataType::TypeFp64,
        Datatype::Int32 => DataType::TypeInt32,
        _ => DataType::TypeInvalid,
    };
    let input = ModelInput {
        name: INPUT.to_owned(),
        data_type: data_type(input_datatype(model)).into(),
        dims: vec![i64::try_from(model.features).unwrap_or(i64::MAX)],
    };
    let outputs = advertised_outputs(model, outputs).map(|output| ModelOutput {
        name: output_name(output.kind).to_owned(),
        data_type: data_type(Datatype::from_element(output.element)).into(),
        dims: dims(&output.row_shape),
    });
    let label = model.class_names.as_ref().map(|_| ModelOutput {
        name: LABEL.to_owned(),
        data_type: DataType::TypeString.into(),
        dims: dims(&[]),
    });
    let delay = params.policy.delay().or(params.window).map_or(0, |delay| {
        u64::try_from(delay.as_micros()).unwrap_or(u64::MAX)
    });
    ModelConfig {
        name: model.name.clone(),
        platform: model.platform.clone(),
        backend: "albacore".to_owned(),
        max_batch_size: i32::try_from(params.batch_rows_max).unwrap_or(i32::MAX),
        input: vec![input],
        output: outputs.chain(label).collect(),
        instance_group: vec![ModelInstanceGroup {
            name: "workers".to_owned(),
            kind: model_instance_group::Kind::Cpu.into(),
            count: i32::try_from(workers).unwrap_or(i32::MAX),
        }],
        dynamic_batching: Some(ModelDynamicBatching {
            max_queue_delay_microseconds: delay,
        }),
        model_transaction_policy: Some(ModelTransactionPolicy { decoupled: false }),
    }
}

/// Dimensions of an output row; Triton has no scalars, so a single value is a list of one.
fn dims(row_shape: &[usize]) -> Vec<i64> {
    if row_shape.is_empty() {
        return vec![1];
    }
    let sizes = row_shape.iter();
    sizes
        .map(|&size| i64::try_from(size).unwrap_or(i64::MAX))
        .collect()
}
