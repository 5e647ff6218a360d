//! gRPC: the six calls of the protocol, the standard health service, and reflection.

mod infer;

use std::sync::Arc;

use albacore_proto::DESCRIPTORS;
use albacore_proto::inference::grpc_inference_service_server::{
    GrpcInferenceService, GrpcInferenceServiceServer,
};
use albacore_proto::inference::model_metadata_response::TensorMetadata;
use albacore_proto::inference::{
    ModelInferRequest, ModelInferResponse, ModelMetadataRequest, ModelMetadataResponse,
    ModelReadyRequest, ModelReadyResponse, ServerLiveRequest, ServerLiveResponse,
    ServerMetadataRequest, ServerMetadataResponse, ServerReadyRequest, ServerReadyResponse,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataValue;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::limits::{BODY_BYTES_MAX, HEALTH_PERIOD, STREAM_WINDOW_BYTES, STREAMS_MAX};
use super::metadata::{self, Tensor};
use super::refused::{Cause, Refused};
use super::{Front, FrontError, SERVER_TIMING, ask, server_timing};

type Service = GrpcInferenceServiceServer<Calls>;

/// Serves until `stopped` says so; returns when the last call is answered.
pub(super) async fn serve(
    front: Arc<Front>,
    listener: TcpListener,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), FrontError> {
    let (reporter, health) = tonic_health::server::health_reporter();
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let calls = Service::new(Calls {
        front: Arc::clone(&front),
    })
    .max_decoding_message_size(BODY_BYTES_MAX)
    .max_encoding_message_size(usize::MAX)
    .accept_compressed(CompressionEncoding::Gzip)
    .accept_compressed(CompressionEncoding::Deflate);
    let server = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(STREAM_WINDOW_BYTES)
        .add_service(health)
        .add_service(reflection)
        .add_service(calls)
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)),
            async move {
                let _ = stopped.wait_for(|&stopped| stopped).await;
            },
        );
    tokio::select! {
        served = server => Ok(served?),
        () = report_health(&front, &reporter) => Ok(()),
    }
}

/// Tells the standard health service what the engine says, for as long as the server runs.
async fn report_health(front: &Front, reporter: &HealthReporter) {
    let mut period = tokio::time::interval(HEALTH_PERIOD);
    let mut told = None;
    loop {
        // bound: one turn each HEALTH_PERIOD, dropped with the server
        let is_ready = front.engine.is_ready();
        if told != Some(is_ready) {
            let status = if is_ready {
                ServingStatus::Serving
            } else {
                ServingStatus::NotServing
            };
            reporter.set_service_status("", status).await;
            reporter
                .set_service_status(<Service as tonic::server::NamedService>::NAME, status)
                .await;
            told = Some(is_ready);
        }
        period.tick().await;
    }
}

/// The calls.
struct Calls {
    front: Arc<Front>,
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Self {
        let retry_after = refused.retry_after;
        let mut status = Self::new(refused.cause.code(), refused.message);
        if let Some(after) = retry_after {
            // The standard name of "try again after this long" in gRPC, milliseconds.
            let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
            status
                .metadata_mut()
                .insert("grpc-retry-pushback-ms", MetadataValue::from(millis));
        }
        status
    }
}

#[tonic::async_trait]
impl GrpcInferenceService for Calls {
    async fn server_live(
        &self,
        _: Request<ServerLiveRequest>,
    ) -> Result<Response<ServerLiveResponse>, Status> {
        Ok(Response::new(ServerLiveResponse { live: true }))
    }

    async fn server_ready(
        &self,
        _: Request<ServerReadyRequest>,
    ) -> Result<Response<ServerReadyResponse>, Status> {
        Ok(Response::new(ServerReadyResponse {
            ready: self.front.engine.is_ready(),
        }))
    }

    async fn model_ready(
        &self,
        request: Request<ModelReadyRequest>,
    ) -> Result<Response<ModelReadyResponse>, Status> {
        let ModelReadyRequest { name, version } = request.get_ref();
        let is_loaded = match ask::find(&self.front.engine, name, version) {
            Ok(_) => true,
            Err(refused) if refused.cause == Cause::Unavailable => false,
            Err(refused) => return Err(refused.into()),
        };
        Ok(Response::new(ModelReadyResponse {
            ready: is_loaded && self.front.engine.is_ready(),
        }))
    }

    async fn server_metadata(
        &self,
        _: Request<ServerMetadataRequest>,
    ) -> Result<Response<ServerMetadataResponse>, Status> {
        let metadata::Server {
            name,
            version,
            extensions,
        } = metadata::SERVER;
        Ok(Response::new(ServerMetadataResponse {
            name: name.to_owned(),
            version: version.to_owned(),
            extensions: extensions.map(str::to_owned).to_vec(),
        }))
    }

    async fn model_metadata(
        &self,
        request: Request<ModelMetadataRequest>,
    ) -> Result<Response<ModelMetadataResponse>, Status> {
        let ModelMetadataRequest { name, version } = request.get_ref();
        let model = ask::find(&self.front.engine, name, version)?;
        let metadata::Model {
            name,
            versions,
            platform,
            inputs,
            outputs,
        } = metadata::describe(model.info());
        Ok(Response::new(ModelMetadataResponse {
            name: name.to_owned(),
            versions: versions.map(str::to_owned).to_vec(),
            platform: platform.to_owned(),
            inputs: inputs.into_iter().map(tensor).collect(),
            outputs: outputs.into_iter().map(tensor).collect(),
        }))
    }

    async fn model_infer(
        &self,
        request: Request<ModelInferRequest>,
    ) -> Result<Response<ModelInferResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let (reply, timing) = self.infer(&metadata.into_headers(), request).await?;
        let mut reply = Response::new(reply);
        // infallible: digits, letters and punctuation
        if let Ok(timing) = server_timing(timing).parse() {
            reply.metadata_mut().insert(SERVER_TIMING, timing);
        }
        Ok(reply)
    }
}

fn tensor(
    Tensor {
        name,
        datatype,
        shape,
    }: Tensor,
) -> TensorMetadata {
    TensorMetadata {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape,
    }
}
