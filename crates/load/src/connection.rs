//! One connection that reopens itself: HTTP/1.1 with keep-alive, or HTTP/2 for gRPC.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::HeaderMap;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::Request;

/// Status that stands for "no answer": refused, reset, or cut off in the body.
pub(crate) const NO_ANSWER: u16 = 0;

type Body = Full<Bytes>;

/// What messages are sent by.
enum Sender {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

impl Sender {
    fn is_closed(&self) -> bool {
        match self {
            Self::One(sender) => sender.is_closed(),
            Self::Two(sender) => sender.is_closed(),
        }
    }
}

/// A connection to one server.
#[derive(Default)]
pub(crate) struct Connection {
    sender: Option<Sender>,
}

impl Connection {
    /// Sends `request` and reads the whole answer; its status, or [`NO_ANSWER`], and the
    /// handler's time if the server tells it.
    pub(crate) async fn exchange(&mut self, request: &Request) -> (u16, Option<Duration>) {
        match self.try_exchange(request).await {
            Ok(answer) => answer,
            Err(_) => {
                self.sender = None;
                (NO_ANSWER, None)
            }
        }
    }

    async fn try_exchange(
        &mut self,
        request: &Request,
    ) -> Result<(u16, Option<Duration>), ExchangeError> {
        let is_grpc = request.is_grpc();
        let mut sender = match self.sender.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => connect(request.address, is_grpc).await?,
        };
        let mut message = hyper::Request::post(match is_grpc {
            false => request.path.clone(),
            true => format!("http://{}{}", request.address, request.path),
        });
        if !is_grpc {
            message = message.header("host", "localhost");
        }
        for (name, value) in &request.headers {
            message = message.header(name, value);
        }
        let message = message.body(Full::new(request.body.clone()))?;
        let answer = match &mut sender {
            Sender::One(sender) => {
                sender.ready().await?;
                sender.send_request(message).await?
            }
            Sender::Two(sender) => {
                sender.ready().await?;
                sender.send_request(message).await?
            }
        };
        let run = answer
            .headers()
            .get("server-timing")
            .and_then(|v| run_time(v.to_str().ok()?));
        let (head, body) = answer.into_parts();
        let body = body.collect().await?;
        let status = match is_grpc {
            false => head.status.as_u16(),
            true => grpc_status(body.trailers().unwrap_or(&head.headers)),
        };
        self.sender = Some(sender);
        Ok((status, run))
    }
}

/// The HTTP status that says the same as a gRPC one.
fn grpc_status(trailers: &HeaderMap) -> u16 {
    let code = trailers.get("grpc-status").and_then(|v| v.to_str().ok());
    match code {
        None => NO_ANSWER,
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

async fn connect(address: std::net::SocketAddr, is_grpc: bool) -> Result<Sender, ExchangeError> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let io = TokioIo::new(stream);
    Ok(if is_grpc {
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(connection);
        Sender::Two(sender)
    } else {
        let (sender, connection) = http1::handshake(io).await?;
        tokio::spawn(connection);
        Sender::One(sender)
    })
}

#[derive(Debug, thiserror::Error)]
enum ExchangeError {
    #[error("connection")]
    Io(#[from] std::io::Error),
    #[error("protocol")]
    Hyper(#[from] hyper::Error),
    #[error("request")]
    Http(#[from] hyper::http::Error),
}

/// The duration of metric `run`, given in milliseconds: `run;dur=1.25, queue;dur=0.1`.
fn run_time(header: &str) -> Option<Duration> {
    let metric = header
        .split(',')
        .map(str::trim)
        .find(|m| m.starts_with("run;"))?;
    let ms: f64 = metric
        .split(';')
        .find_map(|p| p.trim().strip_prefix("dur="))?
        .parse()
        .ok()?;
    Duration::try_from_secs_f64(ms / 1e3).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_timing_is_read_where_it_is_well_formed() {
        let ms = |us| Some(Duration::from_micros(us));
        assert_eq!(run_time("run;dur=1.25"), ms(1250));
        assert_eq!(run_time("queue;dur=3, run;desc=x;dur=2"), ms(2000));
        for header in [
            "",
            "run",
            "run;dur=x",
            "run;dur=-1",
            "running;dur=1",
            "run;dur=nan",
        ] {
            assert_eq!(run_time(header), None, "{header}");
        }
    }
}
