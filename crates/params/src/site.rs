//! `/livez`, `/readyz`, `/metrics`. Nothing else, and nothing secret.

use std::convert::Infallible;
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

use crate::counts::Counts;
use crate::known::Known;
use crate::limits::{
    ACCEPT_PAUSE, FRESH_FOR, SITE_CONNECTION_TIME_MAX, SITE_CONNECTIONS_MAX, SITE_HEAD_TIME_MAX,
};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// What is shown.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) known: Arc<Known>,
    pub(crate) counts: Counts,
}

/// Answers until the program ends.
pub(crate) async fn serve(listener: TcpListener, site: Arc<Site>) {
    let free = Arc::new(Semaphore::new(SITE_CONNECTIONS_MAX));
    // bound: at most SITE_CONNECTIONS_MAX connections at a time, until the program ends.
    while let Ok(permit) = Arc::clone(&free).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(talk(stream, Arc::clone(&site), permit));
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
        .header_read_timeout(SITE_HEAD_TIME_MAX)
        .serve_connection(TokioIo::new(stream), service);
    // Whatever ends a connection concerns only the other side.
    let _ = tokio::time::timeout(SITE_CONNECTION_TIME_MAX, talking).await;
}

impl Site {
    fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if *method != Method::GET && *method != Method::HEAD {
            let text = "only GET is answered here\n".to_owned();
            return reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
        }
        match path {
            "/livez" => reply(StatusCode::OK, TEXT, "ok\n".to_owned()),
            "/readyz" if self.known.is_fresh() => {
                reply(StatusCode::OK, TEXT, "[+] feed\n".to_owned())
            }
            "/readyz" => {
                let seconds = FRESH_FOR.as_secs();
                let text = format!(
                    "[-] feed: waits for a snapshot of the agent younger than {seconds} s\n"
                );
                reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
            }
            "/metrics" => match self.counts.text(&self.known) {
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
