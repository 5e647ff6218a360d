//! The HTTP service: calls of the protocols over HTTP.

mod bounded_list;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz_targets;
mod infer;
mod nested;
pub(super) mod reply;
mod request;
mod route;
mod scoring;

use std::sync::Arc;

use albacore_connections::{ActiveRequest, ConnState};
use albacore_program::MetricsFormat;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, HeaderValue};
use hyper::{HeaderMap, Request, StatusCode};
use serde_json::json;

use super::request_body::{self, BodyBudget};
use super::request_error::RequestError;
use super::{FrontContext, state, triton, validate};
use albacore_extensions::{RepositoryCall, UnsupportedCall, json, messages, metadata, repository};
use infer::{InferForm, InferTarget};
use reply::HttpReply;
use route::{ModelPath, Route};

pub(super) struct HttpService {
    pub(super) front: Arc<FrontContext>,
    pub(super) body_budget: BodyBudget,
}

impl HttpService {
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        active: &ActiveRequest,
    ) -> HttpReply {
        let (head, body) = request.into_parts();
        let (headers, conn) = (&head.headers, active.conn());
        let result = match route::parse(&head.method, head.uri.path(), &self.front.platform_routes)
        {
            Ok(Route::Infer(path)) => {
                let target = InferTarget::new(path, InferForm::OpenInference);
                return self.infer(headers, &target, body, conn).await;
            }
            Ok(Route::Predict(path)) => {
                let target = InferTarget::new(path, InferForm::Predictions);
                return self.infer(headers, &target, body, conn).await;
            }
            Ok(Route::Explain(path)) => {
                let target = InferTarget::new(path, InferForm::Explanations);
                return self.infer(headers, &target, body, conn).await;
            }
            Ok(Route::Invoke(path)) => {
                let target = InferTarget::new(path, InferForm::Scoring);
                return self.infer(headers, &target, body, conn).await;
            }
            Ok(Route::Invocations) => {
                let target = InferTarget::new(self.only_model(), InferForm::Scoring);
                return self.infer(headers, &target, body, conn).await;
            }
            Ok(Route::Register(name)) => {
                self.register(name.into_owned(), headers, body, conn).await
            }
            Ok(Route::Repository(name, call)) => {
                self.control_model(call, &name, headers, body, conn).await
            }
            Ok(Route::Index) => self.index(headers, body, conn).await,
            Ok(route) => {
                request_body::discard(body);
                self.answer_without_body(&route, headers)
            }
            Err(no_route) => {
                request_body::discard(body);
                let mut reply = reply::error(&no_route.error);
                if !no_route.allow.is_empty() {
                    reply
                        .headers_mut()
                        .insert(ALLOW, HeaderValue::from_static(no_route.allow));
                }
                return reply;
            }
        };
        result.unwrap_or_else(|error| reply::error(&error))
    }

    /// Path of the only model; the name is empty if there are several models.
    fn only_model(&self) -> ModelPath<'static> {
        ModelPath {
            name: self
                .front
                .engine
                .single_model_name()
                .unwrap_or_default()
                .into(),
            version: "".into(),
        }
    }

    /// Returns the index of the model repository.
    async fn index(
        &self,
        headers: &HeaderMap,
        body: Incoming,
        conn: &ConnState,
    ) -> Result<HttpReply, RequestError> {
        let bytes = request_body::read(body, &self.body_budget, conn).await?;
        let bytes = request_body::decompress(headers, bytes, conn)?;
        let only_ready = repository::only_ready(&bytes)?;
        let models = triton::index(
            &self.front.engine,
            &self.front.status.snapshot(),
            only_ready,
        );
        Ok(reply::json(StatusCode::OK, &json::index_json(&models)))
    }

    /// Loads or unloads a model.
    async fn control_model(
        &self,
        call: RepositoryCall,
        name: &str,
        headers: &HeaderMap,
        body: Incoming,
        conn: &ConnState,
    ) -> Result<HttpReply, RequestError> {
        let bytes = request_body::read(body, &self.body_budget, conn).await?;
        // First: the error of a server without the extension takes precedence.
        self.front.model_control()?;
        call.check_json(&request_body::decompress(headers, bytes, conn)?)?;
        self.front.control_model(name, call).await?;
        Ok(reply::json(StatusCode::OK, &json!({})))
    }

    /// Registers a system shared memory region.
    async fn register(
        &self,
        name: String,
        headers: &HeaderMap,
        body: Incoming,
        conn: &ConnState,
    ) -> Result<HttpReply, RequestError> {
        let bytes = request_body::read(body, &self.body_budget, conn).await?;
        let bytes = request_body::decompress(headers, bytes, conn)?;
        let regions = &self.front.regions;
        // First: the error of a server without the extension takes precedence.
        regions.status("")?;
        regions.register(messages::region_from_json(name, &bytes)?)?;
        Ok(reply::json(StatusCode::OK, &json!({})))
    }

    fn region_status(&self, name: &str) -> Result<HttpReply, RequestError> {
        let regions = self.front.regions.status(name)?;
        Ok(reply::json(
            StatusCode::OK,
            &messages::regions_json(&regions),
        ))
    }

    fn unregister(&self, name: &str) -> Result<HttpReply, RequestError> {
        self.front.regions.unregister(name)?;
        Ok(reply::json(StatusCode::OK, &json!({})))
    }

    /// Returns the metrics in a format accepted by the client.
    fn metrics(&self, headers: &HeaderMap) -> HttpReply {
        let lines = headers.get_all(ACCEPT).iter();
        let format = MetricsFormat::accepted(lines.filter_map(|line| line.to_str().ok()));
        let text = format.page(self.front.metrics.print());
        let media_type = HeaderValue::from_static(format.media_type());
        reply::with_type(StatusCode::OK, media_type, text.into_bytes())
    }

    /// Serves every call without a body.
    fn answer_without_body(
        &self,
        route: &Route<'_>,
        headers: &HeaderMap,
    ) -> Result<HttpReply, RequestError> {
        let engine = &self.front.engine;
        let reply = match route {
            Route::Server => reply::json(
                StatusCode::OK,
                &metadata::server(self.front.regions.is_enabled()),
            ),
            Route::Live => reply::json(StatusCode::OK, &json!({"live": true})),
            Route::Alive => reply::json(StatusCode::OK, &json!({"status": "alive"})),
            Route::ModelNames => reply::json(StatusCode::OK, &json!({"models": engine.names()})),
            Route::Ready if engine.is_ready() => {
                reply::json(StatusCode::OK, &json!({"live": true, "ready": true}))
            }
            Route::Ready => not_ready(),
            Route::Ping => scoring::ping(engine.is_ready()),
            Route::Version => scoring::text(StatusCode::OK, metadata::SERVER_VERSION),
            Route::Model(ModelPath { name, version }) => {
                let model = validate::find_model(engine, self.front.event_loop, name, version)?;
                reply::json(
                    StatusCode::OK,
                    &metadata::describe(model.info(), self.front.outputs(name)),
                )
            }
            Route::Config(ModelPath { name, version }) => {
                let model = validate::find_model(engine, self.front.event_loop, name, version)?;
                let config = self.front.model_config(model.info());
                reply::json(StatusCode::OK, &json::config_json(&config))
            }
            Route::Stats(ModelPath { name, version }) => {
                let calls = &self.front.metrics.calls;
                let models = triton::statistics(engine, calls, (name, version))?;
                reply::json(StatusCode::OK, &json::statistics_json(&models))
            }
            Route::RegionStatus(name) => self.region_status(name)?,
            Route::Unregister(name) => self.unregister(name)?,
            Route::Unsupported(call @ UnsupportedCall::MultiModel) => {
                scoring::error(&triton::unsupported(*call))
            }
            Route::Unsupported(call) => return Err(triton::unsupported(*call)),
            Route::ModelReady(ModelPath { name, version })
            | Route::ModelStatus(ModelPath { name, version }) => {
                let model = validate::find_model(engine, self.front.event_loop, name, version)?;
                match engine.is_ready() {
                    true => {
                        let body = json!({"name": model.info().name, "ready": true});
                        reply::json(StatusCode::OK, &body)
                    }
                    false => not_ready(),
                }
            }
            Route::Metrics => self.metrics(headers),
            Route::State => {
                let status = self.front.status.snapshot();
                let state = state::describe(engine, status, &self.front.config);
                reply::json(StatusCode::OK, &state)
            }
            Route::Infer(_)
            | Route::Predict(_)
            | Route::Explain(_)
            | Route::Index
            | Route::Register(_)
            | Route::Repository(..)
            | Route::Invocations
            | Route::Invoke(_) => reply::error(&RequestError::invalid("this call needs a body")),
        };
        Ok(if route.is_volatile() {
            forbid_caching(reply)
        } else {
            reply
        })
    }
}

/// Forbids caching of the reply.
fn forbid_caching(mut reply: HttpReply) -> HttpReply {
    let headers = reply.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

fn not_ready() -> HttpReply {
    let error = "the server is not ready: models are being loaded, or workers are starting or \
                 stopping";
    let body = json!({"error": error, "ready": false});
    reply::json(StatusCode::SERVICE_UNAVAILABLE, &body)
}
