//! A connection that reconnects by itself: HTTP/1.1 with keep-alive, or HTTP/2 for gRPC.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::HeaderMap;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::http1::{self, Http1, Http1Error};
use crate::{Request, StageTimes};

/// Status of a request without a complete response: refused, reset, or cut off.
pub(crate) const NO_RESPONSE: u16 = 0;

type Body = Full<Bytes>;

/// A request and its encoding.
#[derive(Debug)]
pub(crate) struct Message {
    request: Request,
    /// HTTP/1.1 encoding; `None` for a gRPC call, which hyper encodes.
    bytes: Option<Vec<u8>>,
}

impl Message {
    pub(crate) fn new(request: Request) -> Self {
        let bytes = (!request.is_grpc()).then(|| http1::message(&request));
        Self { request, bytes }
    }
}

/// An open connection.
#[derive(Debug)]
enum Sender {
    Http1(Http1),
    Http2(http2::SendRequest<Body>),
}

impl Sender {
    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }
}

/// A connection to one server.
#[derive(Default, Debug)]
pub(crate) struct Connection {
    sender: Option<Sender>,
}

impl Connection {
    pub(crate) fn is_open(&self) -> bool {
        let sender = self.sender.as_ref();
        sender.is_some_and(|sender| !sender.is_closed())
    }

    /// Connects to the server of this message if not connected; returns whether it had to connect.
    pub(crate) async fn open(&mut self, message: &Message) -> Result<bool, ExchangeError> {
        let is_new = !self.is_open();
        if is_new {
            let address = message.request.address;
            self.sender = Some(match message.bytes {
                Some(_) => Sender::Http1(Http1::connect(address).await?),
                None => Sender::Http2(connect(address).await?),
            });
        }
        Ok(is_new)
    }

    /// Sends a message and reads the whole response; returns its status, or [`NO_RESPONSE`], and
    /// the stage times if the server reports them.
    pub(crate) async fn exchange(&mut self, message: &Message) -> (u16, StageTimes) {
        // Taken out, so that the connection is not reused after an error or cancellation.
        let sender = self.sender.take().filter(|sender| !sender.is_closed());
        match try_exchange(sender, message).await {
            Ok((answer, sender)) => {
                self.sender = sender;
                answer
            }
            Err(_) => (NO_RESPONSE, StageTimes::default()),
        }
    }
}

type Exchanged = ((u16, StageTimes), Option<Sender>);

async fn try_exchange(
    sender: Option<Sender>,
    Message { request, bytes }: &Message,
) -> Result<Exchanged, ExchangeError> {
    match (sender, bytes) {
        (Some(Sender::Http1(sender)), Some(bytes)) => exchange_http1(sender, bytes).await,
        (_, Some(bytes)) => exchange_http1(Http1::connect(request.address).await?, bytes).await,
        (Some(Sender::Http2(sender)), None) => exchange_http2(sender, request).await,
        (_, None) => exchange_http2(connect(request.address).await?, request).await,
    }
}

async fn exchange_http1(mut sender: Http1, bytes: &[u8]) -> Result<Exchanged, ExchangeError> {
    let answer = sender.exchange(bytes).await?;
    let sender = (!answer.is_last).then_some(Sender::Http1(sender));
    Ok(((answer.status, answer.stages), sender))
}

async fn exchange_http2(
    mut sender: http2::SendRequest<Body>,
    request: &Request,
) -> Result<Exchanged, ExchangeError> {
    let url = match request.host() {
        Some(host) => format!("http://{host}{}", request.path),
        None => format!("http://{}{}", request.address, request.path),
    };
    let mut message = hyper::Request::post(url);
    for (name, value) in request.other_headers() {
        message = message.header(name, value);
    }
    let message = message.body(Full::new(request.body.clone()))?;
    sender.ready().await?;
    let answer = sender.send_request(message).await?;
    let timing = answer.headers().get("server-timing");
    let timing = timing.and_then(|value| value.to_str().ok());
    let stages = timing.map_or_else(StageTimes::default, StageTimes::parse);
    let (head, body) = answer.into_parts();
    let body = body.collect().await?;
    let status = grpc_status(body.trailers().unwrap_or(&head.headers));
    Ok(((status, stages), Some(Sender::Http2(sender))))
}

/// The HTTP status that corresponds to a gRPC status.
fn grpc_status(trailers: &HeaderMap) -> u16 {
    let code = trailers.get("grpc-status").and_then(|v| v.to_str().ok());
    match code {
        None => NO_RESPONSE,
        Some("0") => 200,
        Some("3") => 400,
        Some("4" | "1") => 504,
        Some("5") => 404,
        Some("8") => 429,
        Some("12") => 501,
        Some("14") => 503,
        Some(_) => 500,
    }
}

async fn connect(address: std::net::SocketAddr) -> Result<http2::SendRequest<Body>, ExchangeError> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("connection")]
    Io(#[from] std::io::Error),
    #[error("HTTP/1.1")]
    One(#[from] Http1Error),
    #[error("HTTP/2")]
    Hyper(#[from] hyper::Error),
    #[error("request")]
    Http(#[from] hyper::http::Error),
}
