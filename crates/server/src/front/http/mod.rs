//! HTTP: the calls of the protocol.

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzed;
mod infer;
pub(super) mod reply;
mod request;
mod route;

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue};
use hyper::{Request, StatusCode};
use serde::Serialize;

use super::body::{self, Arriving};
use super::metadata;
use super::metrics::MEDIA_TYPE;
use super::refused::Refused;
use super::{Front, ask, state};
use albacore_connections::ActiveRequest;
use reply::HttpReply;
use route::{Named, Route};

/// What answers.
pub(super) struct Http {
    pub(super) front: Arc<Front>,
    pub(super) arriving: Arriving,
}

impl Http {
    /// Answers one request.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        call: &ActiveRequest,
    ) -> HttpReply {
        let (head, body) = request.into_parts();
        let route = match route::find(&head.method, head.uri.path()) {
            Ok(Route::Infer(named)) => {
                return self.infer(&head.headers, &named, (body, call.conn())).await;
            }
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
                let state =
                    state::describe(engine, self.front.board.read(), self.front.desk.seen());
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
