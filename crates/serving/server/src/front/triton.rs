//! Triton's extensions of the protocol: model configuration, statistics, repository index. Builds
//! the messages of gRPC; the JSON of HTTP has the same fields.

use albacore_call_counts::CallCounts;
use albacore_engine::{
    Engine, KindSet, LoopIndex, ModelBatching, ModelInfo, ModelLookupError, ModelStats,
};
use albacore_proto::inference::repository_index_response::ModelIndex;
use albacore_proto::inference::{
    DataType, InferBatchStatistics, InferStatistics, ModelConfig, ModelDynamicBatching, ModelInput,
    ModelInstanceGroup, ModelOutput, ModelStatistics, ModelTransactionPolicy, StatisticDuration,
    model_instance_group,
};

use super::metadata::advertised;
use super::request_error::{ErrorKind, RequestError};
use super::validate::{self, INPUT, VERSION};
use super::{Front, micros};
use albacore_extensions::RepositoryCall;
use albacore_live_settings::model_control::{ModelAction, ModelControl};
use albacore_live_settings::model_status::{ConfigStatus, LoadState};
use albacore_rows::datatype::Datatype;
use albacore_rows::labels::LABEL;

/// The configuration of a model with `workers` instances, batched by `params`.
pub(super) fn config(
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
        data_type: data_type(validate::input_datatype(model)).into(),
        dims: vec![i64::try_from(model.features).unwrap_or(i64::MAX)],
    };
    let outputs = advertised(model, outputs).map(|output| ModelOutput {
        name: validate::output_name(output.kind).to_owned(),
        data_type: data_type(Datatype::from_element(output.element)).into(),
        dims: dims(&output.row_shape),
    });
    let label = model.class_names.as_ref().map(|_| ModelOutput {
        name: LABEL.to_owned(),
        data_type: DataType::TypeString.into(),
        dims: dims(&[]),
    });
    let delay = params.policy.delay().or(params.window).map_or(0, micros);
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

/// Shape of the output of a row; Triton has no scalars, a single value is a list of one.
fn dims(row_shape: &[usize]) -> Vec<i64> {
    if row_shape.is_empty() {
        return vec![1];
    }
    let sizes = row_shape.iter();
    sizes
        .map(|&size| i64::try_from(size).unwrap_or(i64::MAX))
        .collect()
}

/// The counters of a model, or of all for an empty name.
///
/// # Errors
/// There is no such model or version.
pub(super) fn statistics(
    engine: &Engine,
    calls: &CallCounts,
    (name, version): (&str, &str),
) -> Result<Vec<ModelStatistics>, RequestError> {
    if !name.is_empty() {
        validate::find_model(engine, LoopIndex::default(), name, version)?;
    } else if !version.is_empty() {
        return Err(RequestError::invalid(
            "a version without a model: name the model, too",
        ));
    }
    let models = engine.stats().models;
    let asked = models
        .iter()
        .filter(|model| name.is_empty() || model.name == name);
    Ok(asked.map(|model| statistics_of(model, calls)).collect())
}

fn statistics_of(model: &ModelStats, calls: &CallCounts) -> ModelStatistics {
    let totals = calls.totals(&model.name);
    // Requests are parsed and replies written one by one, not as part of a batch.
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
        version: VERSION.to_owned(),
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

/// All models of the settings, or only those that are ready.
pub(super) fn index(engine: &Engine, status: &ConfigStatus, only_ready: bool) -> Vec<ModelIndex> {
    let models = status.models.iter().map(|model| {
        let is_served = model.serving.is_some() && engine.model(&model.name).is_ok();
        let state = match (is_served, model.load_state) {
            (true, _) => "READY",
            (false, LoadState::Failed | LoadState::Unloaded) => "UNAVAILABLE",
            (false, LoadState::Loading | LoadState::Loaded) => "LOADING",
        };
        let without_error = match model.load_state {
            LoadState::Unloaded => "unloaded",
            _ => "",
        };
        ModelIndex {
            name: model.name.clone(),
            version: VERSION.to_owned(),
            state: state.to_owned(),
            reason: model
                .error
                .clone()
                .unwrap_or_else(|| without_error.to_owned()),
        }
    });
    models
        .filter(|model| !only_ready || model.state == "READY")
        .collect()
}

/// Calls of Triton that this server has not, and says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnsupportedCall {
    CudaSharedMemory,
    Trace,
    Logging,
}

impl UnsupportedCall {
    /// By its name over gRPC.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name {
            "CudaSharedMemoryStatus"
            | "CudaSharedMemoryRegister"
            | "CudaSharedMemoryUnregister" => Some(Self::CudaSharedMemory),
            "TraceSetting" => Some(Self::Trace),
            "LogSettings" => Some(Self::Logging),
            _ => None,
        }
    }
}

/// The error for such a call.
pub(super) fn unsupported(call: UnsupportedCall) -> RequestError {
    let why = match call {
        UnsupportedCall::CudaSharedMemory => {
            "CUDA shared memory is not supported: this server computes on cpus; use system shared \
             memory"
        }
        UnsupportedCall::Trace => {
            "trace settings are not supported: replies carry server-timing, and /metrics the stages \
             of requests"
        }
        UnsupportedCall::Logging => {
            "log settings are not supported: the environment of the server sets what it logs"
        }
    };
    RequestError::new(ErrorKind::Unimplemented, why)
}

impl Front {
    /// Loads or unloads a model of the settings.
    pub(super) async fn control_model(
        &self,
        name: &str,
        call: RepositoryCall,
    ) -> Result<(), RequestError> {
        let control = self.model_control()?;
        if self.engine.model(name).err() == Some(ModelLookupError::Unknown) {
            let (name, names) = (validate::excerpt(name), self.engine.names());
            let message = format!(
                "model {name:?} is not in the settings of this server, which have {names:?}: a \
                 model is added by editing them"
            );
            return Err(RequestError::new(ErrorKind::NotFound, message));
        }
        let action = match call {
            RepositoryCall::Load => ModelAction::Load,
            RepositoryCall::Unload => ModelAction::Unload,
        };
        Ok(control.run(name, action).await?)
    }

    /// What loads and unloads models.
    ///
    /// # Errors
    /// Calls do not load and unload models here.
    pub(super) fn model_control(&self) -> Result<&ModelControl, RequestError> {
        self.model_control.as_ref().ok_or_else(|| {
            RequestError::new(
                ErrorKind::Unimplemented,
                "models are not loaded or unloaded by calls: edit spec.models of the deployment, \
                 or the settings file; a file that changes is loaded by itself. Calls do it if the \
                 server is started with --model-control explicit (ALBACORE_MODEL_CONTROL)",
            )
        })
    }
}
