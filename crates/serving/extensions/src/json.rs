//! JSON form of the messages of Triton's extensions. The fields are the same as over gRPC.

use albacore_proto::inference::repository_index_response::ModelIndex;
use albacore_proto::inference::{DataType, ModelConfig, ModelStatistics, StatisticDuration};
use serde_json::{Value, json};

#[must_use]
pub fn config_json(config: &ModelConfig) -> Value {
    let data_type = |number: i32| {
        let data_type = DataType::try_from(number).unwrap_or(DataType::TypeInvalid);
        data_type.as_str_name()
    };
    let inputs = config.input.iter().map(|input| {
        json!({"name": input.name, "data_type": data_type(input.data_type), "dims": input.dims})
    });
    let outputs = config.output.iter().map(|output| {
        json!({"name": output.name, "data_type": data_type(output.data_type), "dims": output.dims})
    });
    let groups = config
        .instance_group
        .iter()
        .map(|group| json!({"name": group.name, "kind": "KIND_CPU", "count": group.count}));
    let delay = config.dynamic_batching.as_ref();
    let delay = delay.map_or(0, |batching| batching.max_queue_delay_microseconds);
    json!({
        "name": config.name,
        "platform": config.platform,
        "backend": config.backend,
        "max_batch_size": config.max_batch_size,
        "input": inputs.collect::<Vec<_>>(),
        "output": outputs.collect::<Vec<_>>(),
        "instance_group": groups.collect::<Vec<_>>(),
        "dynamic_batching": {"max_queue_delay_microseconds": delay},
        "model_transaction_policy": {"decoupled": false},
    })
}

#[must_use]
pub fn statistics_json(models: &[ModelStatistics]) -> Value {
    let total = |total: &Option<StatisticDuration>| {
        let total = total.unwrap_or_default();
        json!({"count": total.count, "ns": total.ns})
    };
    let models = models.iter().map(|model| {
        let of = model.inference_stats.unwrap_or_default();
        let batches = model.batch_stats.iter().map(|batches| {
            json!({
                "batch_size": batches.batch_size,
                "compute_input": total(&batches.compute_input),
                "compute_infer": total(&batches.compute_infer),
                "compute_output": total(&batches.compute_output),
            })
        });
        json!({
            "name": model.name,
            "version": model.version,
            "last_inference": model.last_inference,
            "inference_count": model.inference_count,
            "execution_count": model.execution_count,
            "inference_stats": {
                "success": total(&of.success),
                "fail": total(&of.fail),
                "queue": total(&of.queue),
                "compute_input": total(&of.compute_input),
                "compute_infer": total(&of.compute_infer),
                "compute_output": total(&of.compute_output),
            },
            "batch_stats": batches.collect::<Vec<_>>(),
        })
    });
    json!({"model_stats": models.collect::<Vec<_>>()})
}

#[must_use]
pub fn index_json(models: &[ModelIndex]) -> Value {
    let models = models.iter().map(|model| {
        json!({
            "name": model.name,
            "version": model.version,
            "state": model.state,
            "reason": model.reason,
        })
    });
    models.collect()
}
