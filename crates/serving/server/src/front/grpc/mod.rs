//! gRPC: the calls of the protocol and of its extensions, the standard health service, and
//! reflection.

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzed;
mod infer;
pub(super) mod unary;
mod weigh;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use albacore_proto::DESCRIPTORS;
use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::model_metadata_response::TensorMetadata;
use albacore_proto::inference::{
    InferParameter, ModelConfigRequest, ModelConfigResponse, ModelMetadataRequest,
    ModelMetadataResponse, ModelReadyRequest, ModelReadyResponse, ModelStatisticsRequest,
    ModelStatisticsResponse, RepositoryIndexRequest, RepositoryIndexResponse, ServerLiveRequest,
    ServerLiveResponse, ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest,
    ServerReadyResponse,
};
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response};
use prost::Message;
use tonic::codegen::Service;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::body::{self, Arriving};
use super::feature_names::FEATURE_NAMES;
use super::limits::{HEALTH_PERIOD, SMALL_MESSAGE_BYTES_MAX};
use super::metadata::{self, Tensor};
use super::outgoing::Outgoing;
use super::refused::{Cause, Refused};
use super::{Front, FrontError, ask, triton};
use albacore_connections::ActiveRequest;

/// The service's name, and what paths of its calls begin with.
const SERVICE: &str = "inference.GRPCInferenceService";
const CALLS: &str = "/inference.GRPCInferenceService/";

type Answer = Pin<Box<dyn Future<Output = Response<tonic::body::Body>> + Send>>;

/// A service that tonic answers.
type Beside = Box<dyn Fn(Request<Incoming>) -> Answer + Send + Sync>;

