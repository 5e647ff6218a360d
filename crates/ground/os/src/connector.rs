//! Process events of the kernel (netlink proc connector): reports every fork and clone on the
//! machine immediately.
//!
//! The socket exists only in the initial network namespace, and events are sent only to readers in
//! the initial PID namespace; kernels before 6.6 require `CAP_NET_ADMIN`. A socket filter in the
//! kernel drops all events except forks. Events that do not fit into the receive buffer are lost
//! and the loss is reported; the caller must then rescan all processes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, recv, send, setsockopt, sockopt};
use nix::time::ClockId;

use crate::clock::read_clock;
use crate::limits::{CONNECTOR_BUFFER_BYTES, SPAWN_BYTES_MAX, SPAWNS_AT_ONCE_MAX};
use crate::{Micros, OsError, Pid, Tid};

const NETLINK_CONNECTOR: i32 = 11;
/// Both the connector index and the multicast group of process events.
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const PROC_CN_MCAST_LISTEN: u32 = 1;
const PROC_EVENT_FORK: u32 = 1;
/// Inode of the initial PID namespace, the same in every kernel (PROC_PID_INIT_INO).
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// Offset of the event: after the netlink header (16 bytes) and the connector header (20).
const EVENT_OFFSET: usize = 36;

/// Reason why process events are unavailable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectorError {
    /// The kernel sends no events into other PID namespaces.
    #[error(
        "the kernel sends process events only to the initial pid namespace: run there (hostPID), \
         or detect spawns by polling"
    )]
    OtherPidNamespace,
    /// The socket does not exist in this network namespace.
    #[error(
        "the kernel sends process events only in the initial network namespace: run there \
         (hostNetwork), or detect spawns by polling"
    )]
    OtherNetworkNamespace,
    /// A capability is missing.
    #[error(
        "this kernel sends process events only to processes with CAP_NET_ADMIN: add it, or detect \
         spawns by polling"
    )]
    NotPermitted,
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Creation of a process or thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpawnEvent {
    /// Parent of the process.
    pub parent: Pid,
    pub process: Pid,
    /// Id of the new thread: if it differs from `process`, it is a new thread of an existing
    /// process.
    pub thread: Tid,
    /// Time of the event, on the clock of [`crate::Clock::now`].
    pub at: Micros,
}

/// Socket that receives spawn events.
#[derive(Debug)]
pub struct ProcConnector {
    fd: OwnedFd,
}

impl ProcConnector {
    /// Subscribes to spawn events.
    ///
    /// # Errors
    /// This is not the initial namespace, or the kernel or a sandbox forbids the call.
    pub fn open() -> Result<Self, ConnectorError> {
        let link = std::path::Path::new("/proc/self/ns/pid");
        let namespace = std::fs::read_link(link).map_err(|e| OsError::read(link, e))?;
        if namespace.as_os_str() != FIRST_PID_NAMESPACE {
            return Err(ConnectorError::OtherPidNamespace);
        }
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, NETLINK_CONNECTOR) };
        if fd < 0 {
            return Err(connector_error("socket(NETLINK_CONNECTOR)", Errno::last()));
        }
        // SAFETY: the descriptor was created above and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let connector = Self { fd };
        connector.keep_spawns_only()?;
        // Best effort: with a smaller buffer, events are only lost earlier.
        let _ = setsockopt(&connector.fd, sockopt::RcvBuf, &CONNECTOR_BUFFER_BYTES);
        bind(connector.fd.as_raw_fd(), &NetlinkAddr::new(0, CN_IDX_PROC))
            .map_err(|e| connector_error("bind(NETLINK_CONNECTOR)", e))?;
        send(
            connector.fd.as_raw_fd(),
            &listen_message(),
            MsgFlags::empty(),
        )
        .map_err(|e| connector_error("send(NETLINK_CONNECTOR)", e))?;
        Ok(connector)
    }

    /// Attaches a BPF filter that drops all other events before they reach the receive buffer.
    fn keep_spawns_only(&self) -> Result<(), OsError> {
        let instruction = |code: u32, jt, jf, k| libc::sock_filter {
            // infallible: the codes are below 2^16.
            code: code as u16,
            jt,
            jf,
            k,
        };
        let (load, jump, end) = (
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            libc::BPF_RET | libc::BPF_K,
        );
        // Filters load words in network byte order; events are in native byte order.
        let mut program = [
            instruction(load, 0, 0, EVENT_OFFSET as u32),
            instruction(jump, 0, 1, PROC_EVENT_FORK.to_be()),
            instruction(end, 0, 0, u32::MAX),
            instruction(end, 0, 0, 0),
        ];
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        // SAFETY: the kernel reads `filter` and the program that it points to, which both live
        // through the call.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const filter).cast(),
                size_of::<libc::sock_fprog>() as u32,
            )
        };
        match result {
            0 => Ok(()),
            _ => Err(OsError::call("setsockopt(SO_ATTACH_FILTER)", Errno::last())),
        }
    }

    /// Reads the pending spawn events, at most 4,096 per call. Returns true if events were lost.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn read(&self, spawns: &mut Vec<SpawnEvent>) -> Result<bool, OsError> {
        let mut buffer = [0u8; SPAWN_BYTES_MAX];
        let ahead = ahead_of_monotonic()?;
        let mut lost = false;
        // bound: SPAWNS_AT_ONCE_MAX datagrams
        for _ in 0..SPAWNS_AT_ONCE_MAX {
            match recv(self.fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(length) => spawns.extend(parse_spawn(&buffer[..length], ahead)),
                Err(Errno::EAGAIN) => return Ok(lost),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => lost = true,
                Err(e) => return Err(OsError::call("recv(NETLINK_CONNECTOR)", e)),
            }
        }
        Ok(lost)
    }
}

