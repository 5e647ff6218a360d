//! Serves only `/livez`, `/readyz` and `/metrics` over HTTP/1.1; none of them exposes secrets.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::exposition::MetricsFormat;
use crate::limits::{ACCEPT_PAUSE, CONNECTION_TIME_MAX, CONNECTIONS_MAX, HEAD_TIME_MAX};

const TEXT: &str = "text/plain; charset=utf-8";

/// Content of the endpoints. Any response from `/livez` means that the program is alive.
pub trait MonitoringEndpoints: Send + Sync + 'static {
    /// True if the program is ready, and one line for each condition.
    fn readiness(&self) -> (bool, String);

    /// The metrics of the program as OpenMetrics text; process metrics are appended.
    ///
    /// # Errors
    /// A metric cannot be formatted.
    fn metrics(&self) -> Result<String, fmt::Error>;
}

/// Serves `/livez` (200), `/readyz` (200 or 503, with the lines of
/// [`MonitoringEndpoints::readiness`]) and `/metrics` until the task is dropped.
pub async fn serve_monitoring<P: MonitoringEndpoints>(listener: TcpListener, endpoints: Arc<P>) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // bound: until the program exits; at most CONNECTIONS_MAX connections at a time.
    while let Ok(permit) = Arc::clone(&free).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(serve_connection(stream, Arc::clone(&endpoints), permit));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection<P: MonitoringEndpoints>(
    stream: TcpStream,
    endpoints: Arc<P>,
    _permit: OwnedSemaphorePermit,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let accepted = request.headers().get_all(ACCEPT).iter();
        let accepted = accepted.filter_map(|value| value.to_str().ok());
        let format = MetricsFormat::accepted(accepted);
        let answer = answer(&*endpoints, request.method(), request.uri().path(), format);
        async move { Ok::<_, Infallible>(answer) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // An error of a connection affects only its client.
    let _ = tokio::time::timeout(CONNECTION_TIME_MAX, serving).await;
}

fn answer(
    endpoints: &impl MonitoringEndpoints,
    method: &Method,
    path: &str,
    format: MetricsFormat,
) -> Response<Full<Bytes>> {
    if *method != Method::GET && *method != Method::HEAD {
        let text = "only GET and HEAD are allowed\n".to_owned();
        return reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
    }
    match path {
        "/livez" => reply(StatusCode::OK, TEXT, "ok\n".to_owned()),
        "/readyz" => {
            let (is_ready, text) = endpoints.readiness();
            let status = match is_ready {
                true => StatusCode::OK,
                false => StatusCode::SERVICE_UNAVAILABLE,
            };
            reply(status, TEXT, text)
        }
        "/metrics" => match endpoints.metrics() {
            Ok(text) => reply(StatusCode::OK, format.media_type(), format.page(text)),
            Err(error) => {
                let text = format!("cannot format the metrics: {error}\n");
                reply(StatusCode::INTERNAL_SERVER_ERROR, TEXT, text)
            }
        },
        _ => {
            let text = "not found: the paths are /livez, /readyz and /metrics\n".to_owned();
            reply(StatusCode::NOT_FOUND, TEXT, text)
        }
    }
}

fn reply(status: StatusCode, media_type: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::new(Bytes::from(text)));
    *reply.status_mut() = status;
    let media_type = HeaderValue::from_static(media_type);
    reply.headers_mut().insert(CONTENT_TYPE, media_type);
    // Responses must not be cached.
    let uncached = HeaderValue::from_static("no-store");
    reply.headers_mut().insert(CACHE_CONTROL, uncached);
    reply
}
