//! The listener of a program: `/livez`, `/readyz`, `/metrics`. Nothing else, and nothing secret.

use std::convert::Infallible;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::{ACCEPT_PAUSE, CONNECTION_TIME_MAX, CONNECTIONS_MAX, HEAD_TIME_MAX};
use crate::{ClusterError, Gates, Metrics, Shutdown};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answers on `address` until the program stops; returns the address in use (a port that was 0 is known then). `[::]` means
/// every address, of IPv4 too; where the kernel has no IPv6, all of IPv4.
///
/// `/livez` says 200 as long as the program runs, `/readyz` 200 when every gate is passed and 503 before, with all gates
/// by name; `/metrics` is OpenMetrics.
///
/// # Errors
/// The address cannot be used.
pub async fn serve(
    address: SocketAddr,
    gates: &Gates,
    metrics: &Metrics,
    shutdown: &Shutdown,
) -> Result<SocketAddr, ClusterError> {
    let failed = |source| ClusterError::Listen { address, source };
    let listener = listen(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let site = Arc::new(Site {
        gates: gates.clone(),
        metrics: metrics.clone(),
    });
    shutdown.spawn("listener", accept(listener, site));
    Ok(bound)
}

async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listening = TcpListener::bind(address).await;
    let is_everywhere = address.ip() == Ipv6Addr::UNSPECIFIED;
    match listening {
        Err(error) if is_everywhere && has_no_ipv6(&error) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        other => other,
    }
}

/// Whether there are no sockets (`ipv6.disable=1`) or no addresses (`disable_ipv6`) of IPv6.
fn has_no_ipv6(error: &std::io::Error) -> bool {
    // EAFNOSUPPORT, EADDRNOTAVAIL: std has no kind for the first.
    matches!(error.raw_os_error(), Some(97 | 99))
}

struct Site {
    gates: Gates,
    metrics: Metrics,
}

async fn accept(listener: TcpListener, site: Arc<Site>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // bound: until the program stops; at most CONNECTIONS_MAX connections at a time.
    while let Ok(permit) = free.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(talk(stream, site.clone(), permit));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn talk(stream: TcpStream, site: Arc<Site>, _permit: OwnedSemaphorePermit) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = site.answer(request.method(), request.uri().path());
        async move { Ok::<_, Infallible>(answer) }
    });
    let talking = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // Whatever ends a connection concerns only the other side.
    let _ = tokio::time::timeout(CONNECTION_TIME_MAX, talking).await;
}

impl Site {
    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if *method != Method::GET && *method != Method::HEAD {
            let text = "only GET is answered here\n".to_owned();
            return reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
        }
        match path {
            "/livez" => reply(StatusCode::OK, TEXT, "ok\n".to_owned()),
            "/readyz" => {
                let status = match self.gates.is_ready() {
                    true => StatusCode::OK,
                    false => StatusCode::SERVICE_UNAVAILABLE,
                };
                reply(status, TEXT, self.gates.text())
            }
            "/metrics" => match self.metrics.text() {
                Ok(text) => reply(StatusCode::OK, OPEN_METRICS, text),
                Err(error) => {
                    let text = format!("metrics cannot be printed: {error}\n");
                    reply(StatusCode::INTERNAL_SERVER_ERROR, TEXT, text)
                }
            },
            _ => {
                let text = "there is /livez, /readyz and /metrics\n".to_owned();
                reply(StatusCode::NOT_FOUND, TEXT, text)
            }
        }
    }
}

fn reply(status: StatusCode, media_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(Bytes::from(text)));
    *reply.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    reply
}
