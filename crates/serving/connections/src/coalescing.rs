//! Coalesces the writes of one poll of an HTTP/2 connection into one system call.
//!
//! **Problem.** A gRPC reply has three frames: headers, data and trailers. h2 flushes its encode
//! buffer before the frame after a payload of 256 bytes or more. A client that has received the
//! response headers may not retry, so if the process is killed between the two writes, the request
//! is lost.
//!
//! **Approach.** hyper writes to a buffering stream. After each poll of the connection, the buffer
//! is written in one call. It contains the replies of all streams that were ready, which also saves
//! system calls.
//!
//! **Limits.** The buffer holds at most [`COALESCED_BYTES_MAX`]. If one poll writes more, the
//! buffer is written first, and a reply may be split there; a larger reply is split anyway.
//!
//! **Backpressure.** While the socket is not writable, the buffer fills up to its limit; from then
//! on hyper waits for the socket.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::limits::COALESCED_BYTES_MAX;

/// The buffering stream passed to hyper; clones share the buffer.
pub(crate) struct CoalescedIo<Io>(Arc<Mutex<Coalesced<Io>>>);

impl<Io> Clone for CoalescedIo<Io> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Coalesced<Io> {
    io: Io,
    unsent: BytesMut,
    /// hyper has flushed, and `io` has not been flushed since.
    is_flush_due: bool,
    /// The error of the last write, returned by the next call of hyper.
    error: Option<io::Error>,
}

impl<Io: Write + Unpin> CoalescedIo<Io> {
    pub(crate) fn new(io: Io) -> Self {
        Self(Arc::new(Mutex::new(Coalesced {
            io,
            unsent: BytesMut::new(),
            is_flush_due: false,
            error: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Coalesced<Io>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the flushed bytes. Must be called after each poll of the connection, by its task.
    pub(crate) fn send(&self, context: &mut Context<'_>) {
        let mut coalesced = self.lock();
        if !coalesced.is_flush_due || coalesced.error.is_some() {
            return;
        }
        match coalesced.poll_send(context) {
            Poll::Ready(Err(error)) => {
                coalesced.error = Some(error);
                context.waker().wake_by_ref();
            }
            // If pending, the socket wakes the task.
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
    }
}

impl<Io: Write + Unpin> Coalesced<Io> {
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_unsent(context))?;
        ready!(Pin::new(&mut self.io).poll_flush(context))?;
        self.is_flush_due = false;
        Poll::Ready(Ok(()))
    }

    fn poll_unsent(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(context, &self.unsent))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.advance(written);
        }
        Poll::Ready(Ok(()))
    }

    /// Makes room for `bytes`; returns false if they exceed the buffer.
    fn poll_room(&mut self, bytes: usize, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Err(error));
        }
        if self.unsent.len() + bytes > COALESCED_BYTES_MAX {
            ready!(self.poll_unsent(context))?;
        }
        Poll::Ready(Ok(bytes <= COALESCED_BYTES_MAX))
    }
}

impl<Io: Read + Write + Unpin> Read for CoalescedIo<Io> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().io).poll_read(context, buffer)
    }
}

impl<Io: Write + Unpin> Write for CoalescedIo<Io> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut coalesced = self.lock();
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        if !ready!(coalesced.poll_room(bytes, context))? {
            return Pin::new(&mut coalesced.io).poll_write_vectored(context, slices);
        }
        for slice in slices {
            coalesced.unsent.extend_from_slice(slice);
        }
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut coalesced = self.lock();
        coalesced.is_flush_due = true;
        Poll::Ready(coalesced.error.take().map_or(Ok(()), Err))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut coalesced = self.lock();
        ready!(coalesced.poll_unsent(context))?;
        Pin::new(&mut coalesced.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests;
