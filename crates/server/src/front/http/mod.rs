//! HTTP/1.1: connections, and the calls of the protocol.

mod body;
mod early;
mod infer;
mod reply;
mod request;
mod route;

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::limits::{ACCEPT_PAUSE, CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_WAIT_MAX};
use super::metadata;
use super::metrics::MEDIA_TYPE;
use super::refused::Refused;
use super::{Front, ask, state};
use body::Arriving;
use early::Early;
use reply::HttpReply;
use route::{Named, Route};

/// What HTTP connections share.
struct Http {
    front: Arc<Front>,
    arriving: Arriving,
}

/// Accepts connections until `stopped` says so; returns when the last one is closed.
pub(super) async fn serve(
    front: Arc<Front>,
    listener: TcpListener,
    mut stopped: watch::Receiver<bool>,
) {
    let http = Arc::new(Http {
        front,
        arriving: Arriving::default(),
    });
    let mut connections = JoinSet::new();
    loop {
        // bound: ends when `stopped` says so; CONNECTIONS_MAX tasks at most
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = told(&mut stopped) => break,
        };
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) if connections.len() >= CONNECTIONS_MAX => turn_away(&stream),
            Ok((stream, _)) => {
                connections.spawn(converse(Arc::clone(&http), stream, stopped.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Resolves when the server is told to stop.
async fn told(stopped: &mut watch::Receiver<bool>) {
    // An error: the sender is gone, which means the same.
    let _ = stopped.wait_for(|&stopped| stopped).await;
}

/// Tells a connection too many why it is closed, as far as its socket buffer takes it.
fn turn_away(stream: &TcpStream) {
    let reply = early::reply("503 Service Unavailable", "too many connections are open");
    let _ = stream.try_write(&reply);
}

/// One connection, from its first request to its last.
async fn converse(http: Arc<Http>, stream: TcpStream, mut stopped: watch::Receiver<bool>) {
    if stream.set_nodelay(true).is_err() {
        return; // already closed
    }
    let service = service_fn(|request| {
        let http = Arc::clone(&http);
        async move { Ok::<_, Infallible>(http.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .serve_connection(Early::new(TokioIo::new(stream)), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

impl Http {
    async fn answer(&self, request: Request<Incoming>) -> HttpReply {
        let (head, body) = request.into_parts();
        let route = match route::find(&head.method, head.uri.path()) {
            Ok(Route::Infer(named)) => return self.infer(&head.headers, &named, body).await,
            other => other,
        };
        body::discard(body);
        let answered = match route {
            Ok(route) => self.inform(&route),
            Err(no_route) => {
                let mut reply = reply::refused(&no_route.refused);
                if !no_route.allow.is_empty() {
                    reply
                        .headers_mut()
                        .insert(ALLOW, HeaderValue::from_static(no_route.allow));
                }
                return reply;
            }
        };
        answered.unwrap_or_else(|refused| reply::refused(&refused))
    }

    /// Every call but infer.
    fn inform(&self, route: &Route<'_>) -> Result<HttpReply, Refused> {
        let engine = &self.front.engine;
        Ok(match route {
            Route::Server => reply::json(StatusCode::OK, &metadata::SERVER),
            Route::Live => reply::json(StatusCode::OK, &Live { live: true }),
            Route::Ready if engine.is_ready() => reply::json(
                StatusCode::OK,
                &Ready {
                    live: true,
                    ready: true,
                },
            ),
            Route::Ready => not_ready(),
            Route::Model(Named { name, version }) => {
                let model = ask::find(engine, name, version)?;
                reply::json(StatusCode::OK, &metadata::describe(model.info()))
            }
            Route::ModelReady(Named { name, version }) => {
                let model = ask::find(engine, name, version)?;
                if engine.is_ready() {
                    reply::json(
                        StatusCode::OK,
                        &ModelReady {
                            name: &model.info().name,
                            ready: true,
                        },
                    )
                } else {
                    not_ready()
                }
            }
            Route::Metrics => {
                let text = self.front.metrics.print().into_bytes();
                reply::with_type(StatusCode::OK, HeaderValue::from_static(MEDIA_TYPE), text)
            }
            Route::State => {
                let state = state::describe(
                    &engine.stats(),
                    self.front.board.read(),
                    self.front.desk.seen(),
                );
                reply::json(StatusCode::OK, &state)
            }
            Route::Infer(_) => reply::refused(&Refused::invalid("infer needs a body")),
        })
    }
}

#[derive(Serialize)]
struct Live {
    live: bool,
}

#[derive(Serialize)]
struct Ready {
    live: bool,
    ready: bool,
}

#[derive(Serialize)]
struct ModelReady<'a> {
    name: &'a str,
    ready: bool,
}

#[derive(Serialize)]
struct NotReady {
    error: &'static str,
    ready: bool,
}

fn not_ready() -> HttpReply {
    let body = NotReady {
        error: "the server is not ready: models are loaded, or workers start or stop",
        ready: false,
    };
    reply::json(StatusCode::SERVICE_UNAVAILABLE, &body)
}
