//! Batching of one model: its own fields override those of the deployment.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::deployment::{
    Batching, BatchingPolicy, BatchingPreference, InferenceDeploymentSpec, ModelSpec,
};
use crate::limits;
use crate::timespan::Timespan;

/// Fields of `spec.batching` overridden for one model.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelBatchingSpec {
    /// Dispatch policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<BatchingPolicy>,
    /// Maximum number of rows per batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = limits::BATCH_ROWS_MAX))]
    pub max_rows: Option<u32>,
    /// Maximum time that the oldest row of a batch waits for further rows, with policy Timeout.
    /// Must be shorter than the model's latency objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<Timespan>,
    /// Preference of policy Auto.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<BatchingPreference>,
    /// Maximum time that the oldest row of a deferred batch waits for further rows, with policy
    /// Auto or Deferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Timespan>,
}

impl Batching {
    /// The batching of a model with overridden fields. Of the deployment's fields, those that the
    /// model's policy accepts are used.
    fn with(&self, own: &ModelBatchingSpec) -> Self {
        let policy = own.policy.unwrap_or(self.policy);
        let is_held_back = matches!(policy, BatchingPolicy::Auto | BatchingPolicy::Deferred);
        let common = |is_taken: bool| is_taken.then_some(self);
        Self {
            policy,
            max_rows: own.max_rows.unwrap_or(self.max_rows),
            max_delay: own
                .max_delay
                .or_else(|| common(policy == BatchingPolicy::Timeout)?.max_delay),
            prefer: own
                .prefer
                .or_else(|| common(policy == BatchingPolicy::Auto)?.prefer),
            window: own.window.or_else(|| common(is_held_back)?.window),
        }
    }
}

impl InferenceDeploymentSpec {
    /// The batching of a model.
    pub fn batching_of(&self, model: &ModelSpec) -> Batching {
        let own = model.batching.as_ref();
        own.map_or(self.batching, |own| self.batching.with(own))
    }
}
