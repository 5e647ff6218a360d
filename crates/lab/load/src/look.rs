//! One GET, to find out what a server serves.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// How long the answer may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Bytes of an answer: metadata of the widest models have some KiB.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Why nothing was learned.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// No connection, or no thread for it.
    #[error("it does not answer")]
    Io(#[from] std::io::Error),
    /// It speaks something else.
    #[error("it does not answer in HTTP")]
    Hyper(#[from] hyper::Error),
    /// The path is none.
    #[error("this is no path")]
    Path(#[from] hyper::http::Error),
    /// Too long, or broken off.
    #[error("its answer cannot be read: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("it does not answer within {} s", ANSWER_TIME_MAX.as_secs())]
    Slow,
}

/// Status and body of a GET.
///
/// # Errors
/// [`LookError`].
pub fn get(address: SocketAddr, path: &str) -> Result<(u16, Vec<u8>), LookError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        tokio::time::timeout(ANSWER_TIME_MAX, ask(address, path))
            .await
            .unwrap_or(Err(LookError::Slow))
    })
}

async fn ask(address: SocketAddr, path: &str) -> Result<(u16, Vec<u8>), LookError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = hyper::Request::get(path).header("host", "localhost");
    let answer = sender
        .send_request(request.body(Empty::<Bytes>::new())?)
        .await?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await.map_err(LookError::Body)?;
    Ok((status, body.to_bytes().to_vec()))
}
