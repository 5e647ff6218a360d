//! IO wrapper of one connection. It records when bytes are received and when all bytes are sent,
//! and adds a JSON body to the error replies that hyper sends on its own.
//!
//! A request head that cannot be parsed never reaches the service; hyper sends a `400`, `414` or
//! `431` without a body and closes. Clients read `error` from the body of every failure, so this
//! wrapper detects such a write (an error status and `content-length: 0`, which the service never
//! sends) and sends a reply with a body instead.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::limit_metrics::Limit;
use crate::state::ConnState;

/// The byte stream of a connection.
pub(crate) struct ConnIo<Io> {
    io: Io,
    conn: Arc<ConnState>,
    /// Bytes to write in place of a head without a body.
    pending: Vec<u8>,
}

impl<Io: Write + Unpin> ConnIo<Io> {
    pub(crate) fn new(io: Io, conn: Arc<ConnState>) -> Self {
        Self {
            io,
            conn,
            pending: Vec::new(),
        }
    }

    fn poll_pending(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.pending.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(context, &self.pending))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.pending.drain(..written);
        }
        Poll::Ready(Ok(()))
    }

    /// Replaces an error reply without a body by one with a body; returns false for other bytes.
    fn try_replace(&mut self, head: &[u8]) -> bool {
        let Some((reply, limit)) = replacement(head) else {
            return false;
        };
        self.conn.count(limit);
        self.pending = reply;
        true
    }
}

/// Returns the reply with a body for an error reply without one; `None` for other bytes.
fn replacement(head: &[u8]) -> Option<(Vec<u8>, Limit)> {
    const HEAD_BYTES_MAX: usize = 256;
    if !head.starts_with(b"HTTP/1.1 4")
        || !head.ends_with(b"\r\n\r\n")
        || head.len() > HEAD_BYTES_MAX
    {
        return None;
    }
    let text = std::str::from_utf8(head).ok()?;
    if !text
        .to_ascii_lowercase()
        .contains("\r\ncontent-length: 0\r\n")
    {
        return None;
    }
    let (status, message, limit) = match text.get(9..12)? {
        "431" => (
            "431 Request Header Fields Too Large",
            "the head of the request is too large",
            Limit::HeadBytes,
        ),
        "414" => (
            "414 URI Too Long",
            "the path of the request is too long",
            Limit::HeadBytes,
        ),
        _ => (
            "400 Bad Request",
            "invalid HTTP/1.1 request",
            Limit::NotHttp,
        ),
    };
    Some((closing_reply(status, message), limit))
}

/// Serializes an error reply that closes the connection.
pub(crate) fn closing_reply(status: &str, message: &str) -> Vec<u8> {
    let body = format!("{{\"error\":\"{message}\"}}");
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

impl<Io: Read + Unpin> Read for ConnIo<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        self.conn.bytes_received(); // also at the end of the stream, which hyper handles
        Poll::Ready(Ok(()))
    }
}

impl<Io: Write + Unpin> Write for ConnIo<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(context))?;
        if self.try_replace(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pending(context))?;
        let mut filled = slices.iter().filter(|slice| !slice.is_empty());
        if let (Some(only), None) = (filled.next(), filled.next())
            && self.try_replace(only)
        {
            return Poll::Ready(Ok(only.len()));
        }
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(context))?;
        ready!(Pin::new(&mut self.io).poll_flush(context))?;
        self.conn.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_pending(context))?;
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_error_head_without_a_body_is_replaced() {
        let bare = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
            content-length: 0\r\n\r\n";
        let (full, limit) = replacement(bare).unwrap();
        let full = String::from_utf8(full).unwrap();
        assert!(
            full.starts_with("HTTP/1.1 431 ") && full.ends_with("\"}"),
            "{full}"
        );
        assert_eq!(limit, Limit::HeadBytes);
        for other in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 10\r\n\r\n",
            b"HTTP/1.1 4",
            b"",
        ] {
            assert_eq!(replacement(other), None);
        }
    }
}
