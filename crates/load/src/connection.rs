//! One keep-alive HTTP/1.1 connection that reopens itself.

use std::time::Duration;

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
        let run = answer
            .headers()
            .get("server-timing")
            .and_then(|v| run_time(v.to_str().ok()?));
        answer.into_body().collect().await?;
        self.sender = Some(sender);
        Ok((status, run))
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
