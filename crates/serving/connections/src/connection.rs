//! Drives one connection. Every port accepts HTTP/1.1 and HTTP/2; the connection preface of HTTP/2
//! tells them apart.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Context;

use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::coalescing::CoalescedIo;
use crate::io::ConnIo;
use crate::limit_metrics::{Limit, LimitMetrics};
use crate::limits::{
    CLOSE_TIME_MAX, HEAD_BYTES_MAX, KEEPALIVE_PERIOD, KEEPALIVE_WAIT, PENDING_RESETS_MAX,
    PREFACE_POLL_PERIOD, READ_AHEAD_BYTES_MAX, SHUTDOWN_GRACE, STREAM_WINDOW_BYTES, STREAMS_MAX,
};
use crate::socket::TimedSocket;
use crate::state::{ActiveRequest, ConnState, Control, ListenerState, Phase, UnsentBytes};

/// The HTTP/2 connection preface.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The request handler of all connections.
pub trait Handler: Send + Sync + 'static {
    type Body: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Serves one request, which is active until `active` is dropped.
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

/// Serves one accepted connection.
pub(crate) async fn serve_socket<H: Handler>(
    stream: TcpStream,
    conn: Arc<ConnState>,
    handler: Arc<H>,
) {
    if stream.set_nodelay(true).is_err() {
        return; // already closed
    }
    let Some((protocol, is_stopping)) = detect_protocol(&stream, &conn).await else {
        return;
    };
    let stream = TimedSocket::new(stream, Arc::clone(&conn));
    serve_io(stream, conn, protocol, is_stopping, handler).await;
}

/// Serves a connection over any byte stream, for fuzzing; `is_http2` selects the protocol.
pub async fn serve_stream<Io, H>(stream: Io, is_http2: bool, handler: Arc<H>)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let listener = Arc::new(ListenerState::new(
        LimitMetrics::default(),
        UnsentBytes::default(),
    ));
    let conn = Arc::new(ConnState::new(listener));
    let protocol = if is_http2 {
        Protocol::Http2
    } else {
        Protocol::Http1
    };
    serve_io(stream, conn, protocol, false, handler).await;
}

async fn serve_io<Io, H>(
    stream: Io,
    conn: Arc<ConnState>,
    protocol: Protocol,
    is_stopping: bool,
    handler: Arc<H>,
) where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let io = ConnIo::new(TokioIo::new(stream), Arc::clone(&conn));
    let service_conn = Arc::clone(&conn);
    let service = service_fn(move |request| {
        // Boxed: hyper stores the future inline and would keep its memory for each connection.
        let answer = Box::pin(Arc::clone(&handler).answer(request, service_conn.begin_request()));
        async move { Ok::<_, Infallible>(answer.await) }
    });
    match protocol {
        Protocol::Http1 => {
            let connection = http1::Builder::new()
                .max_header_size(HEAD_BYTES_MAX as usize)
                .max_buf_size(READ_AHEAD_BYTES_MAX)
                .serve_connection(io, service);
            drive(connection, &conn, (false, is_stopping), |_| {}).await;
        }
        Protocol::Http2 => {
            conn.set_http2();
            let io = CoalescedIo::new(io);
            let sender = io.clone();
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .keep_alive_interval(KEEPALIVE_PERIOD)
                .keep_alive_timeout(KEEPALIVE_WAIT)
                .max_header_list_size(HEAD_BYTES_MAX)
                .max_concurrent_streams(STREAMS_MAX)
                .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(STREAM_WINDOW_BYTES)
                .max_send_buf_size(READ_AHEAD_BYTES_MAX)
                .serve_connection(io, service);
            let after_poll = |context: &mut Context<'_>| sender.send(context);
            drive(connection, &conn, (true, is_stopping), after_poll).await;
        }
    }
}

/// Waits for the first bytes. Returns the protocol and whether shutdown began while waiting; `None`
/// if the connection must be closed.
async fn detect_protocol(stream: &TcpStream, conn: &ConnState) -> Option<(Protocol, bool)> {
    let mut protocol = pin!(peek_protocol(stream));
    let control = tokio::select! {
        biased;
        protocol = protocol.as_mut() => return Some((protocol?, false)),
        control = conn.next_control() => control,
    };
    match control {
        Control::CloseIfUnchanged(_, limit) | Control::Close(limit) => {
            conn.count(limit);
            None
        }
        // A client that has just connected is about to send a request.
        Control::Shutdown => {
            let protocol = tokio::time::timeout(SHUTDOWN_GRACE, protocol).await;
            Some((protocol.ok()??, true))
        }
    }
}