impl AsFd for ProcConnector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn connector_error(call: &'static str, errno: Errno) -> ConnectorError {
    match errno {
        Errno::ECONNREFUSED | Errno::EPROTONOSUPPORT => ConnectorError::OtherNetworkNamespace,
        Errno::EPERM | Errno::EACCES => ConnectorError::NotPermitted,
        errno => ConnectorError::Os(OsError::call(call, errno)),
    }
}

/// The subscription message: netlink header, connector header, operation.
fn listen_message() -> [u8; EVENT_OFFSET + 4] {
    let mut message = [0u8; EVENT_OFFSET + 4];
    let mut put = |at: usize, bytes: &[u8]| message[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(EVENT_OFFSET as u32 + 4).to_ne_bytes());
    put(4, &(libc::NLMSG_DONE as u16).to_ne_bytes());
    put(12, &std::process::id().to_ne_bytes());
    put(16, &CN_IDX_PROC.to_ne_bytes());
    put(20, &CN_VAL_PROC.to_ne_bytes());
    put(32, &4u16.to_ne_bytes());
    put(EVENT_OFFSET, &PROC_CN_MCAST_LISTEN.to_ne_bytes());
    message
}

/// Difference in microseconds between CLOCK_BOOTTIME and CLOCK_MONOTONIC, which stops during
/// suspend.
fn ahead_of_monotonic() -> Result<u64, OsError> {
    let monotonic = read_clock(ClockId::CLOCK_MONOTONIC)?;
    Ok(read_clock(ClockId::CLOCK_BOOTTIME)?
        .0
        .saturating_sub(monotonic.0))
}

fn parse_spawn(datagram: &[u8], ahead: u64) -> Option<SpawnEvent> {
    let word = |at: usize| {
        let bytes = datagram.get(at..at + 4)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    if word(EVENT_OFFSET)? != PROC_EVENT_FORK {
        return None;
    }
    let nanos = datagram.get(EVENT_OFFSET + 8..EVENT_OFFSET + 16)?;
    let nanos = u64::from_ne_bytes(nanos.try_into().ok()?);
    // tid and pid of the parent, then tid and pid of the child.
    let id = |n: usize| word(EVENT_OFFSET + 16 + 4 * n).map(|id| id as i32);
    Some(SpawnEvent {
        parent: Pid(id(1)?),
        process: Pid(id(3)?),
        thread: Tid(id(2)?),
        at: Micros(nanos / 1_000 + ahead),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, Poll, PollKey};
    use std::time::Duration;

    #[test]
    fn a_new_child_and_a_new_thread_are_reported_and_nothing_else() {
        let connector = ProcConnector::open().unwrap();
        let poll = Poll::new().unwrap();
        poll.add(&connector, PollKey(1)).unwrap();
        let clock = Clock::new().unwrap();
        let before = clock.now().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        std::thread::spawn(|| {}).join().unwrap();
        let me = Pid(std::process::id() as i32);
        let pid = Pid(child.id() as i32);
        child.wait().unwrap();
        let mut spawns = Vec::new();
        let is_child = |b: &&SpawnEvent| b.parent == me && b.process == pid;
        let is_thread = |b: &&SpawnEvent| b.process == me && b.thread.0 != me.0;
        let is_complete = |spawns: &[SpawnEvent]| {
            spawns.iter().any(|b| is_child(&b)) && spawns.iter().any(|b| is_thread(&b))
        };
        for _ in 0..600 {
            if is_complete(&spawns) {
                break;
            }
            poll.wait(Duration::from_millis(100)).unwrap();
            connector.read(&mut spawns).unwrap();
        }
        assert!(is_complete(&spawns), "{} spawns", spawns.len());
        let after = clock.now().unwrap();
        let own = spawns.iter().filter(|b| is_child(b) || is_thread(b));
        assert!(
            own.into_iter()
                .all(|b| b.at.0 + 1_000 >= before.0 && b.at <= after)
        );
    }

    #[test]
    fn datagrams_cut_anywhere_are_no_spawns() {
        let mut datagram = [0u8; 76];
        datagram[EVENT_OFFSET..EVENT_OFFSET + 4].copy_from_slice(&1u32.to_ne_bytes());
        assert!(parse_spawn(&datagram, 0).is_some());
        for end in 0..EVENT_OFFSET + 32 {
            assert_eq!(parse_spawn(&datagram[..end], 0), None);
        }
        datagram[EVENT_OFFSET] = 2;
        assert_eq!(parse_spawn(&datagram, 0), None);
    }
}
