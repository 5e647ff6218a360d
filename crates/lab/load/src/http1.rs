//! A minimal HTTP/1.1 client for the load generator: requests are encoded before the run, response
//! bodies are skipped.
//!
//! The generator often shares CPUs with the server. A general-purpose client takes several times as
//! long per request, which is more than the server takes for a row.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::{Request, StageTimes};

/// Maximum number of header lines of a response.
const HEADERS_MAX: usize = 64;

/// Maximum bytes of a head, or of a chunk-size line: far more than servers send.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Size of a read.
const READ_BYTES: usize = 64 << 10;

/// Errors of an exchange.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Http1Error {
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
    #[error("the connection was closed during a response")]
    Closed,
    #[error("the response is not HTTP/1.1")]
    Head(#[from] httparse::Error),
    #[error("the response is not HTTP/1.1")]
    Chunk(httparse::InvalidChunkSize),
    #[error("the head of the response is too long")]
    TooLong,
}

/// Head of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) stages: StageTimes,
    /// The connection cannot be reused.
    pub(crate) is_last: bool,
}

/// Length of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Bytes(usize),
    Chunks,
    UntilClosed,
}

/// Encodes a request.
pub(crate) fn message(request: &Request) -> Vec<u8> {
    let host = request.host().unwrap_or("localhost");
    let mut bytes = format!("POST {} HTTP/1.1\r\nhost: {host}\r\n", request.path).into_bytes();
    for (name, value) in request.other_headers() {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    let length = request.body.len();
    bytes.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
    bytes.extend_from_slice(&request.body);
    bytes
}

#[derive(Debug)]
pub(crate) struct Http1 {
    stream: TcpStream,
    /// Bytes that were read but not parsed yet.
    bytes: Vec<u8>,
}

impl Http1 {
    pub(crate) async fn connect(address: SocketAddr) -> Result<Self, Http1Error> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            bytes: Vec::with_capacity(READ_BYTES),
        })
    }

    /// Whether the server has closed the idle connection; no system call if it has not.
    pub(crate) fn is_closed(&self) -> bool {
        let nothing_came = self.stream.try_read(&mut [0]);
        !matches!(nothing_came, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// Sends a message and reads its response.
    pub(crate) async fn exchange(&mut self, message: &[u8]) -> Result<Response, Http1Error> {
        self.bytes.clear();
        self.stream.write_all(message).await?;
        // bound: a server sends few 1xx responses before the final one; each consumes bytes.
        loop {
            let (answer, length) = self.head().await?;
            if answer.status >= 200 {
                self.skip_body(length).await?;
                return Ok(answer);
            }
        }
    }

    async fn read(&mut self) -> Result<(), Http1Error> {
        self.bytes.reserve(READ_BYTES);
        match self.stream.read_buf(&mut self.bytes).await? {
            0 => Err(Http1Error::Closed),
            _ => Ok(()),
        }
    }

    async fn head(&mut self) -> Result<(Response, Length), Http1Error> {
        // bound: HEAD_BYTES_MAX bytes, each pass reads some.
        loop {
            if let Some((answer, length, bytes)) = parse(&self.bytes)? {
                self.bytes.drain(..bytes);
                return Ok((answer, length));
            }
            if self.bytes.len() > HEAD_BYTES_MAX {
                return Err(Http1Error::TooLong);
            }
            self.read().await?;
        }
    }

    async fn skip_body(&mut self, length: Length) -> Result<(), Http1Error> {
        match length {
            Length::Bytes(bytes) => self.skip(bytes).await,
            Length::Chunks => self.skip_chunks().await,
            Length::UntilClosed => loop {
                // bound: the server closes; the exchange has a timeout.
                self.bytes.clear();
                match self.read().await {
                    Ok(()) => {}
                    Err(Http1Error::Closed) => return Ok(()),
                    Err(other) => return Err(other),
                }
            },
        }
    }

    async fn skip(&mut self, mut bytes: usize) -> Result<(), Http1Error> {
        // bound: `bytes`, each pass reads some.
        while bytes > self.bytes.len() {
            bytes -= self.bytes.len();
            self.bytes.clear();
            self.read().await?;
        }
        self.bytes.drain(..bytes);
        Ok(())
    }

    async fn skip_chunks(&mut self) -> Result<(), Http1Error> {
        // bound: one pass for each chunk and each read; the exchange has a timeout.
        loop {
            match httparse::parse_chunk_size(&self.bytes).map_err(Http1Error::Chunk)? {
                httparse::Status::Partial if self.bytes.len() > HEAD_BYTES_MAX => {
                    return Err(Http1Error::TooLong);
                }
                httparse::Status::Partial => self.read().await?,
                httparse::Status::Complete((line, 0)) => {
                    self.bytes.drain(..line);
                    return self.skip_trailers().await;
                }
                httparse::Status::Complete((line, size)) => {
                    let size = usize::try_from(size).unwrap_or(usize::MAX);
                    let end = "\r\n".len();
                    self.skip(line.saturating_add(size).saturating_add(end))
                        .await?;
                }
            }
        }
    }

    async fn skip_trailers(&mut self) -> Result<(), Http1Error> {
        // bound: HEAD_BYTES_MAX bytes, each pass reads some or consumes a line.
        loop {
            let end = self.bytes.windows(2).position(|pair| pair == b"\r\n");
            match end {
                Some(0) => return self.skip(2).await,
                Some(line) => self.skip(line + 2).await?,
                None if self.bytes.len() > HEAD_BYTES_MAX => return Err(Http1Error::TooLong),
                None => self.read().await?,
            }
        }
    }
}

/// Parses the head at the start of `bytes`; also returns its length. `None` if it is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<(Response, Length, usize)>, Http1Error> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(bytes)? else {
        return Ok(None);
    };
    let header = |name: &str| {
        let found = head
            .headers
            .iter()
            .find(|h| h.name.eq_ignore_ascii_case(name));
        found.and_then(|found| std::str::from_utf8(found.value).ok())
    };
    let has = |name: &str, token: &str| {
        let value = header(name).unwrap_or_default();
        value
            .split(',')
            .any(|it| it.trim().eq_ignore_ascii_case(token))
    };
    let status = head.code.unwrap_or_default();
    let body = match header("content-length").map(str::parse) {
        _ if status < 200 || status == 204 || status == 304 => Length::Bytes(0),
        _ if has("transfer-encoding", "chunked") => Length::Chunks,
        Some(Ok(bytes)) => Length::Bytes(bytes),
        Some(Err(_)) | None => Length::UntilClosed,
    };
    let is_old = head.version == Some(0) && !has("connection", "keep-alive");
    let answer = Response {
        status,
        stages: header("server-timing").map_or_else(StageTimes::default, StageTimes::parse),
        is_last: body == Length::UntilClosed || is_old || has("connection", "close"),
    };
    Ok(Some((answer, body, length)))
}

#[cfg(test)]
mod tests;
