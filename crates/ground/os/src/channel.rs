//! Datagrams between two processes with attached file descriptors (SCM_RIGHTS): passes memory files
//! to a process that is already running.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};

use crate::OsError;
use crate::limits::{MESSAGE_BYTES_MAX, MESSAGE_FDS_MAX};

/// One end of a socket pair. Preserves message boundaries and order; never blocks.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
}

/// A received message.
#[derive(Debug)]
pub struct ReceivedMessage {
    pub bytes: Vec<u8>,
    pub fds: Vec<OwnedFd>,
}

impl Channel {
    /// Creates a connected pair.
    ///
    /// # Errors
    /// There are no file descriptors left.
    pub fn pair() -> Result<(Self, Self), OsError> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)
            .map_err(|e| OsError::call("socketpair", e))?;
        Ok((Self { socket: one }, Self { socket: other }))
    }

    /// Wraps the end that this process inherited.
    #[must_use]
    pub fn inherited(fd: OwnedFd) -> Self {
        Self { socket: fd }
    }

    /// Sends `bytes` (1 byte to 4 KiB) and duplicates of `fds` (at most 253).
    ///
    /// # Errors
    /// The peer has closed its end, or the socket buffer is full ([`OsError::is_queue_full`]).
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), OsError> {
        if bytes.is_empty() || bytes.len() > MESSAGE_BYTES_MAX || fds.len() > MESSAGE_FDS_MAX {
            return Err(OsError::call("sendmsg", Errno::EMSGSIZE));
        }
        let fds: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let control = if fds.is_empty() { &[][..] } else { &rights };
        let flags = MsgFlags::MSG_NOSIGNAL;
        let parts = [IoSlice::new(bytes)];
        sendmsg::<()>(self.socket.as_raw_fd(), &parts, control, flags, None)
            .map(drop)
            .map_err(|e| OsError::call("sendmsg", e))
    }

    /// Receives a message; `None` if none is queued.
    ///
    /// # Errors
    /// The peer has closed its end, or sent an invalid message.
    pub fn receive(&self) -> Result<Option<ReceivedMessage>, OsError> {
        let mut bytes = vec![0; MESSAGE_BYTES_MAX];
        let mut control = cmsg_space!([std::os::fd::RawFd; MESSAGE_FDS_MAX]);
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let socket = self.socket.as_raw_fd();
        let received = match recvmsg::<()>(socket, &mut parts, Some(&mut control), flags) {
            Ok(received) => received,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(e) => return Err(OsError::call("recvmsg", e)),
        };
        let mut fds = Vec::new();
        let messages = received.cmsgs().map_err(|e| OsError::call("recvmsg", e))?;
        for message in messages {
            if let ControlMessageOwned::ScmRights(numbers) = message {
                // SAFETY: the kernel has just opened these descriptors, which have no other owner.
                fds.extend(
                    numbers
                        .iter()
                        .map(|&fd| unsafe { OwnedFd::from_raw_fd(fd) }),
                );
            }
        }
        let length = received.bytes;
        if length == 0 {
            return Err(OsError::call("recvmsg", Errno::ECONNRESET));
        }
        bytes.truncate(length);
        Ok(Some(ReceivedMessage { bytes, fds }))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SharedMemory;

    #[test]
    fn messages_keep_borders_and_order_and_carry_memory() {
        let (front, worker) = Channel::pair().unwrap();
        assert!(worker.receive().unwrap().is_none());
        let memory = SharedMemory::create_sealed("test", b"model").unwrap();
        front
            .send(b"one", &[memory.as_fd(), memory.as_fd()])
            .unwrap();
        front.send(b"two", &[]).unwrap();
        let one = worker.receive().unwrap().unwrap();
        assert_eq!((one.bytes.as_slice(), one.fds.len()), (&b"one"[..], 2));
        for fd in one.fds {
            let theirs = SharedMemory::open(fd).unwrap();
            assert_eq!(theirs.map_read().unwrap().as_slice(), b"model");
        }
        let two = worker.receive().unwrap().unwrap();
        assert_eq!(
            (two.bytes.as_slice(), two.fds.is_empty()),
            (&b"two"[..], true)
        );
        assert!(worker.receive().unwrap().is_none());
    }

    #[test]
    fn a_closed_end_and_a_message_too_long_are_errors() {
        let (front, worker) = Channel::pair().unwrap();
        assert!(front.send(&[0; MESSAGE_BYTES_MAX + 1], &[]).is_err());
        assert!(front.send(&[], &[]).is_err());
        front.send(&[7; MESSAGE_BYTES_MAX], &[]).unwrap();
        drop(front);
        assert_eq!(
            worker.receive().unwrap().unwrap().bytes.len(),
            MESSAGE_BYTES_MAX
        );
        assert!(worker.receive().is_err());
        assert!(worker.send(b"x", &[]).is_err());
    }

    #[test]
    fn sending_does_not_wait_for_a_slow_reader() {
        let (front, _worker) = Channel::pair().unwrap();
        let mut sent = (0..10_000).map(|_| front.send(&[7; MESSAGE_BYTES_MAX], &[]));
        let refused = sent.find_map(Result::err).unwrap();
        assert!(refused.is_queue_full());
    }
}
