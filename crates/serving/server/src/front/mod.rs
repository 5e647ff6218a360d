//! The front: serves the Open Inference Protocol v2 over HTTP and gRPC and passes rows to the
//! engine.
//!
//! Crate `connections` accepts and bounds connections; `dispatch` passes their requests to `http`
//! or `grpc`, which read in the same order: parse, validate, admit, submit, await, reply
//! (`http/infer.rs`, `grpc/infer.rs`). `request_body` and `content_coding` are shared by both;
//! `validate` checks what a request asks for; `json_values` and `binary_values` write its rows into
//! the engine's shared memory through `row_writer`; `request_meta` is its deadline and priority;
//! `request_error` maps every error to the codes of both protocols. Bounds are in `limits`.

mod binary_values;
mod collectors;
mod content_coding;
mod datatype;
mod dispatch;
mod feature_names;
#[cfg(any(test, fuzzing))]
pub mod fuzz_targets;
mod grpc;
mod http;
mod json_values;
pub mod limits;
mod metadata;
mod metrics;
mod reply_body;
mod request_body;
mod request_error;
mod request_meta;
mod row_writer;
#[cfg(any(test, fuzzing))]
mod sample_model;
mod state;
mod statistics;
mod triton;
mod validate;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use albacore_connections::LimitMetrics;
use albacore_engine::{Engine, KindSet, ModelInfo, Timing};
use albacore_proto::inference::ModelConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::effective_config::EffectiveConfig;
use crate::model_status::StatusStore;
use dispatch::Services;
use grpc::GrpcService;
use http::HttpService;
use metrics::Metrics;
use request_body::BodyBudget;
use request_error::ErrorKind;

/// The front cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrontError {
    /// The reflection service does not accept the descriptors of this build.
    #[error("the descriptors of the gRPC services cannot be served")]
    Descriptors(#[from] tonic_reflection::server::Error),
    /// The kernel does not stamp arrivals on the sockets.
    #[error("requests cannot be timed")]
    Stamps(#[from] albacore_os::OsError),
}

/// What the services of both protocols share.
struct Front {
    engine: Arc<Engine>,
    status: Arc<StatusStore>,
    config: Arc<EffectiveConfig>,
    metrics: Metrics,
}

impl Front {
    /// Waits before the reply to an infer call without a result, so that clients that repeat it at
    /// once leave the front time for others.
    async fn hold_error(&self, model: &str, kind: ErrorKind) {
        let is_refusal = matches!(
            kind,
            ErrorKind::Overloaded | ErrorKind::Unavailable | ErrorKind::Expired
        );
        let hold = self.engine.hold_error(model, is_refusal);
        if !hold.is_zero() {
            tokio::time::sleep(hold).await;
        }
    }

    /// The outputs that the metadata of model `name` advertises.
    fn outputs(&self, name: &str) -> KindSet {
        self.status.outputs(name)
    }

    /// The configuration of `model` for Triton's extension.
    fn model_config(&self, model: &ModelInfo) -> ModelConfig {
        let workers = self.engine.stats().workers;
        let (batching, _) = self.config.current();
        triton::config(model, self.outputs(&model.name), workers, batching)
    }
}

/// The value of `Server-Timing`: how long a request waited and ran, in milliseconds.
fn server_timing(timing: Timing) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    format!(
        "queue;dur={:.3}, defer;dur={:.3}, run;dur={:.3}",
        ms(timing.queue),
        ms(timing.deferred),
        ms(timing.compute)
    )
}

/// Whole microseconds.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Name of that header, and of the metadata over gRPC.
const SERVER_TIMING: &str = "server-timing";

/// Serves until `shutdown` resolves, then stops accepting, answers what was accepted and returns.
///
/// The caller bounds how long that may take: dropping the future closes every connection at once.
///
/// # Errors
/// [`FrontError`].
pub(crate) async fn serve(
    engine: Arc<Engine>,
    status: Arc<StatusStore>,
    config: Arc<EffectiveConfig>,
    http: TcpListener,
    grpc: TcpListener,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), FrontError> {
    albacore_os::stamp_arrivals(&http)?;
    albacore_os::stamp_arrivals(&grpc)?;
    let limit_metrics = LimitMetrics::default();
    let metrics = Metrics::new(
        Arc::clone(&engine),
        Arc::clone(&config),
        limit_metrics.clone(),
    );
    let front = Arc::new(Front {
        engine,
        status,
        config,
        metrics,
    });
    let body_budget = BodyBudget::default();
    let services = Arc::new(Services {
        grpc: GrpcService::new(Arc::clone(&front), body_budget.clone())?,
        http: HttpService { front, body_budget },
    });
    let (stop, stopped) = watch::channel(false);
    let port = |listener| {
        let services = Arc::clone(&services);
        albacore_connections::serve(listener, limit_metrics.clone(), stopped.clone(), services)
    };
    let serving = async { tokio::join!(port(http), port(grpc)) };
    let mut serving = pin!(serving);
    tokio::select! {
        _ = &mut serving => return Ok(()),
        () = services.grpc.report_health() => return Ok(()),
        () = shutdown => {}
    }
    stop.send_replace(true);
    tokio::select! {
        _ = serving => {}
        () = services.grpc.report_health() => {} // reports "not serving" until the last connection
    }
    Ok(())
}
