//! One keep-alive HTTP/1.1 connection that reopens itself.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::Request;

/// Status that stands for "no answer": refused, reset, or cut off in the body.
pub(crate) const NO_ANSWER: u16 = 0;

/// A connection to one server.
#[derive(Default)]
pub(crate) struct Connection {
    sender: Option<http1::SendRequest<Full<Bytes>>>,
}

impl Connection {
    /// Sends `request` and reads the whole answer; its status, or [`NO_ANSWER`].
    pub(crate) async fn exchange(&mut self, request: &Request) -> u16 {
        match self.try_exchange(request).await {
            Ok(status) => status,
            Err(_) => {
                self.sender = None;
                NO_ANSWER
            }
        }
    }

    async fn try_exchange(&mut self, request: &Request) -> Result<u16, ExchangeError> {
        let mut sender = match self.sender.take() {
            Some(sender) if !sender.is_closed() => sender,
            _ => connect(request.address).await?,
        };
        sender.ready().await?;
        let mut message = hyper::Request::post(&request.path).header("host", "localhost");
        for (name, value) in &request.headers {
            message = message.header(name, value);
        }
        let message = message.body(Full::new(request.body.clone()))?;
        let answer = sender.send_request(message).await?;
        let status = answer.status().as_u16();
        answer.into_body().collect().await?;
        self.sender = Some(sender);
        Ok(status)
    }
}

async fn connect(
    address: std::net::SocketAddr,
) -> Result<http1::SendRequest<Full<Bytes>>, ExchangeError> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
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
