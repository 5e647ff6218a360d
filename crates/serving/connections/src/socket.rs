//! The socket of a connection. It measures how long received bytes waited in the socket buffer,
//! because this time counts against the deadline of the request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use albacore_os::TimestampedReader;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::state::ConnState;

/// A socket whose reads measure the waiting time of the bytes.
pub(crate) struct TimedSocket {
    socket: TcpStream,
    reader: TimestampedReader,
    conn: Arc<ConnState>,
}

impl TimedSocket {
    /// `socket` must be accepted from a listener with timestamped arrivals.
    pub(crate) fn new(socket: TcpStream, conn: Arc<ConnState>) -> Self {
        Self {
            socket,
            reader: TimestampedReader::default(),
            conn,
        }
    }
}

impl AsyncRead for TimedSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self {
            socket,
            reader,
            conn,
        } = self.get_mut();
        let room = buffer.remaining();
        loop {
            // bound: in each pass except the last one the socket was not readable
            ready!(socket.poll_read_ready(context))?;
            let mut arrived = None;
            let tried = socket.try_io(Interest::READABLE, || {
                let read = reader.receive(socket, buffer)?;
                arrived = Some(read);
                match read.bytes {
                    0 => Ok(()),
                    // A short read has emptied the socket: clear its readiness now, which saves the
                    // read that would return `EWOULDBLOCK`.
                    few if few < room => Err(io::ErrorKind::WouldBlock.into()),
                    _ => Ok(()),
                }
            });
            if let Some(arrived) = arrived {
                conn.set_read_delay(arrived.waited.unwrap_or_default());
                return Poll::Ready(Ok(()));
            }
            match tried {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }
}

impl AsyncWrite for TimedSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(context)
    }
}
