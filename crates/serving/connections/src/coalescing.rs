//! Coalesces what one poll of an HTTP/2 connection sends into one write.
//!
//! **Problem.** A reply of gRPC has three frames: head, data and trailers. h2 writes what it has
//! encoded before the frame that follows a payload of 256 bytes or more. A client that received a
//! head may not send its request again, so a process that is killed between the two writes loses
//! the request.
//!
//! **Approach.** hyper gets a stream that stores what is written. When a poll of the connection has
//! ended, all of it is written in one call: the replies of all streams that were ready, which also
//! saves system calls.
//!
//! **Limits.** At most [`COALESCED_BYTES_MAX`] are stored. Where more is ready in one poll, what is
//! stored is written first, and a reply may break off there, as a larger one may anyway.
//!
//! **Backpressure.** While the socket takes nothing, the store fills up to its limit, and from then
//! on hyper waits for the socket.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use hyper::rt::{Read, ReadBufCursor, Write};

use crate::limits::COALESCED_BYTES_MAX;

/// The stream that hyper gets; clones share it.
pub(crate) struct CoalescedIo<Io>(Arc<Mutex<Coalesced<Io>>>);

impl<Io> Clone for CoalescedIo<Io> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct Coalesced<Io> {
    io: Io,
    unsent: BytesMut,
    /// hyper flushed, and `io` was not flushed since.
    is_flush_due: bool,
    /// The error of the last write, which the next call of hyper returns.
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

    /// Writes what hyper has flushed; to be called after each poll of the connection, by its task.
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
            // The socket wakes the task.
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

    /// Makes room for bytes to be stored; false if they are too many.
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
