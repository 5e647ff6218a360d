//! Sends each request to the gRPC or the HTTP service, and counts its reply.

use std::sync::Arc;
use std::time::Duration;

use albacore_connections::{ActiveRequest, Handler, Limit, check_head};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, Version};

use super::body;
use super::grpc::{Grpc, unary};
use super::http::{Http, reply};
use super::outgoing::Outgoing;
use super::refused::{Cause, Refused};

/// The services of both ports.
pub(super) struct Services {
    pub(super) http: Http,
    pub(super) grpc: Grpc,
}

impl Handler for Services {
    type Body = Outgoing;

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        active: ActiveRequest,
    ) -> Response<Outgoing> {
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
            body::discard(request.into_body());
            reply::refused(&error.into())
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
        match body.counted(active) {
            Ok(body) => Response::from_parts(head, body),
            Err(mut active) => {
                let mut refused = Refused::new(
                    Cause::Overloaded,
                    "too many large replies wait to be read: send the request again later",
                );
                refused.retry_after = Some(Duration::from_secs(1));
                active.answered();
                if is_grpc {
                    unary::refused(refused)
                } else {
                    reply::refused(&refused)
                }
            }
        }
    }
}
