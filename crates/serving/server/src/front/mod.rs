//! The front: speaks the Open Inference Protocol v2 over HTTP and gRPC and hands rows to the
//! engine.
//!
//! Crate `connections` accepts and bounds connections; `dispatch` sends their requests to `http` or
//! `grpc`. The bounds of requests are in `limits`. `http` and `grpc` know their wire, `body` and
//! `coding` what both have in common; `ask` checks what a request asks for, `numbers` and `raw`
//! write its rows straight into the engine's shared memory through `cell`; `terms` is what it says
//! about its own time; `refused` is every failure with both its codes.

mod ask;
mod body;
mod cell;
mod coding;
mod datatype;
mod dispatch;
mod feature_names;
#[cfg(any(test, fuzzing))]
pub mod fuzzed;
mod grpc;
mod http;
pub mod limits;
mod metadata;
mod metrics;
mod numbers;
mod outgoing;
mod raw;
mod refused;
#[cfg(any(test, fuzzing))]
mod sample;
mod state;
mod statistics;
mod terms;
mod triton;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::live::Board;
use crate::told::Desk;
use albacore_connections::LimitMetrics;
use albacore_engine::{Engine, KindSet, ModelHandle, ModelInfo, Reply, Timing};
use albacore_proto::inference::ModelConfig;
use body::Arriving;
use datatype::Datatype;
use dispatch::Services;
use grpc::Grpc;
use http::Http;
use metrics::Metrics;
use refused::Refused;

/// Why the front stopped before it was told to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrontError {
    /// The reflection service does not accept the descriptors of this build.
    #[error("the descriptors of the gRPC services cannot be served")]
    Descriptors(#[from] tonic_reflection::server::Error),
    /// The kernel does not say when requests arrive.
    #[error("requests cannot be timed")]
    Stamps(#[from] albacore_os::OsError),
}

/// What all connections share.
struct Front {
    engine: Arc<Engine>,
    board: Arc<Board>,
    desk: Arc<Desk>,
    metrics: Metrics,
}

impl Front {
    /// The outputs that model `name` advertises.
    fn outputs(&self, name: &str) -> KindSet {
        self.board.outputs(name)
    }

    /// The configuration of `model`.
    fn config(&self, model: &ModelInfo) -> ModelConfig {
        let instances = (self.engine.stats().workers, self.desk.seen().0);
        triton::config(model, self.outputs(&model.name), instances)
    }

    /// Takes room, lets `fill` write the rows, and queues them; the future resolves to the results.
    ///
    /// Nothing of the request is borrowed by the future: its body can be freed while it waits.
    fn submit(
        model: ModelHandle,
        (rows, datatype): (usize, Datatype),
        kinds: KindSet,
        fill: impl FnOnce(&mut [u8]) -> Result<(), Refused>,
    ) -> Result<impl Future<Output = Result<Reply, Refused>> + Send + 'static, Refused> {
        let mut reservation = model.reserve(rows, datatype.element(), kinds)?;
        fill(reservation.input_mut())?;
        let reply = reservation.submit();
        Ok(async move { reply.await.map_err(Refused::from) })
    }
}

/// The value of `Server-Timing`, which tells a client how long its request waited and ran, in
/// milliseconds.
fn server_timing(timing: Timing) -> String {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    format!(
        "queue;dur={:.3}, defer;dur={:.3}, run;dur={:.3}",
        ms(timing.queue),
        ms(timing.deferred),
        ms(timing.compute)
    )
}

/// The name of that header, over gRPC of that metadata.
const SERVER_TIMING: &str = "server-timing";

/// Serves until `shutdown` resolves, then stops accepting, answers what was accepted and returns.
///
/// How long that may take is the caller's to bound: dropping the future closes every connection at
/// once.
///
/// # Errors
/// [`FrontError`].
pub(crate) async fn serve(
    engine: Arc<Engine>,
    (board, desk): (Arc<Board>, Arc<Desk>),
    http: TcpListener,
    grpc: TcpListener,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), FrontError> {
    albacore_os::stamp_arrivals(&http)?;
    albacore_os::stamp_arrivals(&grpc)?;
    let limit_metrics = LimitMetrics::default();
    let metrics = Metrics::new(
        Arc::clone(&engine),
        Arc::clone(&desk),
        limit_metrics.clone(),
    );
    let front = Arc::new(Front {
        engine,
        board,
        desk,
        metrics,
    });
    let arriving = Arriving::default();
    let services = Arc::new(Services {
        grpc: Grpc::new(Arc::clone(&front), arriving.clone())?,
        http: Http { front, arriving },
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
        () = services.grpc.report_health() => {} // until the end: no more requests, it says
    }
    Ok(())
}
