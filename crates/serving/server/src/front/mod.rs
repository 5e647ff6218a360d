//! The front: serves the inference protocols over HTTP and gRPC, and passes rows to the engine.
//!
//! Crate `connections` accepts and limits connections. `dispatch` passes requests to `http` or
//! `grpc`, which process an infer call in the same steps: parse, validate, admit, submit, await,
//! reply (`http/infer.rs`, `grpc/infer.rs`). Both use `request_body`, `content_coding`, `validate`
//! (checks of models, tensors and outputs), `request_meta` (deadline and priority) and
//! `request_error` (status codes of both protocols for each error). Crate `rows` writes rows into
//! the shared memory of the engine. Limits are in `limits`.

mod collectors;
mod content_coding;
mod dispatch;
#[cfg(any(test, fuzzing))]
pub mod fuzz_targets;
mod grpc;
mod http;
pub mod limits;
mod load_report;
mod metrics;
mod reply_body;
mod request_body;
mod request_error;
mod request_meta;
#[cfg(any(test, fuzzing))]
mod sample_model;
mod state;
mod triton;
mod validate;

use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use albacore_connections::{
    ConnectionCount, LimitMetrics, LoopAcceptor, ShutdownStage, create_acceptors,
};
use albacore_engine::{Engine, EventLoop, KindSet, LoopIndex, ModelHandle, ModelInfo};
use albacore_extensions::{SharedMemoryRegions, model_config};
use albacore_proto::inference::ModelConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use albacore_live_settings::effective_config::EffectiveConfig;
use albacore_live_settings::handover::Listeners;
use albacore_live_settings::model_control::ModelControl;
use albacore_live_settings::model_status::StatusStore;
use albacore_server_args::{LoadReportMode, PlatformRoutes};
use dispatch::Services;
use grpc::GrpcService;
use http::HttpService;
use load_report::LoadReporter;
use metrics::Metrics;
use request_body::BodyBudget;
use request_error::{ErrorKind, RequestError};

