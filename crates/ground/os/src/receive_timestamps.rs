//! Socket reads with the time that the bytes spent in the receive queue: measures how late a busy
//! reader is.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::{Duration, SystemTime};

use bytes::BufMut;
use nix::sys::socket::sockopt::ReceiveTimestampns;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt};
use nix::sys::time::TimeSpec;

use crate::OsError;

/// Enables receive timestamps (SO_TIMESTAMPNS) on `socket` and on sockets accepted from it.
///
/// # Errors
/// The descriptor is not a socket.
pub fn enable_receive_timestamps(socket: &impl AsFd) -> Result<(), OsError> {
    setsockopt(&socket.as_fd(), ReceiveTimestampns, &true)
        .map_err(|e| OsError::call("setsockopt(SO_TIMESTAMPNS)", e))
}

/// Reads from a stream socket with receive timestamps.
#[derive(Debug)]
pub struct TimestampedReader {
    /// Buffer for control messages (cmsg), which contain the timestamp.
    control: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampedRead {
    /// Number of bytes read; 0 at the end of the stream.
    pub bytes: usize,
    /// How long the last byte waited in the receive queue; `None` without a timestamp.
    pub waited: Option<Duration>,
}

impl Default for TimestampedReader {
    fn default() -> Self {
        Self {
            control: nix::cmsg_space!(TimeSpec),
        }
    }
}

impl TimestampedReader {
    /// Reads the available bytes into the spare capacity of `buffer`, as `recv` does. The spare
    /// capacity is not zeroed first: it is larger than most requests, and zeroing it for a thousand
    /// connections would evict everything else from the caches.
    ///
    /// # Errors
    /// Those of `recvmsg`, among them [`io::ErrorKind::WouldBlock`].
    pub fn receive(
        &mut self,
        socket: &impl AsFd,
        buffer: &mut impl BufMut,
    ) -> io::Result<TimestampedRead> {
        let fd = socket.as_fd().as_raw_fd();
        let room = buffer.chunk_mut();
        let (start, length) = (room.as_mut_ptr(), room.len());
        // SAFETY: the memory is valid for writes and borrowed from `buffer`, and `recvmsg` only
        // writes to it. Tokio and mio read into uninitialized memory in the same way.
        let room = unsafe { std::slice::from_raw_parts_mut(start, length) };
        let mut pieces = [IoSliceMut::new(room)];
        let room = self.control.capacity();
        self.control.resize(room, 0);
        let control = Some(&mut self.control[..]);
        let message = recvmsg::<()>(fd, &mut pieces, control, MsgFlags::empty())?;
        // SAFETY: the kernel has initialized this many bytes.
        unsafe { buffer.advance_mut(message.bytes) };
        let stamps = message.cmsgs().into_iter().flatten();
        let stamp = stamps
            .filter_map(|message| match message {
                ControlMessageOwned::ScmTimestampns(stamp) => Some(Duration::from(stamp)),
                _ => None,
            })
            .last();
        Ok(TimestampedRead {
            bytes: message.bytes,
            // The timestamp is of the realtime clock, which can be set: a time in the future counts
            // as now.
            waited: stamp.map(|stamp| {
                let arrived = SystemTime::UNIX_EPOCH + stamp;
                arrived.elapsed().unwrap_or_default()
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_time_that_bytes_waited_is_measured() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        enable_receive_timestamps(&listener).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let mut reader = TimestampedReader::default();
        let pause = Duration::from_millis(30);
        // The kernel enables timestamping asynchronously: the first bytes may have no timestamp.
        let waited = (0..100).find_map(|_| {
            client.write_all(b"hello").unwrap();
            std::thread::sleep(pause);
            let mut buffer = Vec::with_capacity(16);
            let arrived = reader.receive(&server, &mut buffer).unwrap();
            assert_eq!((arrived.bytes, &buffer[..]), (5, &b"hello"[..]));
            arrived.waited
        });
        assert!(waited.unwrap() >= pause, "{waited:?}");
        drop(client);
        let mut buffer = Vec::with_capacity(16);
        let end = reader.receive(&server, &mut buffer).unwrap();
        assert_eq!((end.bytes, buffer.len()), (0, 0));
    }

    #[test]
    fn only_a_socket_can_be_stamped() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let error = enable_receive_timestamps(&file).unwrap_err().to_string();
        assert!(error.contains("SO_TIMESTAMPNS"), "{error}");
    }
}
