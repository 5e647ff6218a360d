//! The gRPC service: calls of the protocol and its extensions, the standard health service,
//! reflection, and load reports.

#[cfg(any(test, fuzzing))]
pub(super) mod fuzz_targets;
mod infer;
mod infer_stream;
mod load_stream;
mod parameters;
mod size_check;
pub(super) mod unary;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use albacore_proto::DESCRIPTORS;
use albacore_proto::inference::{
    ModelConfigRequest, ModelConfigResponse, ModelMetadataRequest, ModelReadyRequest,
    ModelReadyResponse, ModelStatisticsRequest, ModelStatisticsResponse, RepositoryIndexRequest,
    RepositoryIndexResponse, RepositoryModelLoadRequest, RepositoryModelLoadResponse,
    RepositoryModelUnloadRequest, RepositoryModelUnloadResponse, ServerLiveRequest,
    ServerLiveResponse, ServerMetadataRequest, ServerReadyRequest, ServerReadyResponse,
    SystemSharedMemoryRegisterResponse, SystemSharedMemoryStatusRequest,
    SystemSharedMemoryUnregisterRequest, SystemSharedMemoryUnregisterResponse,
};
use hyper::body::Incoming;
use hyper::{HeaderMap, Request, Response};
use prost::Message;
use tokio::sync::watch;
use tonic::codegen::Service;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::limits::{HEALTH_PERIOD, SMALL_MESSAGE_BYTES_MAX};
use super::reply_body::ReplyBody;
use super::request_body::{self, BodyBudget};
use super::request_error::{ErrorKind, RequestError};
use super::{FrontContext, FrontError, triton, validate};
use albacore_connections::{ActiveRequest, ShutdownStage, next_stage};
use albacore_engine::ModelLookupError;
use albacore_extensions::metadata_messages::{model_metadata, server_metadata};
use albacore_extensions::{RepositoryCall, UnsupportedCall, messages, metadata};
use albacore_proto::orca::open_rca_service_server::OpenRcaServiceServer;
use load_stream::LoadStreams;

/// Name of the service, and path prefix of its calls.
const SERVICE: &str = "inference.GRPCInferenceService";
const PATH_PREFIX: &str = "/inference.GRPCInferenceService/";

type TonicReply = Pin<Box<dyn Future<Output = Response<tonic::body::Body>> + Send>>;

/// A tonic service as a function.
type TonicService = Box<dyn Fn(Request<Incoming>) -> TonicReply + Send + Sync>;

