//! One connection from its first bytes to its last. HTTP/1.1 and HTTP/2 are told apart by the
//! connection preface, on every port.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::io::ConnIo;
use crate::limit_metrics::{Limit, LimitMetrics};
use crate::limits::{
    GOODBYE_TIME_MAX, HEAD_BYTES_MAX, KEEPALIVE_PERIOD, KEEPALIVE_WAIT, OPENING_LOOK_PERIOD,
    PARTING_TIME, READ_AHEAD_BYTES_MAX, STREAM_WINDOW_BYTES, STREAMS_MAX, UNSEEN_RESETS_MAX,
};
use crate::socket::TimedSocket;
use crate::state::{ActiveRequest, ConnState, Control, ListenerState, Phase};

/// The connection preface of HTTP/2.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What answers the requests of all connections.
pub trait Handler: Send + Sync + 'static {
    /// The body of a reply.
    type Body: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Answers one request; `active` counts as being served until it is dropped.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        active: ActiveRequest,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Serves one connection of a port.
pub(crate) async fn serve_socket<H: Handler>(
    stream: TcpStream,
    conn: Arc<ConnState>,
    handler: Arc<H>,
) {
    if stream.set_nodelay(true).is_err() {
        return; // already closed
    }
    let Some((protocol, is_stopping)) = detect(&stream, &conn).await else {
        return;
    };
    let stream = TimedSocket::new(stream, Arc::clone(&conn));
    serve_io(stream, conn, (protocol, is_stopping), handler).await;
}

/// Serves a connection that is no socket, for fuzzing: `is_http2` says which protocol it speaks.
pub async fn serve_stream<Io, H>(stream: Io, is_http2: bool, handler: Arc<H>)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let listener = Arc::new(ListenerState::new(LimitMetrics::default()));
    let conn = Arc::new(ConnState::new(listener));
    let protocol = if is_http2 {
        Protocol::Http2
    } else {
        Protocol::Http1
    };
    serve_io(stream, conn, (protocol, false), handler).await;
}

async fn serve_io<Io, H>(
    stream: Io,
    conn: Arc<ConnState>,
    (protocol, is_stopping): (Protocol, bool),
    handler: Arc<H>,
) where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let io = ConnIo::new(TokioIo::new(stream), Arc::clone(&conn));
    let own = Arc::clone(&conn);
    let service = service_fn(move |request| {
        let answer = Arc::clone(&handler).answer(request, own.begin());
        async move { Ok::<_, Infallible>(answer.await) }
    });
    match protocol {
        Protocol::Http1 => {
            let connection = http1::Builder::new()
                .max_header_size(HEAD_BYTES_MAX as usize)
                .max_buf_size(READ_AHEAD_BYTES_MAX)
                .serve_connection(io, service);
            drive(connection, &conn, (false, is_stopping)).await;
        }
        Protocol::Http2 => {
            conn.speaks_http2();
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
                .serve_connection(io, service);
            drive(connection, &conn, (true, is_stopping)).await;
        }
    }
}

/// Waits for the first bytes, and says whether the server began to stop meanwhile; `None` if none
/// come.
async fn detect(stream: &TcpStream, conn: &ConnState) -> Option<(Protocol, bool)> {
    let mut protocol = pin!(peek_protocol(stream));
    let control = tokio::select! {
        biased;
        protocol = protocol.as_mut() => return Some((protocol?, false)),
        control = conn.next_control() => control,
    };
    match control {
        Control::Leave(_, bound) | Control::Out(bound) => {
            conn.count(bound);
            None
        }
        // A client that has just connected is about to send a request.
        Control::Stop => {
            let protocol = tokio::time::timeout(PARTING_TIME, protocol).await;
            Some((protocol.ok()??, true))
        }
    }
}

/// Looks at the first bytes without consuming them; `None` if the connection ends before.
async fn peek_protocol(stream: &TcpStream) -> Option<Protocol> {
    let mut seen = [0; PREFACE.len()];
    loop {
        // bound: FIRST_BYTES_TIME_MAX of the connection
        let length = stream.peek(&mut seen).await.ok()?;
        if length == 0 {
            return None;
        }
        if !PREFACE.starts_with(&seen[..length]) {
            return Some(Protocol::Http1);
        }
        if length == PREFACE.len() {
            return Some(Protocol::Http2);
        }
        tokio::time::sleep(OPENING_LOOK_PERIOD).await;
    }
}

/// Runs a connection until it ends by itself or by a control message.
async fn drive<C>(connection: C, conn: &ConnState, (is_http2, is_stopping): (bool, bool))
where
    C: GracefulConnection<Error = hyper::Error>,
{
    let mut connection = pin!(connection);
    let mut is_leaving = false;
    // What it was at when the server stopped, or PARTING_TIME ago.
    let mut parting = (is_stopping && !is_http2).then(|| conn.seen());
    if is_stopping && is_http2 {
        connection.as_mut().graceful_shutdown();
        is_leaving = true;
    }
    loop {
        // bound: one turn for each control message, or when GOODBYE_TIME_MAX or PARTING_TIME is
        // over
        let control = tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    note(&error, conn);
                }
                return;
            }
            control = conn.next_control() => Some(control),
            () = tokio::time::sleep(GOODBYE_TIME_MAX), if is_leaving => None,
            () = tokio::time::sleep(PARTING_TIME), if parting.is_some() && !is_leaving => {
                let before = parting.replace(conn.seen());
                if !before.is_some_and(|before| conn.is_still(before)) || conn.is_serving() {
                    continue;
                }
                Some(Control::Stop)
            }
        };
        match control {
            Some(Control::Leave(seen, bound)) if conn.is_still(seen) => {
                conn.count(bound);
                if !is_http2 {
                    return;
                }
            }
            Some(Control::Leave(..)) => {
                conn.stays(); // it went on
                continue;
            }
            Some(Control::Out(bound)) => {
                conn.count(bound);
                return;
            }
            // Closed now, it would reset a request that is on its way.
            Some(Control::Stop) if !is_http2 && parting.is_none() => {
                parting = Some(conn.seen());
                continue;
            }
            Some(Control::Stop) => {}
            None if conn.is_serving() => continue,
            None => return,
        }
        is_leaving = true;
        connection.as_mut().graceful_shutdown();
    }
}

/// Counts why a connection ended early.
fn note(error: &hyper::Error, conn: &ConnState) {
    tracing::debug!(?error, "a connection ended early");
    // hyper keeps the codes of HTTP/2 to itself, but prints them. This one stands for floods of
    // resets, continuations and small frames, which its parser has bounds for.
    let printed = format!("{error:?}");
    if error.is_timeout() {
        conn.count(Limit::Keepalive);
    } else if printed.contains("ENHANCE_YOUR_CALM") {
        conn.count(Limit::Flood);
    } else if printed.contains("Http2") && printed.contains("Library") {
        conn.count(Limit::NotHttp);
    } else if !error.is_parse() && matches!(conn.seen().phase(), Phase::Head | Phase::Reply) {
        conn.count(Limit::BrokenOff);
    }
}