/// Detects the protocol without consuming bytes; `None` if the connection is closed first.
async fn peek_protocol(stream: &TcpStream) -> Option<Protocol> {
    let mut received = [0; PREFACE.len()];
    loop {
        // bound: FIRST_BYTES_TIME_MAX of the connection
        let length = stream.peek(&mut received).await.ok()?;
        if length == 0 {
            return None;
        }
        if !PREFACE.starts_with(&received[..length]) {
            return Some(Protocol::Http1);
        }
        if length == PREFACE.len() {
            return Some(Protocol::Http2);
        }
        tokio::time::sleep(PREFACE_POLL_PERIOD).await;
    }
}

/// Runs a connection until it ends or a control message ends it; calls `after_poll` after each
/// poll.
async fn drive<C>(
    connection: C,
    conn: &ConnState,
    (is_http2, is_stopping): (bool, bool),
    after_poll: impl Fn(&mut Context<'_>),
) where
    C: GracefulConnection<Error = hyper::Error>,
{
    let mut connection = pin!(connection);
    let mut is_closing = false;
    // Shutdown of HTTP/1.1: the phase when shutdown began, then at the last check, SHUTDOWN_GRACE
    // ago.
    let mut phase_at_shutdown = (is_stopping && !is_http2).then(|| conn.phase_deadline());
    if is_stopping && is_http2 {
        connection.as_mut().graceful_shutdown();
        is_closing = true;
    }
    loop {
        // bound: one pass per control message, per CLOSE_TIME_MAX and per SHUTDOWN_GRACE
        let control = tokio::select! {
            biased;
            ended = poll_fn(|context| {
                let ended = connection.as_mut().poll(context);
                after_poll(context);
                ended
            }) => {
                if let Err(error) = ended {
                    count_error(&error, conn);
                }
                return;
            }
            control = conn.next_control() => Some(control),
            () = tokio::time::sleep(CLOSE_TIME_MAX), if is_closing => None,
            () = tokio::time::sleep(SHUTDOWN_GRACE), if phase_at_shutdown.is_some() && !is_closing => {
                let before = phase_at_shutdown.replace(conn.phase_deadline());
                if !before.is_some_and(|before| conn.is_unchanged(before)) || conn.is_serving() {
                    continue;
                }
                Some(Control::Shutdown)
            }
        };
        match control {
            Some(Control::CloseIfUnchanged(observed, limit)) if conn.is_unchanged(observed) => {
                conn.count(limit);
                if !is_http2 {
                    return;
                }
            }
            Some(Control::CloseIfUnchanged(..)) => {
                conn.cancel_eviction();
                continue;
            }
            Some(Control::Close(limit)) => {
                conn.count(limit);
                return;
            }
            // Closing immediately would reset a request in flight.
            Some(Control::Shutdown) if !is_http2 && phase_at_shutdown.is_none() => {
                phase_at_shutdown = Some(conn.phase_deadline());
                continue;
            }
            Some(Control::Shutdown) => {}
            None if conn.is_serving() => continue,
            None => return,
        }
        is_closing = true;
        connection.as_mut().graceful_shutdown();
    }
}

/// Counts the reason why a connection ended early.
fn count_error(error: &hyper::Error, conn: &ConnState) {
    tracing::debug!(?error, "a connection ended early");
    // hyper exposes the HTTP/2 error code only in its debug output. ENHANCE_YOUR_CALM means a flood
    // of resets, continuations or small frames, which the parser of h2 limits.
    let debug = format!("{error:?}");
    if error.is_timeout() {
        conn.count(Limit::Keepalive);
    } else if debug.contains("ENHANCE_YOUR_CALM") {
        conn.count(Limit::Flood);
    } else if debug.contains("Http2") && debug.contains("Library") {
        conn.count(Limit::NotHttp);
    } else if !error.is_parse()
        && matches!(conn.phase_deadline().phase(), Phase::Head | Phase::Replying)
    {
        conn.count(Limit::Aborted);
    }
}
