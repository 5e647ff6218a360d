//! The front: speaks the Open Inference Protocol v2 over HTTP/1.1 and gRPC and hands rows to the
//! engine.
//!
//! `http` and `grpc` know their wire; `ask` checks what a request asks for, `numbers` and `raw`
//! write its rows straight into the engine's shared memory through `cell`; `terms` is what it says
//! about its own time; `refused` is every failure with both its codes.

mod ask;
mod cell;
mod datatype;
mod grpc;
mod http;
mod limits;
mod metadata;
mod metrics;
mod numbers;
mod raw;
mod refused;
mod state;
mod terms;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::live::Board;
use crate::told::Desk;
use albacore_engine::{Engine, KindSet, ModelHandle, Reply, Timing};
use datatype::Datatype;
use metrics::Metrics;
use refused::Refused;

/// Why the front stopped before it was told to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrontError {
    /// The gRPC server gave up.
    #[error("the gRPC server stopped")]
    Grpc(#[from] tonic::transport::Error),
    /// The reflection service does not accept the descriptors of this build.
    #[error("the descriptors of the gRPC services cannot be served")]
    Descriptors(#[from] tonic_reflection::server::Error),
}

/// What all connections share.
struct Front {
    engine: Arc<Engine>,
    board: Arc<Board>,
    desk: Arc<Desk>,
    metrics: Metrics,
}

impl Front {
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
        "queue;dur={:.3}, run;dur={:.3}",
        ms(timing.queue),
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
/// [`FrontError`]; the other protocol is stopped then, too.
pub(crate) async fn serve(
    engine: Arc<Engine>,
    (board, desk): (Arc<Board>, Arc<Desk>),
    http: TcpListener,
    grpc: TcpListener,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), FrontError> {
    let metrics = Metrics::new(Arc::clone(&engine), Arc::clone(&desk));
    let front = Arc::new(Front {
        engine,
        board,
        desk,
        metrics,
    });
    let (stop, stopped) = watch::channel(false);
    let serving = async {
        let http = http::serve(Arc::clone(&front), http, stopped.clone());
        let grpc = grpc::serve(Arc::clone(&front), grpc, stopped.clone());
        let ((), served) = tokio::join!(http, async {
            let served = grpc.await;
            stop.send_replace(true); // an error here ends HTTP as well
            served
        });
        served
    };
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => return served,
        () = shutdown => {}
    }
    stop.send_replace(true);
    serving.await
}
