//! `ModelStreamInfer`: many requests in one call. They are computed concurrently and answered in
//! order, as Triton does for models with one response per request (not decoupled).
//!
//! The error of a request is sent as a reply, and the stream continues; only invalid framing ends
//! it. A task reads and computes the requests, so that results are taken from the engine even if
//! the client does not read its replies; the task ends when the body of the reply is dropped.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use albacore_connections::{ActiveRequest, ConnState};
use albacore_proto::inference::infer_parameter::ParameterChoice;
use albacore_proto::inference::{
    InferParameter, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse,
};
use bytes::{Bytes, BytesMut};
use futures_util::stream::{FuturesOrdered, StreamExt as _, poll_fn, unfold};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Response};
use tokio::sync::mpsc::{self, OwnedPermit, Sender};
use tokio::sync::watch;
use tonic::Status;

use super::super::FrontContext;
use super::super::limits::STREAM_REQUESTS_MAX;
use super::super::metrics::InferCall;
use super::super::reply_body::{ReplyBody, shutdown_trailers};
use super::super::request_body::{BodyBudget, RateGuard, count_error};
use super::super::request_error::{ErrorKind, RequestError};
use super::super::request_meta::GRPC_TIMEOUT_HEADER;
use super::infer::{InferSource, read_request};
use super::{GrpcService, unary};

/// Parameter with which clients of decoupled models (several responses per request) ask for a mark
/// on the last response, and the parameter with that mark.
const WANTS_FINAL: &str = "triton_enable_empty_final_response";
const IS_FINAL: &str = "triton_final_response";

/// Reserved capacity for one reply.
type ReplySlot = OwnedPermit<Frame<Bytes>>;

impl GrpcService {
    /// Serves the requests of a stream.
    pub(super) fn infer_stream(
        &self,
        mut headers: HeaderMap,
        body: Incoming,
        active: &ActiveRequest,
    ) -> Response<ReplyBody> {
        // This header limits the time of the whole stream, which the client enforces; a request has
        // a parameter for its own timeout.
        headers.remove(GRPC_TIMEOUT_HEADER);
        let (sender, mut replies) = mpsc::channel(STREAM_REQUESTS_MAX);
        let stream = InferStream {
            front: Arc::clone(&self.front),
            headers,
            conn: active.shared_conn(),
            running: watch::Sender::new(0),
        };
        let messages = Messages {
            body,
            unread: BytesMut::new(),
            budget: self.body_budget.clone(),
            conn: active.shared_conn(),
            running: stream.running.subscribe(),
            idle_max: self.front.stream_idle_max,
        };
        tokio::spawn(stream.run(messages, sender, self.streams_end.subscribe()));
        let replies = poll_fn(move |context| {
            let frame = replies.poll_recv(context);
            frame.map(|frame| frame.map(Ok::<_, Status>))
        });
        let body = tonic::body::Body::new(StreamBody::new(replies));
        unary::stream(ReplyBody::infer_stream(body))
    }
}

/// State shared by the requests of a stream.
struct InferStream {
    front: Arc<FrontContext>,
    headers: HeaderMap,
    conn: Arc<ConnState>,
    /// Number of running requests.
    running: watch::Sender<usize>,
}

impl InferStream {
    /// Serves requests until the client ends the stream or disconnects, or the server stops. On
    /// stop, requests that were already read are answered.
    async fn run(
        self,
        messages: Messages,
        replies: Sender<Frame<Bytes>>,
        mut server_ends: watch::Receiver<bool>,
    ) {
        let mut running = FuturesOrdered::new();
        let requests = unfold(
            (messages, replies.clone()),
            |(mut messages, replies)| async {
                // Backpressure: a request is read only when there is capacity for its reply.
                let slot = replies.clone().reserve_owned().await.ok()?;
                let message = messages.next().await.transpose()?;
                Some((message.map(|message| (slot, message)), (messages, replies)))
            },
        );
        let mut requests = pin!(requests);
        let mut trailers = None;
        // bound: one pass per request and reply, and one for the end
        while trailers.is_none() || !running.is_empty() {
            tokio::select! {
                biased;
                () = replies.closed() => {
                    if !running.is_empty() {
                        self.conn.record_abandoned_request();
                    }
                    return;
                }
                Some((slot, reply)) = running.next(), if !running.is_empty() => {
                    drop(ReplySlot::send(slot, reply));
                    self.running.send_replace(running.len());
                }
                request = requests.next(), if trailers.is_none() => match request {
                    Some(Ok((slot, message))) => {
                        running.push_back(self.answer(slot, message));
                        self.running.send_replace(running.len());
                    }
                    Some(Err(error)) => trailers = Some(unary::error_trailers(error)),
                    None => trailers = Some(unary::ok_trailers()),
                },
                _ = server_ends.wait_for(|&ends| ends), if trailers.is_none() => {
                    trailers = Some(shutdown_trailers());
                }
            }
        }
        if let Some(trailers) = trailers {
            // Fails only if the client has disconnected.
            let _ = replies.send(Frame::trailers(trailers)).await;
        }
    }