/// Error at startup of the front.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrontError {
    /// The reflection service rejected the descriptors of this build.
    #[error("the descriptors of the gRPC services cannot be served")]
    Descriptors(#[from] tonic_reflection::server::Error),
    /// The kernel does not support arrival timestamps on the sockets.
    #[error("arrival timestamps cannot be enabled on the sockets")]
    Stamps(#[from] albacore_os::OsError),
    #[error("a listening socket cannot be used")]
    Listener(#[from] std::io::Error),
    #[error("an event loop of the front failed")]
    EventLoop(#[source] tokio::task::JoinError),
}

/// State of one event loop that the services of both protocols share.
#[derive(Clone)]
struct FrontContext {
    engine: Arc<Engine>,
    event_loop: LoopIndex,
    status: Arc<StatusStore>,
    config: Arc<EffectiveConfig>,
    metrics: Arc<Metrics>,
    load_reports: Arc<LoadReporter>,
    platform_routes: Arc<PlatformRoutes>,
    regions: Arc<SharedMemoryRegions>,
    /// Idle timeout of infer streams.
    stream_idle_max: Duration,
    /// `None` if models are not loaded and unloaded by calls.
    model_control: Option<ModelControl>,
}

impl FrontContext {
    /// Looks up a model for an infer request; an empty version matches any.
    fn find_model(&self, name: &str, version: &str) -> Result<ModelHandle, RequestError> {
        validate::find_model(&self.engine, self.event_loop, name, version)
    }

    /// Delays the reply to an unsuccessful infer call, so that clients that retry immediately do
    /// not take the front's time from others.
    async fn delay_error(&self, model: &str, kind: ErrorKind) {
        let is_refusal = matches!(
            kind,
            ErrorKind::Overloaded | ErrorKind::Unavailable | ErrorKind::Expired
        );
        let delay = self.engine.error_reply_delay(model, is_refusal);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    /// The advertised outputs of model `name`.
    fn outputs(&self, name: &str) -> KindSet {
        self.status.outputs(name)
    }

    /// The model configuration in Triton's format.
    fn model_config(&self, model: &ModelInfo) -> ModelConfig {
        let workers = self.engine.stats().workers;
        let batching = self.config.batching_of(&model.name);
        model_config(model, self.outputs(&model.name), workers, batching)
    }
}

/// Converts to whole microseconds.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Setup of a front: its sockets by event loop, its begin and end signals, and its options.
pub(crate) struct FrontSetup {
    pub(crate) listeners: Vec<Listeners>,
    pub(crate) event_loops: Vec<EventLoop>,
    pub(crate) connections: ConnectionCount,
    pub(crate) may_accept: watch::Receiver<bool>,
    pub(crate) shutdown: watch::Receiver<ShutdownStage>,
    /// Whether replies announce the shutdown to Envoy.
    pub(crate) sends_envoy_health_header: bool,
    pub(crate) load_reports: LoadReportMode,
    pub(crate) platform_routes: PlatformRoutes,
    /// Limit of the system shared memory that clients may register, bytes; 0 disables it.
    pub(crate) shared_memory_bytes_max: u64,
    /// Idle timeout of infer streams.
    pub(crate) stream_idle_max: Duration,
    pub(crate) model_control: Option<ModelControl>,
}

/// Prepares the services, waits until `may_accept` is true, and serves until `shutdown` reaches a
/// closing stage; then stops accepting, answers accepted requests and returns.
///
/// The caller limits the time of the shutdown: dropping the future closes every connection
/// immediately.
///
/// # Errors
/// [`FrontError`].
pub(crate) async fn serve(
    engine: Arc<Engine>,
    status: Arc<StatusStore>,
    config: Arc<EffectiveConfig>,
    setup: FrontSetup,
) -> Result<(), FrontError> {
    let FrontSetup {
        listeners,
        event_loops,
        connections,
        may_accept,
        shutdown,
        sends_envoy_health_header,
        load_reports,
        platform_routes,
        shared_memory_bytes_max,
        stream_idle_max,
        model_control,
    } = setup;
    let limit_metrics = LimitMetrics::default();
    let load_reports = Arc::new(LoadReporter::new(load_reports));
    let metrics = Metrics::new(
        Arc::clone(&engine),
        Arc::clone(&config),
        Arc::clone(&status),
        limit_metrics.clone(),
        Arc::clone(&load_reports),
        event_loops.len(),
    );
    let front = FrontContext {
        engine,
        event_loop: LoopIndex::default(),
        status,
        config,
        metrics: Arc::new(metrics),
        load_reports,
        platform_routes: Arc::new(platform_routes),
        regions: Arc::new(SharedMemoryRegions::new(shared_memory_bytes_max)),
        stream_idle_max,
        model_control,
    };
    let body_budget = BodyBudget::default();
    let http = create_acceptors(listeners.len(), &limit_metrics, &connections);
    let grpc = create_acceptors(listeners.len(), &limit_metrics, &connections);
    // Dropping the set aborts the tasks on the event loops.
    let mut serving = JoinSet::new();
    let shares = listeners.into_iter().zip(http.into_iter().zip(grpc));
    for (index, ((listeners, shares), event_loop)) in shares.zip(event_loops).enumerate() {
        let front = Arc::new(FrontContext {
            event_loop: LoopIndex(index),
            ..front.clone()
        });
        let services = Arc::new(Services {
            grpc: GrpcService::new(Arc::clone(&front), body_budget.clone())?,
            http: HttpService {
                front,
                body_budget: body_budget.clone(),
            },
            sends_envoy_health_header,
        });
        let (may_accept, shutdown) = (may_accept.clone(), shutdown.clone());
        let running = serve_loop(services, listeners, shares, may_accept, shutdown);
        serving.spawn_on(running, &event_loop.runtime);
    }
    let ended = async {
        while let Some(ended) = serving.join_next().await {
            // bound: one pass per event loop
            ended.map_err(FrontError::EventLoop)??;
        }
        Ok(())
    };
    tokio::select! {
        ended = ended => ended,
        never = front.load_reports.update(&front.engine) => match never {},
    }
}

/// Serves the connections of one event loop, from when `may_accept` is true until `shutdown`
/// reaches a closing stage and all connections are closed.
async fn serve_loop(
    services: Arc<Services>,
    listeners: Listeners,
    (http, grpc): (LoopAcceptor, LoopAcceptor),
    mut may_accept: watch::Receiver<bool>,
    shutdown: watch::Receiver<ShutdownStage>,
) -> Result<(), FrontError> {
    if may_accept.wait_for(|&may_accept| may_accept).await.is_err() {
        return Ok(());
    }
    let port = |listener: StdListener, share: LoopAcceptor| {
        albacore_os::enable_receive_timestamps(&listener)?;
        let listener = TcpListener::from_std(listener)?;
        let (shutdown, services) = (shutdown.clone(), Arc::clone(&services));
        Ok::<_, FrontError>(albacore_connections::serve(
            listener, share, shutdown, services,
        ))
    };
    let (http, grpc) = (port(listeners.http, http)?, port(listeners.grpc, grpc)?);
    tokio::select! {
        _ = async { tokio::join!(http, grpc) } => {}
        // Reports "not serving" until the last connection is closed.
        () = services.grpc.report_health(shutdown.clone()) => {}
    }
    Ok(())
}
