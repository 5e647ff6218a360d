//! Dispatches each request to the gRPC or the HTTP service, and tracks the bytes of its reply.

use std::sync::Arc;

use albacore_connections::{ActiveRequest, Handler, Limit, check_head};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Request, Response, Version};

use super::grpc::{GrpcService, unary};
use super::http::{HttpService, reply};
use super::reply_body::ReplyBody;
use super::request_body;
use super::request_error::RequestError;

/// The services, which both ports provide.
pub(super) struct Services {
    pub(super) http: HttpService,
    pub(super) grpc: GrpcService,
    /// Whether replies contain [`ENVOY_HEALTH`] once shutdown is announced.
    pub(super) sends_envoy_health_header: bool,
}

/// Makes Envoy mark this server as unhealthy immediately, if it actively checks its health.
const ENVOY_HEALTH: HeaderName = HeaderName::from_static("x-envoy-immediate-health-check-fail");

impl Handler for Services {
    type Body = ReplyBody;

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        active: ActiveRequest,
    ) -> Response<ReplyBody> {
        let is_http1 = request.version() != Version::HTTP_2;
        let is_grpc = request.version() == Version::HTTP_2
            && request
                .headers()
                .get(CONTENT_TYPE)
                .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let checked = check_head(&request);
        let is_refused = checked.is_err();
        let reply = if let Err(error) = checked {
            active.conn().count(Limit::NotHttp);
            request_body::discard(request.into_body());
            reply::error(&error.into())
        } else if is_grpc {
            self.grpc.answer(request, &active).await
        } else {
            self.http.answer(request, &active).await
        };
        let (mut head, body) = reply.into_parts();
        if active.is_last() || is_refused && is_http1 {
            head.headers
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if self.sends_envoy_health_header && active.is_shutdown_announced() {
            head.headers
                .insert(ENVOY_HEALTH, HeaderValue::from_static("true"));
        }
        match body.track(active) {
            Ok(body) => Response::from_parts(head, body),
            Err(mut active) => {
                let error = RequestError::overloaded(
                    "too many large replies wait to be read: send the request again later",
                );
                active.set_answered();
                if is_grpc {
                    unary::error(error)
                } else {
                    reply::error(&error)
                }
            }
        }
    }
}