pub(super) struct GrpcService {
    front: Arc<FrontContext>,
    body_budget: BodyBudget,
    /// Health, reflection and load reports, by path prefix.
    tonic_services: [(&'static str, TonicService); 4],
    health: HealthReporter,
    /// Set to end the long-lived streams, for which shutdown would otherwise wait.
    streams_end: watch::Sender<bool>,
}

/// Converts a tonic service to a function.
fn tonic_service<S>(service: S) -> TonicService
where
    S: Service<Request<Incoming>, Response = Response<tonic::body::Body>>,
    S: Clone + Send + Sync + 'static,
    S::Error: Send,
    S::Future: Send,
{
    Box::new(move |request| {
        let mut service = service.clone();
        Box::pin(async move {
            let failed = |_| tonic::Status::internal("the service failed").into_http();
            service.call(request).await.unwrap_or_else(failed)
        })
    })
}

impl GrpcService {
    pub(super) fn new(
        front: Arc<FrontContext>,
        body_budget: BodyBudget,
    ) -> Result<Self, FrontError> {
        let (reporter, health) = tonic_health::server::health_reporter();
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let bytes_max = SMALL_MESSAGE_BYTES_MAX;
        let health = health.max_decoding_message_size(bytes_max);
        let reflection_v1 = reflection().build_v1()?;
        // Used by grpcurl before version 1.8.8, and still by other tools.
        let reflection_v1alpha = reflection().build_v1alpha()?;
        let load = OpenRcaServiceServer::new(LoadStreams(Arc::clone(&front.load_reports)));
        Ok(Self {
            front,
            body_budget,
            tonic_services: [
                ("/grpc.health.v1.", tonic_service(health)),
                (
                    "/grpc.reflection.v1.",
                    tonic_service(reflection_v1.max_decoding_message_size(bytes_max)),
                ),
                (
                    "/grpc.reflection.v1alpha.",
                    tonic_service(reflection_v1alpha.max_decoding_message_size(bytes_max)),
                ),
                (
                    "/xds.service.orca.v3.",
                    tonic_service(load.max_decoding_message_size(bytes_max)),
                ),
            ],
            health: reporter,
            streams_end: watch::Sender::new(false),
        })
    }

    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        active: &ActiveRequest,
    ) -> Response<ReplyBody> {
        let path = request.uri().path();
        for (prefix, service) in &self.tonic_services {
            if path.starts_with(prefix) {
                let ends = self.streams_end.subscribe();
                let reply = service(request).await;
                return reply.map(|body| ReplyBody::stream(body, ends));
            }
        }
        let (head, body) = request.into_parts();
        let name = head.uri.path();
        let result = match name.strip_prefix(PATH_PREFIX) {
            Some("ModelInfer") => return self.infer(&head.headers, body, active.conn()).await,
            Some("ModelStreamInfer") => return self.infer_stream(head.headers, body, active),
            Some(name) => self.answer_other(name, &head.headers, body, active).await,
            None => Err(unknown_call(name)),
        };
        result.unwrap_or_else(unary::error)
    }

    /// Reads the message of a unary call.
    async fn message<M: Message + Default>(
        &self,
        headers: &HeaderMap,
        body: Incoming,
        active: &ActiveRequest,
    ) -> Result<M, RequestError> {
        let bytes = request_body::read(body, &self.body_budget, active.conn()).await?;
        decode(unary::message(headers, bytes)?)
    }

    /// Reads the message of a call that loads or unloads a model.
    async fn repository_message<M: Message + Default>(
        &self,
        headers: &HeaderMap,
        body: Incoming,
        active: &ActiveRequest,
    ) -> Result<M, RequestError> {
        let bytes = request_body::read(body, &self.body_budget, active.conn()).await?;
        // First: the error of a server without the extension takes precedence.
        self.front.model_control()?;
        let bytes = unary::message(headers, bytes)?;
        RepositoryCall::check_size(&bytes)?;
        decode(bytes)
    }

    /// Serves every call except for infer calls.
    async fn answer_other(
        &self,
        name: &str,
        headers: &HeaderMap,
        body: Incoming,
        active: &ActiveRequest,
    ) -> Result<Response<ReplyBody>, RequestError> {
        let engine = &self.front.engine;
        Ok(match name {
            "ServerLive" => {
                let ServerLiveRequest {} = self.message(headers, body, active).await?;
                unary::reply(&ServerLiveResponse { live: true })
            }
            "ServerReady" => {
                let ServerReadyRequest {} = self.message(headers, body, active).await?;
                let ready = engine.is_ready();
                unary::reply(&ServerReadyResponse { ready })
            }
            "ModelReady" => {
                let ModelReadyRequest { name, version } =
                    self.message(headers, body, active).await?;
                let is_loaded =
                    match validate::find_model(engine, self.front.event_loop, &name, &version) {
                        Ok(_) => true,
                        Err(error) if error.kind == ErrorKind::Unavailable => false,
                        Err(_) if engine.model(&name).err() == Some(ModelLookupError::Unloaded) => {
                            false
                        }
                        Err(error) => return Err(error),
                    };
                let ready = is_loaded && engine.is_ready();
                unary::reply(&ModelReadyResponse { ready })
            }
            "ServerMetadata" => {
                let ServerMetadataRequest {} = self.message(headers, body, active).await?;
                unary::reply(&server_metadata(self.front.regions.is_enabled()))
            }
            "ModelMetadata" => {
                let ModelMetadataRequest { name, version } =
                    self.message(headers, body, active).await?;
                let model = validate::find_model(engine, self.front.event_loop, &name, &version)?;
                let outputs = self.front.outputs(&name);
                unary::reply(&model_metadata(&metadata::describe(model.info(), outputs)))
            }
            "ModelConfig" => {
                let ModelConfigRequest { name, version } =
                    self.message(headers, body, active).await?;
                let model = validate::find_model(engine, self.front.event_loop, &name, &version)?;
                let config = Some(self.front.model_config(model.info()));
                unary::reply(&ModelConfigResponse { config })
            }
            "ModelStatistics" => {
                let ModelStatisticsRequest { name, version } =
                    self.message(headers, body, active).await?;
                let calls = &self.front.metrics.calls;
                let model_stats = triton::statistics(engine, calls, (&name, &version))?;
                unary::reply(&ModelStatisticsResponse { model_stats })
            }
            name if name.starts_with("Repository") => {
                self.answer_repository(name, headers, body, active).await?
            }
            name if name.starts_with("SystemSharedMemory") => {
                self.answer_shared_memory(name, headers, body, active)
                    .await?
            }
            other => return Err(unknown_call(other)),
        })
    }

    async fn answer_repository(
        &self,
        name: &str,
        headers: &HeaderMap,
        body: Incoming,
        active: &ActiveRequest,
    ) -> Result<Response<ReplyBody>, RequestError> {
        Ok(match name {
            "RepositoryIndex" => {
                let RepositoryIndexRequest { ready, .. } =
                    self.message(headers, body, active).await?;
                let models =
                    triton::index(&self.front.engine, &self.front.status.snapshot(), ready);
                unary::reply(&RepositoryIndexResponse { models })
            }
            "RepositoryModelLoad" => {
                let RepositoryModelLoadRequest {
                    repository_name,
                    model_name,
                    parameters,
                } = self.repository_message(headers, body, active).await?;
                let call = RepositoryCall::Load;
                call.check_message(&repository_name, &parameters)?;
                self.front.control_model(&model_name, call).await?;
                unary::reply(&RepositoryModelLoadResponse {})
            }
            "RepositoryModelUnload" => {
                let RepositoryModelUnloadRequest {
                    repository_name,
                    model_name,
                    parameters,
                } = self.repository_message(headers, body, active).await?;
                let call = RepositoryCall::Unload;
                call.check_message(&repository_name, &parameters)?;
                self.front.control_model(&model_name, call).await?;
                unary::reply(&RepositoryModelUnloadResponse {})
            }
            other => return Err(unknown_call(other)),
        })
    }

    async fn answer_shared_memory(
        &self,
        name: &str,
        headers: &HeaderMap,
        body: Incoming,
        active: &ActiveRequest,
    ) -> Result<Response<ReplyBody>, RequestError> {
        let regions = &self.front.regions;
        Ok(match name {
            "SystemSharedMemoryStatus" => {
                let SystemSharedMemoryStatusRequest { name } =
                    self.message(headers, body, active).await?;
                unary::reply(&messages::regions_message(regions.status(&name)?))
            }
            "SystemSharedMemoryRegister" => {
                let region = self.message(headers, body, active).await?;
                regions.register(messages::region_from_message(region))?;
                unary::reply(&SystemSharedMemoryRegisterResponse {})
            }
            "SystemSharedMemoryUnregister" => {
                let SystemSharedMemoryUnregisterRequest { name } =
                    self.message(headers, body, active).await?;
                regions.unregister(&name)?;
                unary::reply(&SystemSharedMemoryUnregisterResponse {})
            }
            other => return Err(unknown_call(other)),
        })
    }

    /// Updates the standard health service while the server runs.
    pub(super) async fn report_health(&self, mut shutdown: watch::Receiver<ShutdownStage>) {
        let mut period = tokio::time::interval(HEALTH_PERIOD);
        let mut reported = None;
        let mut stage = *shutdown.borrow_and_update();
        loop {
            // bound: one pass per HEALTH_PERIOD and shutdown stage; dropped with the server
            let is_ready = self.front.engine.is_ready();
            if reported != Some(is_ready) {
                let status = if is_ready {
                    ServingStatus::Serving
                } else {
                    ServingStatus::NotServing
                };
                for service in ["", SERVICE] {
                    self.health.set_service_status(service, status).await;
                }
                reported = Some(is_ready);
            }
            if stage.is_closing() {
                // Watchers have been notified above.
                self.streams_end.send_replace(true);
            }
            tokio::select! {
                _ = period.tick() => {}
                next = next_stage(&mut shutdown), if !stage.is_closing() => stage = next,
            }
        }
    }
}

fn decode<M: Message + Default>(bytes: bytes::Bytes) -> Result<M, RequestError> {
    M::decode(bytes).map_err(|error| {
        RequestError::invalid(format!(
            "the message of the call cannot be decoded: {error}"
        ))
    })
}

fn unknown_call(name: &str) -> RequestError {
    if let Some(call) = UnsupportedCall::from_name(name) {
        return triton::unsupported(call);
    }
    let message = format!("{:?} is not a method of {SERVICE}", validate::excerpt(name));
    RequestError::new(ErrorKind::Unimplemented, message)
}
