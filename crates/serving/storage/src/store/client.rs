//! Sends the requests of `object_store` with the HTTP client of this crate.

use std::future::Future;
use std::io::Read;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use ureq::http::Request;
use ureq::{Agent, BodyReader};

use super::explain::RequestRecorder;
use super::limits::{
    CREDENTIALS_CONNECT_TIMEOUT, CREDENTIALS_TIMEOUT, LISTING_BYTES_MAX, RESPONSE_BYTES_MAX,
};
use crate::error::StorageErrorKind;
use crate::limits::{CHUNK_BYTES, TRANSFER_MAX};
use crate::web::{explain, seconds};

/// Marks requests for objects and listings; requests without it are for credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Object,
    Listing,
}

/// Sends requests until `deadline` and records their results in `recorder`.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    pub(super) agent: Agent,
    pub(super) recorder: Arc<RequestRecorder>,
    pub(super) deadline: Instant,
}

/// Error returned to `object_store`; the cause is in the recorder.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ReportedError(String);

impl HttpConnector for Connector {
    /// Ignores the options, which are for another client: bounds and roots are those of this crate.
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

impl HttpService for Connector {
    fn call<'me, 'call>(
        &'me self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'call>>
    where
        'me: 'call,
        Self: 'call,
    {
        // Blocks, because no other task runs on this thread.
        Box::pin(std::future::ready(self.send(request)))
    }
}

impl Connector {
    fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let request_kind = request.extensions().get::<RequestKind>().copied();
        let is_object = request_kind.is_some();
        let host = request.uri().host().unwrap_or_default().to_owned();
        self.recorder.begin_request(is_object, &host);
        let remaining_time = self.deadline.saturating_duration_since(Instant::now());
        if remaining_time.is_zero() {
            let problem = StorageErrorKind::Slow(seconds("the whole file", TRANSFER_MAX));
            return Err(self.record_failure(problem, HttpErrorKind::Unknown));
        }
        let (parts, body) = request.into_parts();
        let body = body.as_bytes().cloned().unwrap_or_default();
        let sent = match body.is_empty() {
            true => self.run(Request::from_parts(parts, ()), is_object, remaining_time),
            false => self.run(
                Request::from_parts(parts, body.as_ref()),
                is_object,
                remaining_time,
            ),
        };
        let response = sent.map_err(|error| {
            // A timeout is not retried here but reported; the caller retries later.
            let kind = match error {
                ureq::Error::Timeout(_) => HttpErrorKind::Unknown,
                ureq::Error::Io(_) | ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
                    HttpErrorKind::Connect
                }
                _ => HttpErrorKind::Unknown,
            };
            self.record_failure(explain(error), kind)
        })?;
        let (parts, body) = response.into_parts();
        let mut body = body.into_reader();
        if request_kind == Some(RequestKind::Object) && parts.status.is_success() {
            self.recorder.record_version(&parts.headers);
            let recorder = Arc::clone(&self.recorder);
            let body = Mutex::new(body);
            let body = HttpResponseBody::new(ObjectChunks { body, recorder });
            return Ok(HttpResponse::from_parts(parts, body));
        }
        let mut content = Vec::new();
        let mut bounded = (&mut body).take(match request_kind {
            Some(RequestKind::Listing) => LISTING_BYTES_MAX,
            _ => RESPONSE_BYTES_MAX,
        });
        if let Err(error) = bounded.read_to_end(&mut content) {
            return Err(self.record_failure(explain(error.into()), HttpErrorKind::Interrupted));
        }
        if !parts.status.is_success() {
            self.recorder.record_status(parts.status.as_u16(), &content);
        }
        Ok(HttpResponse::from_parts(parts, content.into()))
    }

    /// Sends a request without following redirects, because a signed request is valid for one host
    /// only.
    fn run<B: ureq::AsSendBody>(
        &self,
        request: Request<B>,
        is_object: bool,
        remaining_time: Duration,
    ) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
        let config = self.agent.configure_request(request);
        let mut config = config
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(remaining_time));
        if !is_object {
            config = config
                .timeout_connect(Some(CREDENTIALS_CONNECT_TIMEOUT))
                .timeout_global(Some(remaining_time.min(CREDENTIALS_TIMEOUT)));
        }
        self.agent.run(config.build())
    }

    fn record_failure(&self, problem: StorageErrorKind, kind: HttpErrorKind) -> HttpError {
        let reported = ReportedError(problem.to_string());
        self.recorder.record_failure(problem);
        HttpError::new(kind, reported)
    }
}

/// The body of an object, in chunks.
struct ObjectChunks {
    /// Never contended; the mutex is needed because the body must be `Sync`.
    body: Mutex<BodyReader<'static>>,
    recorder: Arc<RequestRecorder>,
}

impl Body for ObjectChunks {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        Poll::Ready(match body.read(&mut chunk) {
            Ok(0) => None,
            Ok(count) => {
                chunk.truncate(count);
                Some(Ok(Frame::data(chunk.into())))
            }
            Err(error) => {
                let problem = explain(error.into());
                let reported = ReportedError(problem.to_string());
                self.recorder.record_failure(problem);
                Some(Err(HttpError::new(HttpErrorKind::Interrupted, reported)))
            }
        })
    }
}