    /// Serves one request and counts it.
    async fn answer(&self, slot: ReplySlot, message: StreamMessage) -> (ReplySlot, Frame<Bytes>) {
        let source = InferSource {
            front: &self.front,
            headers: &self.headers,
            conn: &self.conn,
        };
        let mut call = InferCall::new(message.arrival);
        let (id, result) = match read_request(&self.headers, message.framed) {
            Ok(request) => {
                let (id, wants_final) = (request.id.clone(), wants_final(&request));
                let complete_at = message.complete_at;
                let response = source.compute(request, complete_at, &mut call).await;
                let response = response.map(|response| mark_final(response, wants_final));
                (id, response.and_then(|response| self.frame(response)))
            }
            Err(error) => (String::new(), Err(error)),
        };
        let error = result.as_ref().err().map(|error| error.kind);
        source.count(&call, error).await;
        let frame = result.unwrap_or_else(|error| {
            let frame = error_frame(id, &error);
            // infallible: only large replies are rejected
            self.conn.track(frame).unwrap_or_default()
        });
        (slot, Frame::data(frame))
    }

    /// Frames a result and tracks it until it is sent.
    fn frame(&self, response: ModelInferResponse) -> Result<Bytes, RequestError> {
        let framed = unary::frame(&ModelStreamInferResponse {
            error_message: String::new(),
            infer_response: Some(response),
        })?;
        self.conn.track(framed).ok_or_else(|| {
            RequestError::overloaded(
                "too many large replies wait to be read: send the request again later",
            )
        })
    }
}

/// Frames the reply to a failed request.
fn error_frame(id: String, error: &RequestError) -> Bytes {
    let message = ModelStreamInferResponse {
        error_message: error.message.clone().into_owned(),
        infer_response: Some(ModelInferResponse {
            id,
            ..Default::default()
        }),
    };
    // infallible: the message is one sentence
    unary::frame(&message).unwrap_or_default()
}

fn wants_final(request: &ModelInferRequest) -> bool {
    let parameter = request.parameters.get(WANTS_FINAL);
    parameter.and_then(|parameter| parameter.parameter_choice.as_ref())
        == Some(&ParameterChoice::BoolParam(true))
}

/// Marks the only reply to a request as the final one.
fn mark_final(mut response: ModelInferResponse, is_requested: bool) -> ModelInferResponse {
    if is_requested {
        let parameter = InferParameter {
            parameter_choice: Some(ParameterChoice::BoolParam(true)),
        };
        response.parameters.insert(IS_FINAL.to_owned(), parameter);
    }
    response
}

/// A message, including its frame header.
struct StreamMessage {
    framed: Bytes,
    /// Arrival of its first byte, or the time of the read if it was buffered behind another one.
    arrival: Instant,
    complete_at: Instant,
}

/// Reads the messages of a stream.
struct Messages {
    body: Incoming,
    /// Received bytes of the next messages.
    unread: BytesMut,
    budget: BodyBudget,
    conn: Arc<ConnState>,
    /// Number of running requests of the stream.
    running: watch::Receiver<usize>,
    /// Idle timeout of the stream.
    idle_max: Duration,
}

impl Messages {
    /// Reads the next message; `None` at the end of the stream.
    ///
    /// # Errors
    /// No message arrived for `idle_max` while no request was running; the frame is invalid; the
    /// message is too large, too slow or incomplete.
    async fn next(&mut self) -> Result<Option<StreamMessage>, RequestError> {
        // bound: each pass waits for the client, until the idle timeout
        while self.unread.is_empty() {
            let frame = tokio::select! {
                biased;
                frame = self.body.frame() => frame,
                () = wait_until_idle(self.idle_max, &mut self.running) => {
                    return Err(idle_timeout_error(self.idle_max));
                }
            };
            let Some(frame) = frame else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| {
                RequestError::invalid(format!("the stream was aborted: {error}"))
            })?;
            self.unread
                .extend_from_slice(&frame.into_data().unwrap_or_default());
        }
        let arrival = self.conn.arrival();
        let length = self.read_message().await;
        let length = length.inspect_err(|error| count_error(error, &self.conn))?;
        Ok(Some(StreamMessage {
            framed: self.unread.split_to(length).freeze(),
            arrival,
            complete_at: self.conn.arrival(),
        }))
    }

    /// Reads until the next message is complete; returns its length.
    async fn read_message(&mut self) -> Result<usize, RequestError> {
        let (mut share, mut reader) = (self.budget.share(), RateGuard::new());
        loop {
            // bound: BODY_BYTES_MAX bytes; `RateGuard` limits the time of each frame
            if let Some(length) = unary::first_message(&self.unread)? {
                return Ok(length);
            }
            let Some(frame) = reader.next_frame(&mut self.body).await? else {
                return Err(RequestError::invalid("the stream ends within a message"));
            };
            share.grow(frame.len())?;
            self.unread.extend_from_slice(&frame);
        }
    }
}

/// Waits until no request has been running for this time.
async fn wait_until_idle(time: Duration, running: &mut watch::Receiver<usize>) {
    // bound: one pass per request that begins or ends, while the stream exists
    while running.wait_for(|&count| count == 0).await.is_ok() {
        if tokio::time::timeout(time, running.changed()).await.is_err() {
            return;
        }
    }
}

fn idle_timeout_error(time: Duration) -> RequestError {
    RequestError::new(
        ErrorKind::Unavailable,
        format!("no request arrived for {time:?}: open another stream"),
    )
}
