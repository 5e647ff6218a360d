//! HTTP: the calls of the protocol.

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzed;
mod infer;
pub(super) mod reply;
mod request;
mod route;

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, HeaderValue};
use hyper::{HeaderMap, Request, StatusCode};
use serde::Serialize;

use super::body::{self, Arriving};
use super::metadata;
use super::refused::Refused;
use super::{Front, ask, state, triton};
use albacore_connections::{ActiveRequest, ConnState};
use albacore_program::MetricsFormat;
use reply::HttpReply;
use route::{Named, Route};

pub(super) struct Http {
    pub(super) front: Arc<Front>,
    pub(super) arriving: Arriving,
}

impl Http {
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
        let answered = match route {
            Ok(Route::Index) => self.index(&head.headers, (body, call.conn())).await,
            Ok(route) => {
                body::discard(body);
                self.inform(&route, &head.headers)
            }
            Err(no_route) => {
                body::discard(body);
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

    /// The index of the repository.
    async fn index(
        &self,
        headers: &HeaderMap,
        (body, conn): (Incoming, &ConnState),
    ) -> Result<HttpReply, Refused> {
        let bytes = body::read(body, &self.arriving, conn).await?;
        let only_ready = triton::only_ready(&body::unpack(headers, bytes, conn)?)?;
        let models = triton::index(&self.front.engine, &self.front.board.read(), only_ready);
        Ok(reply::json(StatusCode::OK, &triton::index_json(&models)))
    }

    /// Every call but infer and the index.
    fn inform(&self, route: &Route<'_>, headers: &HeaderMap) -> Result<HttpReply, Refused> {
        let engine = &self.front.engine;
        let reply = match route {
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
                reply::json(
                    StatusCode::OK,
                    &metadata::describe(model.info(), self.front.outputs(name)),
                )
            }
            Route::Config(Named { name, version }) => {
                let model = ask::find(engine, name, version)?;
                let config = self.front.config(model.info());
                reply::json(StatusCode::OK, &triton::config_json(&config))
            }
            Route::Stats(Named { name, version }) => {
                let statistics = &self.front.metrics.statistics;
                let models = triton::statistics(engine, statistics, (name, version))?;
                reply::json(StatusCode::OK, &triton::statistics_json(&models))
            }
            Route::LoadOrUnload => return Err(triton::not_by_call()),
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
                let lines = headers.get_all(ACCEPT).iter();
                let format = MetricsFormat::accepted(lines.filter_map(|line| line.to_str().ok()));
                let text = format.page(self.front.metrics.print());
                let media_type = HeaderValue::from_static(format.media_type());
                reply::with_type(StatusCode::OK, media_type, text.into_bytes())
            }
            Route::State => {
                let state =
                    state::describe(engine, self.front.board.read(), self.front.desk.seen());
                reply::json(StatusCode::OK, &state)
            }
            Route::Infer(_) | Route::Index => {
                reply::refused(&Refused::invalid("this call needs a body"))
            }
        };
        Ok(if route.is_momentary() {
            uncached(reply)
        } else {
            reply
        })
    }
}

/// A reply that holds for the moment only.
fn uncached(mut reply: HttpReply) -> HttpReply {
    let headers = reply.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
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