pub(super) struct Grpc {
    front: Arc<Front>,
    arriving: Arriving,
    /// By the start of their paths.
    beside: [(&'static str, Beside); 3],
    reporter: HealthReporter,
}

/// Makes one function of a service of tonic.
fn beside<S>(service: S) -> Beside
where
    S: Service<Request<Incoming>, Response = Response<tonic::body::Body>>,
    S: Clone + Send + Sync + 'static,
    S::Error: Send,
    S::Future: Send,
{
    Box::new(move |request| {
        let mut service = service.clone();
        Box::pin(async move {
            let refused = |_| tonic::Status::internal("the service failed").into_http();
            service.call(request).await.unwrap_or_else(refused)
        })
    })
}

impl Grpc {
    /// Ready to answer, with health as the engine has it.
    pub(super) fn new(front: Arc<Front>, arriving: Arriving) -> Result<Self, FrontError> {
        let (reporter, health) = tonic_health::server::health_reporter();
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let bytes_max = SMALL_MESSAGE_BYTES_MAX;
        let health = health.max_decoding_message_size(bytes_max);
        let of_today = reflection().build_v1()?;
        // What grpcurl asks for before version 1.8.8, and other tools still do.
        let of_old = reflection().build_v1alpha()?;
        Ok(Self {
            front,
            arriving,
            beside: [
                ("/grpc.health.v1.", beside(health)),
                (
                    "/grpc.reflection.v1.",
                    beside(of_today.max_decoding_message_size(bytes_max)),
                ),
                (
                    "/grpc.reflection.v1alpha.",
                    beside(of_old.max_decoding_message_size(bytes_max)),
                ),
            ],
            reporter,
        })
    }

    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        call: &ActiveRequest,
    ) -> Response<Outgoing> {
        let path = request.uri().path();
        for (start, beside) in &self.beside {
            if path.starts_with(start) {
                return beside(request).await.map(Outgoing::stream);
            }
        }
        let (head, body) = request.into_parts();
        let name = head.uri.path();
        let answered = match name.strip_prefix(CALLS) {
            Some("ModelInfer") => self.infer(&head.headers, body, call.conn()).await,
            Some(name) => self.inform(name, &head.headers, (body, call)).await,
            None => Err(no_such(name)),
        };
        answered.unwrap_or_else(unary::refused)
    }

    /// Reads the message of a call.
    async fn message<M: Message + Default>(
        &self,
        headers: &HeaderMap,
        (body, call): (Incoming, &ActiveRequest),
    ) -> Result<M, Refused> {
        let bytes = body::read(body, &self.arriving, call.conn()).await?;
        decoded(unary::message(headers, bytes)?)
    }

    /// Every call but infer.
    async fn inform(
        &self,
        name: &str,
        headers: &HeaderMap,
        asked: (Incoming, &ActiveRequest),
    ) -> Result<Response<Outgoing>, Refused> {
        let engine = &self.front.engine;
        Ok(match name {
            "ServerLive" => {
                let ServerLiveRequest {} = self.message(headers, asked).await?;
                unary::reply(&ServerLiveResponse { live: true })
            }
            "ServerReady" => {
                let ServerReadyRequest {} = self.message(headers, asked).await?;
                let ready = engine.is_ready();
                unary::reply(&ServerReadyResponse { ready })
            }
            "ModelReady" => {
                let ModelReadyRequest { name, version } = self.message(headers, asked).await?;
                let is_loaded = match ask::find(engine, &name, &version) {
                    Ok(_) => true,
                    Err(refused) if refused.cause == Cause::Unavailable => false,
                    Err(refused) => return Err(refused),
                };
                let ready = is_loaded && engine.is_ready();
                unary::reply(&ModelReadyResponse { ready })
            }
            "ServerMetadata" => {
                let ServerMetadataRequest {} = self.message(headers, asked).await?;
                unary::reply(&server_metadata())
            }
            "ModelMetadata" => {
                let ModelMetadataRequest { name, version } = self.message(headers, asked).await?;
                let model = ask::find(engine, &name, &version)?;
                let outputs = self.front.outputs(&name);
                unary::reply(&model_metadata(&metadata::describe(model.info(), outputs)))
            }
            "ModelConfig" => {
                let ModelConfigRequest { name, version } = self.message(headers, asked).await?;
                let model = ask::find(engine, &name, &version)?;
                let config = Some(self.front.config(model.info()));
                unary::reply(&ModelConfigResponse { config })
            }
            "ModelStatistics" => {
                let ModelStatisticsRequest { name, version } = self.message(headers, asked).await?;
                let statistics = &self.front.metrics.statistics;
                let model_stats = triton::statistics(engine, statistics, (&name, &version))?;
                unary::reply(&ModelStatisticsResponse { model_stats })
            }
            "RepositoryIndex" => {
                let RepositoryIndexRequest { ready, .. } = self.message(headers, asked).await?;
                let models = triton::index(engine, &self.front.board.read(), ready);
                unary::reply(&RepositoryIndexResponse { models })
            }
            "RepositoryModelLoad" | "RepositoryModelUnload" => return Err(triton::not_by_call()),
            other => return Err(no_such(other)),
        })
    }

    /// Tells the standard health service what the engine says, for as long as the server runs.
    pub(super) async fn report_health(&self) {
        let mut period = tokio::time::interval(HEALTH_PERIOD);
        let mut told = None;
        loop {
            // bound: one turn each HEALTH_PERIOD, dropped with the server
            let is_ready = self.front.engine.is_ready();
            if told != Some(is_ready) {
                let status = if is_ready {
                    ServingStatus::Serving
                } else {
                    ServingStatus::NotServing
                };
                for service in ["", SERVICE] {
                    self.reporter.set_service_status(service, status).await;
                }
                told = Some(is_ready);
            }
            period.tick().await;
        }
    }
}

fn decoded<M: Message + Default>(bytes: bytes::Bytes) -> Result<M, Refused> {
    M::decode(bytes).map_err(|error| {
        Refused::invalid(format!("the message of the call cannot be read: {error}"))
    })
}

fn no_such(name: &str) -> Refused {
    let message = format!("{:?} is not a call of {SERVICE}", ask::brief(name));
    Refused::new(Cause::Unimplemented, message)
}

fn server_metadata() -> ServerMetadataResponse {
    let metadata::Server {
        name,
        version,
        extensions,
    } = metadata::SERVER;
    ServerMetadataResponse {
        name: name.to_owned(),
        version: version.to_owned(),
        extensions: extensions.map(str::to_owned).to_vec(),
    }
}

fn model_metadata(model: &metadata::Model<'_>) -> ModelMetadataResponse {
    ModelMetadataResponse {
        name: model.name.to_owned(),
        versions: model.versions.map(str::to_owned).to_vec(),
        platform: model.platform.to_owned(),
        inputs: model.inputs.iter().map(tensor).collect(),
        outputs: model.outputs.iter().map(tensor).collect(),
        parameters: model_parameters(&model.parameters),
    }
}

fn model_parameters(parameters: &metadata::ModelParameters) -> HashMap<String, InferParameter> {
    let &metadata::ModelParameters {
        iterations_begin,
        iterations_end,
        iterations_in_file,
        best_iteration,
    } = parameters;
    let counts = [
        ("iterations_begin", Some(iterations_begin)),
        ("iterations_end", Some(iterations_end)),
        ("iterations_in_file", Some(iterations_in_file)),
        ("best_iteration", best_iteration),
    ];
    let counts = counts.into_iter().filter_map(|(name, count)| {
        let count = i64::try_from(count?).ok()?;
        Some((
            name.to_owned(),
            parameter(ParameterChoice::Int64Param(count)),
        ))
    });
    counts.collect()
}

/// Names and types as JSON: parameters of gRPC have no lists.
fn tensor_parameters(
    parameters: &metadata::TensorParameters<'_>,
) -> HashMap<String, InferParameter> {
    let lists = [
        (FEATURE_NAMES, parameters.feature_names),
        ("feature_types", parameters.feature_types),
    ];
    let lists = lists.into_iter().filter(|(_, list)| !list.is_empty());
    let lists = lists.map(|(name, list)| {
        let json = serde_json::Value::from(list.to_vec()).to_string();
        (
            name.to_owned(),
            parameter(ParameterChoice::StringParam(json)),
        )
    });
    lists.collect()
}

fn parameter(choice: ParameterChoice) -> InferParameter {
    InferParameter {
        parameter_choice: Some(choice),
    }
}

fn tensor(tensor: &Tensor<'_>) -> TensorMetadata {
    TensorMetadata {
        name: tensor.name.to_owned(),
        datatype: tensor.datatype.to_owned(),
        shape: tensor.shape.clone(),
        parameters: tensor
            .parameters
            .as_ref()
            .map(tensor_parameters)
            .unwrap_or_default(),
    }
}
