//! A single GET, to read the metadata of a server.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Timeout of the response.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum size of a response body: metadata of the widest models take a few KiB.
const RESPONSE_BYTES_MAX: usize = 1 << 20;

/// Why a GET failed.
#[derive(Debug, thiserror::Error)]
pub enum GetError {
    /// No connection, or no runtime for it.
    #[error("cannot connect")]
    Io(#[from] std::io::Error),
    /// Not an HTTP server.
    #[error("the HTTP request failed")]
    Hyper(#[from] hyper::Error),
    #[error("invalid path")]
    Path(#[from] hyper::http::Error),
    /// Too long, or incomplete.
    #[error("cannot read the response: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("timed out after {} s", RESPONSE_TIME_MAX.as_secs())]
    Slow,
}

/// Status and body of a GET.
///
/// # Errors
/// [`GetError`].
pub fn get(address: SocketAddr, path: &str) -> Result<(u16, Vec<u8>), GetError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        tokio::time::timeout(RESPONSE_TIME_MAX, fetch(address, path))
            .await
            .unwrap_or(Err(GetError::Slow))
    })
}

async fn fetch(address: SocketAddr, path: &str) -> Result<(u16, Vec<u8>), GetError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = hyper::Request::get(path).header("host", "localhost");
    let answer = sender
        .send_request(request.body(Empty::<Bytes>::new())?)
        .await?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), RESPONSE_BYTES_MAX);
    let body = body.collect().await.map_err(GetError::Body)?;
    Ok((status, body.to_bytes().to_vec()))
}
