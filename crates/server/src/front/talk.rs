//! One connection from its first bytes to its last: HTTP/1.1 or HTTP/2 by its opening words, on
//! either port; what speaks gRPC is answered as gRPC, everything else as HTTP.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::net::TcpStream;

use super::bounds::Bound;
use super::grpc::{Grpc, unary};
use super::http::{Http, reply};
use super::limits::{
    GOODBYE_TIME_MAX, HEAD_BYTES_MAX, KEEPALIVE_PERIOD, KEEPALIVE_WAIT, OPENING_LOOK_PERIOD,
    PARTING_TIME, READ_AHEAD_BYTES_MAX, STREAM_WINDOW_BYTES, STREAMS_MAX, UNSEEN_RESETS_MAX,
};
use super::outgoing::Outgoing;
use super::refused::{Cause, Refused};
use super::seat::{Call, Phase, Seat, Told};
use super::stream::Stream;
use super::wire::Wire;

/// The opening words of HTTP/2.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Who answers.
pub(super) struct Services {
    pub(super) http: Http,
    pub(super) grpc: Grpc,
}

/// What a connection speaks.
enum Opening {
    One,
    Two,
}

/// Serves one connection.
pub(super) async fn converse(services: Arc<Services>, stream: TcpStream, seat: Arc<Seat>) {
    if stream.set_nodelay(true).is_err() {
        return; // already closed
    }
    let Some((opening, is_stopping)) = heard(&stream, &seat).await else {
        return;
    };
    let stream = Stream::new(stream, Arc::clone(&seat));
    let wire = Wire::new(TokioIo::new(stream), Arc::clone(&seat));
    let own = Arc::clone(&seat);
    let service = service_fn(move |request| {
        let (services, call) = (Arc::clone(&services), own.begin());
        async move { Ok::<_, Infallible>(services.answer(request, call).await) }
    });
    match opening {
        Opening::One => {
            let connection = http1::Builder::new()
                .max_header_size(HEAD_BYTES_MAX as usize)
                .max_buf_size(READ_AHEAD_BYTES_MAX)
                .serve_connection(wire, service);
            attend(connection, &seat, (false, is_stopping)).await;
        }
        Opening::Two => {
            seat.speaks_two();
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(KEEPALIVE_PERIOD)
                .keep_alive_timeout(KEEPALIVE_WAIT)
                .max_header_list_size(HEAD_BYTES_MAX)
                .max_concurrent_streams(STREAMS_MAX)
                .max_pending_accept_reset_streams(UNSEEN_RESETS_MAX)
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(STREAM_WINDOW_BYTES)
                .max_send_buf_size(READ_AHEAD_BYTES_MAX)
                .serve_connection(wire, service);
            attend(connection, &seat, (true, is_stopping)).await;
        }
    }
}

/// Waits for the opening words, and whether the server stops meanwhile; `None` if they do not come.
async fn heard(stream: &TcpStream, seat: &Seat) -> Option<(Opening, bool)> {
    let mut opening = pin!(opening(stream));
    let told = tokio::select! {
        biased;
        opening = opening.as_mut() => return Some((opening?, false)),
        told = seat.listen() => told,
    };
    match told {
        Told::Leave(_, bound) | Told::Out(bound) => {
            seat.count(bound);
            None
        }
        // Who has just connected is about to ask.
        Told::Stop => {
            let opening = tokio::time::timeout(PARTING_TIME, opening).await;
            Some((opening.ok()??, true))
        }
    }
}

/// Reads the opening words without taking them; `None` if the connection ends before.
async fn opening(stream: &TcpStream) -> Option<Opening> {
    let mut seen = [0; PREFACE.len()];
    loop {
        // bound: the seat's FIRST_BYTES_TIME_MAX
        let length = stream.peek(&mut seen).await.ok()?;
        if length == 0 {
            return None;
        }
        if !PREFACE.starts_with(&seen[..length]) {
            return Some(Opening::One);
        }
        if length == PREFACE.len() {
            return Some(Opening::Two);
        }
        tokio::time::sleep(OPENING_LOOK_PERIOD).await;
    }
}

/// Runs a connection until it ends, or is told to.
async fn attend<C>(connection: C, seat: &Seat, (is_two, is_stopping): (bool, bool))
where
    C: GracefulConnection<Error = hyper::Error>,
{
    let mut connection = pin!(connection);
    let mut is_leaving = false;
    // What it was at when the server stopped, or PARTING_TIME ago.
    let mut parting = (is_stopping && !is_two).then(|| seat.seen());
    if is_stopping && is_two {
        connection.as_mut().graceful_shutdown();
        is_leaving = true;
    }
    loop {
        // bound: one turn each time something is told, or GOODBYE_TIME_MAX or PARTING_TIME is over
        let told = tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    note(&error, seat);
                }
                return;
            }
            told = seat.listen() => Some(told),
            () = tokio::time::sleep(GOODBYE_TIME_MAX), if is_leaving => None,
            () = tokio::time::sleep(PARTING_TIME), if parting.is_some() && !is_leaving => {
                let before = parting.replace(seat.seen());
                if !before.is_some_and(|before| seat.is_still(before)) || seat.is_serving() {
                    continue;
                }
                Some(Told::Stop)
            }
        };
        match told {
            Some(Told::Leave(seen, bound)) if seat.is_still(seen) => {
                seat.count(bound);
                if !is_two {
                    return;
                }
            }
            Some(Told::Leave(..)) => {
                seat.stays(); // it went on
                continue;
            }
            Some(Told::Out(bound)) => {
                seat.count(bound);
                return;
            }
            // Closed now, it would reset a request that is on its way.
            Some(Told::Stop) if !is_two && parting.is_none() => {
                parting = Some(seat.seen());
                continue;
            }
            Some(Told::Stop) => {}
            None if seat.is_serving() => continue,
            None => return,
        }
        is_leaving = true;
        connection.as_mut().graceful_shutdown();
    }
}

/// Counts why a connection ended early.
fn note(error: &hyper::Error, seat: &Seat) {
    tracing::debug!(?error, "a connection ended early");
    // hyper keeps the codes of HTTP/2 to itself, but prints them. This one stands for floods of
    // resets, continuations and small frames, which its parser has bounds for.
    let printed = format!("{error:?}");
    if error.is_timeout() {
        seat.count(Bound::Keepalive);
    } else if printed.contains("ENHANCE_YOUR_CALM") {
        seat.count(Bound::Flood);
    } else if printed.contains("Http2") && printed.contains("Library") {
        seat.count(Bound::NotHttp);
    } else if !error.is_parse() && matches!(seat.seen().phase(), Phase::Head | Phase::Reply) {
        seat.count(Bound::BrokenOff);
    }
}

impl Services {
    async fn answer(&self, request: Request<Incoming>, call: Call) -> Response<Outgoing> {
        let is_grpc = request.version() == Version::HTTP_2
            && request
                .headers()
                .get(CONTENT_TYPE)
                .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let reply = if is_grpc {
            self.grpc.answer(request, &call).await
        } else {
            self.http.answer(request, &call).await
        };
        let (mut head, body) = reply.into_parts();
        if call.is_last() {
            head.headers
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        match body.counted(call) {
            Ok(body) => Response::from_parts(head, body),
            Err(mut call) => {
                let mut refused = Refused::new(
                    Cause::Overloaded,
                    "too many large replies wait to be read: send the request again later",
                );
                refused.retry_after = Some(Duration::from_secs(1));
                call.answered();
                if is_grpc {
                    unary::refused(refused)
                } else {
                    reply::refused(&refused)
                }
            }
        }
    }
}
