//! Model statistics of Triton's statistics extension.

use albacore_engine::ModelStats;
use albacore_proto::inference::{
    InferBatchStatistics, InferStatistics, ModelStatistics, StatisticDuration,
};

use crate::CallCounts;

impl CallCounts {
    /// Statistics of calls and batches of this version of a model.
    #[must_use]
    pub fn statistics(&self, model: &ModelStats, version: &str) -> ModelStatistics {
        let totals = self.totals(&model.name);
        // Requests are parsed and replies are written one by one, not per batch.
        let sizes = model.batch_sizes.iter().map(|(&rows, batches)| {
            let part = |ns| {
                let count = batches.batches;
                Some(StatisticDuration { count, ns })
            };
            InferBatchStatistics {
                batch_size: rows as u64,
                compute_input: part(0),
                compute_infer: part(batches.compute_nanos),
                compute_output: part(0),
            }
        });
        ModelStatistics {
            name: model.name.clone(),
            version: version.to_owned(),
            last_inference: totals.last_unix_ms,
            inference_count: totals.rows,
            execution_count: model.batch_sizes.values().map(|of| of.batches).sum(),
            inference_stats: Some(InferStatistics {
                success: Some(totals.success.into()),
                fail: Some(totals.fail.into()),
                queue: Some(totals.queue.into()),
                compute_input: Some(totals.input.into()),
                compute_infer: Some(totals.infer.into()),
                compute_output: Some(totals.output.into()),
            }),
            batch_stats: sizes.collect(),
        }
    }
}
